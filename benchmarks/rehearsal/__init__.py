"""A rehearsal of what an SRE goes through: see ``__main__.py``."""

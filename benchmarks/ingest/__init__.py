"""What receiving and scoring costs the collector; see ``__main__``."""

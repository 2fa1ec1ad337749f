"""Several receiver processes that feed one scorer."""

"""Is every span counted once, while its collector restarts? ``python -m benchmarks.no_loss``."""

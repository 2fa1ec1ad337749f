"""What the collector shows: immutable views of runs, and everything that is rendered from them."""

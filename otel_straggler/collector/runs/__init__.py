"""What the collector knows of training runs: one store owns all of it, on the scoring thread."""

"""How a training scales with its ranks, and where the time of its GPUs goes."""

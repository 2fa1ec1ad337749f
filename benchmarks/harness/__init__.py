"""What benchmarks share: taking turns, budgets, other processes, peers."""

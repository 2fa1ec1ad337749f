"""Every number of docs/costs.md and the README: one module each, run as ``python -m benchmarks.<name>``, JSON out."""

"""Every number of docs/costs.md and the README: a module each, ``python -m benchmarks.<name>``."""

"""Every number of docs/internals/costs.md and the README: a module each,
``python -m benchmarks.<name>``."""

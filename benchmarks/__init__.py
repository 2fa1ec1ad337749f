"""Every number of the README: one module each, run as ``python -m benchmarks.<name>``, JSON out."""

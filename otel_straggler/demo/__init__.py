"""The demo: real processes, a fault, and the alert that reports it."""

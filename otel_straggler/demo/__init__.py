"""The demo: real processes in which something goes wrong, and the alert that reports it."""

"""The demo: real processes in which something goes wrong, and the alert that tells of it."""

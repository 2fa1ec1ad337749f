"""Diagnostics of a rank that is stuck: stacks of all threads, when it asks itself or is asked."""

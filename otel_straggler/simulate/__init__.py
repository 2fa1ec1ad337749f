"""Runs whose answer is known: named scenarios, generated runs, and writers of their telemetry."""

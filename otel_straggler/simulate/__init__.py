"""Runs whose answer is known: named scenarios, and writers of what their ranks would send."""

"""Whether injected faults are found, in real trainings and in simulated fleets; ``python -m``
measures it."""

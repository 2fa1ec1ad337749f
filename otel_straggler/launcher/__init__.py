"""Runs torchrun as a child: attempts, exits and restarts become events, and the training is run
again until it has finished.

Restarts are torchelastic's (``--max-restarts``); the node's agent acts on ranks that hang. This
room starts both, and reports.
"""

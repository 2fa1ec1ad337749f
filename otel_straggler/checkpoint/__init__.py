"""Checkpoints that survive, and are seen: a manager over ``torch.distributed.checkpoint``.

Importing this loads no torch; making a :class:`Manager` does.
"""

from otel_straggler.checkpoint.interval import estimated_mtbf_s, optimal_interval_s
from otel_straggler.checkpoint.manager import Manager
from otel_straggler.checkpoint.stateful import PerRank, RandomState, training_state

__all__ = [
    "Manager",
    "PerRank",
    "RandomState",
    "estimated_mtbf_s",
    "optimal_interval_s",
    "training_state",
]

"""Checkpoints that survive, and are seen: a manager over ``torch.distributed.checkpoint``.

Importing this loads no torch; making a :class:`Manager` does.
"""

from otel_straggler.checkpoint.interval import estimated_mtbf_s, optimal_interval_s
from otel_straggler.checkpoint.layout import LocalTier
from otel_straggler.checkpoint.manager import Manager
from otel_straggler.checkpoint.stateful import PerRank, RandomState, training_state
from otel_straggler.client.checkpoints import CheckpointWatch

__all__ = [
    "LocalTier",
    "Manager",
    "PerRank",
    "RandomState",
    "estimated_mtbf_s",
    "optimal_interval_s",
    "training_state",
    "watch",
]


def watch() -> CheckpointWatch:
    """Time every save and load of DCP in this process until its ``close()``, also those that others
    call; ``configure()`` does so by itself. Its ``totals`` count them."""
    result = CheckpointWatch()
    result.start()
    return result

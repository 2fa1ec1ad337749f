"""The next action for every cause of a verdict, as it is told to a person."""

from __future__ import annotations

from typing import Final

from otel_straggler.model.verdict import Cause

NEXT_ACTION: Final[dict[Cause, str]] = {
    "slow_gpu": "compare load and clocks of its CPU with a peer's, and, if it has a GPU, that "
    "one's clocks, temperature and XID errors; cordon the host if they differ",
    "slow_host": "look at its data loading, disks and CPU; cordon the host if all its sections are "
    "slow",
    "late_arrival": "put sections around the rest of its step; look for garbage collection and "
    "logging",
    "link": "look at the error counters of the links; cordon the host that has errors",
    "stage_imbalance": "if it was always so, move layers to the other stages; none of its ranks is "
    "slower than its peers",
    "sequence_imbalance": "pack sequences to equal work; no machine is at fault",
    "expert_imbalance": "look at the balance of the router, or at the placement of an expert that "
    "always takes longest; no machine is at fault",
    "uniform_slowdown": "look at what all ranks share: storage, fabric, power, the last change",
    "unknown": "record a profile of a few steps there and on a peer",
}
"""Where nothing more is known than the cause; see :func:`next_action`."""
_OF_A_GPU: Final = (
    "compare its clocks, temperature and XID errors with a peer's; cordon the host if they differ"
)


WAITS_INSIDE: Final = (
    'put what waits (the collective) into a section of its own with kind="wait", or time kernels '
    "(gpu_timing)"
)
"""Where work and waiting lie in one section, so that all ranks take equally long."""


def next_action(cause: Cause, *, on_gpu: bool) -> str:
    """What to do about a subject that is, or is not, known to compute on a GPU."""
    return _OF_A_GPU if cause == "slow_gpu" and on_gpu else NEXT_ACTION[cause]

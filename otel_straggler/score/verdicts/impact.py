"""What a slow subject costs: time of all ranks, and of their GPUs, that the whole job waits."""

from __future__ import annotations

import math

SECONDS_PER_HOUR = 3600.0


def gpu_seconds_per_hour(excess_s: float, step_s: float, n_ranks: int) -> float:
    """Time that all ranks wait, per hour of training.

    excess_s / step_s x n_ranks x 3600. The excess is part of ``step_s``, so it is never more than
    all of it. It is what the subject takes beyond its peers: what is lost once all others that are
    slow are mended. Where two are slow at once, mending the slower one alone wins less.

    Returns:
        Seconds; NaN if the excess or the time of a step is not known.

    >>> gpu_seconds_per_hour(0.1, 1.0, 8)
    2880.0
    """
    if not step_s > 0.0 or math.isnan(excess_s):
        return math.nan
    return min(1.0, max(0.0, excess_s) / step_s) * n_ranks * SECONDS_PER_HOUR

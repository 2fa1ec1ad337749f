"""How the time of a visit is divided: the most valuable experiments first, each with a budget."""

from __future__ import annotations

import os
from collections.abc import Sequence

from benchmarks.gpu.experiment import Experiment
from benchmarks.gpu.presence import FAKE


def shares_s(experiments: Sequence[Experiment], seconds: float) -> list[float]:
    """What each is sure to get while there is time: its budget, more where the visit is longer than
    all budgets together, and never more than its limit."""
    total_s = sum(e.budget_s for e in experiments)
    longer = max(1.0, seconds / total_s) if total_s else 1.0
    return [min(e.limit_s, longer * e.budget_s) for e in experiments]


def limit_s(experiment: Experiment, shares: Sequence[float], left_s: float) -> float:
    """How long an experiment may take that is about to begin: its share, and what nobody after it
    is sure of.

    Args:
        experiment: which.
        shares: its own first, then of those after it.
        left_s: of the visit.
    """
    if os.environ.get(FAKE):  # nobody is short of time but the dry run as a whole
        return min(experiment.limit_s, left_s)
    spare_s = left_s - sum(shares[1:])
    return min(experiment.limit_s, left_s, max(shares[0], spare_s))

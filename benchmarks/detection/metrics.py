"""The numbers: F1 of events, average precision, percentiles, bootstrap intervals. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from otel_straggler.model.observation import Floats

NAN = float("nan")


@dataclass(frozen=True, slots=True)
class Events:
    """Counts of events: found, false and missed ones.

    >>> events = Events(detected=8, false=2, missed=0)
    >>> events.precision, events.recall, round(events.f1, 3)
    (0.8, 1.0, 0.889)
    """

    detected: int = 0
    false: int = 0
    missed: int = 0

    def __add__(self, other: Events) -> Events:
        return Events(
            self.detected + other.detected, self.false + other.false, self.missed + other.missed
        )

    @property
    def precision(self) -> float:
        """Part of what was said that is right; NaN if nothing was said."""
        return ratio(self.detected, self.detected + self.false)

    @property
    def recall(self) -> float:
        """Part of the faults that were found; NaN if there were none."""
        return ratio(self.detected, self.detected + self.missed)

    @property
    def f1(self) -> float:
        """2 found / (2 found + false + missed); NaN if there was neither fault nor episode."""
        return ratio(2 * self.detected, 2 * self.detected + self.false + self.missed)


def ratio(part: float, whole: float) -> float:
    """NaN where there is nothing to divide by."""
    return part / whole if whole else NAN


def average_precision(right: Sequence[float], false: Sequence[float], n_faults: int) -> float:
    """Area under precision over recall, from the strengths of right and false episodes.

    Sum over the right ones, strongest first, of the precision at their strength / ``n_faults``.
    Faults that no episode names are never reached. False episodes of equal strength come first.
    NaN without faults.

    >>> average_precision(right=[3.0, 1.0], false=[2.0], n_faults=4)
    0.41666666666666663
    """
    if n_faults == 0:
        return NAN
    ordered_right = np.sort(np.asarray(right, float))[::-1]
    ordered_false = np.sort(np.asarray(false, float))
    n_stronger_false = len(ordered_false) - np.searchsorted(ordered_false, ordered_right, "left")
    n_right = np.arange(1, len(ordered_right) + 1)
    return float(np.sum(n_right / (n_right + n_stronger_false)) / n_faults)


def percentile(values: Sequence[float], at: float) -> float:
    """NaN of nothing."""
    return float(np.percentile(values, at)) if len(values) else NAN


def is_among_top(strengths: Floats, wanted: Sequence[int], k: int) -> bool:
    """Whether one of the positions ``wanted`` is among the ``k`` strongest.

    Ties count against: all that are as strong, and not wanted, come first. Zero says nothing.
    """
    best = max((float(strengths[at]) for at in wanted), default=0.0)
    if not best > 0:
        return False
    others = np.delete(strengths, np.asarray(wanted, int))
    return int(np.count_nonzero(others >= best)) < k


def interval(
    counts: Floats,
    measure: Callable[[Floats], float],
    *,
    draws: int = 400,
    level: float = 0.95,
    seed: int = 0,
) -> tuple[float, float]:
    """Bootstrap interval of a measure of sums: whole runs are drawn again, with their faults.

    Args:
        counts: (runs, k) what was counted in each run.
        measure: from the (k,) sums over runs.

    Returns:
        NaN where fewer than two runs were measured, or no draw had a value.
    """
    if len(counts) < 2:
        return NAN, NAN
    rng = np.random.default_rng(seed)
    picks = rng.integers(len(counts), size=(draws, len(counts)))
    values = np.array([measure(counts[pick].sum(axis=0)) for pick in picks])
    values = values[~np.isnan(values)]
    if not len(values):
        return NAN, NAN
    low, high = np.percentile(values, (50 * (1 - level), 50 * (1 + level)))
    return float(low), float(high)

"""Outliers among the peers of a role, by three textbook rules, without floors or persistence.

All use the median over 20 steps of a rank's local time.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from benchmarks.detection.episodes import Episode, FlagTracker
from benchmarks.detection.methods.signals import LocalTimes, by_role, median_over_steps
from otel_straggler.model.observation import Floats
from otel_straggler.model.step_table import StepTable

Rule = Callable[[Floats], Floats]
SIGMA_OF_MAD = 1.4826
MODIFIED_Z = 0.6745


def mad_2(values: Floats) -> Floats:
    """Distance above the median in units of 2 standard deviations estimated by the MAD.

    Flagged above 1. NaN where the value is; 0 if more than half of the peers are equal and so
    is the value.
    """
    return _over_mad(values) / (2 * SIGMA_OF_MAD)


def modified_z(values: Floats) -> Floats:
    """Iglewicz and Hoaglin's 0.6745 (x - median) / MAD, over their 3.5. Flagged above 1."""
    return _over_mad(values) * MODIFIED_Z / 3.5


def iqr_fence(values: Floats) -> Floats:
    """Distance above the third quartile over 1.5 times the interquartile range (Tukey)."""
    first, third = np.nanquantile(values, (0.25, 0.75))
    return _ratio(values - third, 1.5 * (third - first))


class Robust:
    """One of the rules, role by role. Strength = value of the rule, flagged above 1."""

    has_host_scope = False

    def __init__(self, name: str, rule: Rule) -> None:
        self.name = name
        self.strengths: Floats = np.zeros(0)
        self._rule = rule
        self._times = LocalTimes()
        self._flags = FlagTracker()

    def take(self, table: StepTable) -> list[Episode]:
        """Episodes that begin with these steps."""
        if not self._times.take(table):
            return []
        medians = median_over_steps(self._times.totals())
        self.strengths = np.zeros(len(medians))
        for group in by_role(self._times.roles):
            if np.count_nonzero(~np.isnan(medians[group])) >= 3:
                self.strengths[group] = np.nan_to_num(self._rule(medians[group]), nan=0.0)
        flagged = self.strengths > 1
        return self._flags.take(self._times.ranks, flagged, self.strengths, int(table.steps[-1]))


def _over_mad(values: Floats) -> Floats:
    middle = np.nanmedian(values)
    return _ratio(values - middle, np.nanmedian(np.abs(values - middle)))


def _ratio(distance: Floats, unit: float) -> Floats:
    """0 / 0 is 0: as far as its peers; anything else over 0 is far."""
    if unit > 0:
        return np.asarray(distance / unit)
    return np.where(np.isnan(distance) | (distance == 0), distance, np.sign(distance) * 1e9)

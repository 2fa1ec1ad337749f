"""NVRx's section score: fastest rank's median / own median, a straggler below 0.75."""

from __future__ import annotations

import numpy as np

from benchmarks.detection.episodes import Episode, FlagTracker
from benchmarks.detection.methods.signals import LocalTimes, by_role, median_over_steps
from otel_straggler.model.observation import Floats
from otel_straggler.model.step_table import StepTable

THRESHOLD = 0.75


class Nvrx:
    """The worst section of a rank counts. Strength = 1 / score.

    ``within_roles`` takes the fastest rank of the role instead of the fastest of all.
    """

    has_host_scope = False

    def __init__(self, *, within_roles: bool = False) -> None:
        self.name = "nvrx .75 role-min" if within_roles else "nvrx .75"
        self.strengths: Floats = np.zeros(0)
        self._within_roles = within_roles
        self._times = LocalTimes()
        self._flags = FlagTracker()

    def take(self, table: StepTable) -> list[Episode]:
        """Episodes that begin with these steps."""
        if not self._times.take(table):
            return []
        roles = self._times.roles if self._within_roles else np.zeros_like(self._times.roles)
        scores = relative_scores(median_over_steps(self._times.seconds), by_role(roles))
        worst = np.fmin.reduce(scores, axis=1)
        self.strengths = np.nan_to_num(1 / worst, nan=0.0)
        flagged = worst < THRESHOLD
        return self._flags.take(self._times.ranks, flagged, self.strengths, int(table.steps[-1]))


def relative_scores(medians: Floats, groups: list[np.ndarray]) -> Floats:
    """(R, S) smallest median of the group / own median; NaN where a rank ran nothing."""
    scores = np.full(medians.shape, np.nan)
    for group in groups:
        scores[group] = np.fmin.reduce(medians[group], axis=0) / medians[group]
    return scores

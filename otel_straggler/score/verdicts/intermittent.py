"""Now and then: a rank that stalls in one step of twenty, which no median sees.

A spike begins where a rank takes a tenth of a step longer than its peers and than it usually does,
and did not in the step before. Spikes are counted, fading with a half-life of 400 steps, and a rank
is flagged that has so many of them that a Poisson variable with the mean of all has as many with a
probability of at most 0.005 / (ranks x quantities).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from otel_straggler.model.observation import Floats
from otel_straggler.score.verdicts.comparison import FALSE_ALARMS
from otel_straggler.score.verdicts.stalls import Stalling, Stalls

SPIKE = 0.10
HALF_LIFE_STEPS = 400.0
LEAST_RATE = 0.001
"""Healthy ranks are taken to have a spike in 1,000 steps at least."""
LEAST_TIMES = 3.0
"""A flagged rank has at least so many times the spikes of the others."""
MOST_COUNTED = 200
MOST_BEYOND = 20.0
WINSORISED = 0.05
"""The ranks with most spikes count for what is normal like the first of the others."""
LOOKS = 10.0
"""A count is looked at after every block of a long run: so much less may chance do at each look."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Spikes:
    """(R, C) who spikes too often; its z; seconds lost to spikes per step."""

    beyond: npt.NDArray[np.bool_]
    z: Floats
    lost_s: Floats


class Intermittent:
    """Memory of R ranks and C quantities. State: 16 bytes per pair, and its stalls."""

    def __init__(self, shape: tuple[int, int]) -> None:
        self.shape = shape
        self._spikes = np.zeros(shape)
        self._seconds = np.zeros(shape)
        self._was_spike = np.zeros(shape, bool)
        self._steps = 0.0
        self._stalls = Stalls(shape)

    def widen(self, quantities: int) -> None:
        """Make room for new sections: columns before the last, without spikes."""
        at = [self.shape[1] - 1] * (quantities - self.shape[1])
        self._stalls.widen(quantities)
        self.shape = (self.shape[0], quantities)
        self._spikes = np.insert(self._spikes, at, 0.0, axis=1)
        self._seconds = np.insert(self._seconds, at, 0.0, axis=1)
        self._was_spike = np.insert(self._was_spike, at, False, axis=1)

    def take(self, excess: Floats, usual: Floats, columns_s: Floats, step_s: Floats) -> Spikes:
        """The next block.

        Args:
            excess: (T, R, C) log excess over the peers; NaN where unknown.
            usual: (R, C) what the rank has of late: a lasting rise is no spike.
            columns_s: (R, C) usual seconds of the quantity.
            step_s: (R,) of the step.

        Cost: O(T R C).
        """
        usual = np.fmax(usual, 0.0)
        with np.errstate(invalid="ignore", divide="ignore"):
            limit = usual + np.log1p(SPIKE * step_s[:, None] / columns_s)
            is_spike = excess >= limit
        is_new = is_spike & ~np.concatenate([self._was_spike[None], is_spike[:-1]])
        self._was_spike = is_spike[-1]
        fade = 0.5 ** (len(excess) / HALF_LIFE_STEPS)
        self._steps = self._steps * fade + len(excess)
        self._spikes *= fade
        self._seconds *= fade
        lost_s = np.zeros(excess.shape)
        for t, row, column in zip(*(places.tolist() for places in is_new.nonzero()), strict=True):
            beyond = float(excess[t, row, column] - usual[row, column])
            one_s = math.expm1(min(beyond, MOST_BEYOND)) * float(columns_s[row, column])
            lost_s[t, row, column] = one_s
            self._spikes[row, column] += 1.0
            self._seconds[row, column] += min(one_s, 2.0 * float(step_s[row]))
        self._stalls.take(is_spike, is_new, lost_s)
        return self._judge()

    def stalling(self, row: int, column: int) -> Stalling | None:
        """How often and how long a row stalls; None where that is not known."""
        return self._stalls.of(row, column)

    def _judge(self) -> Spikes:
        rows, columns = self.shape
        ordered = np.sort(self._spikes, axis=0)
        most = np.maximum(ordered[max(0, int(rows * (1.0 - WINSORISED)) - 1)], 1.0)
        usual = np.minimum(ordered, most).mean(axis=0)
        usual = np.maximum(usual, LEAST_RATE * self._steps)
        chance = FALSE_ALARMS / LOOKS / max(rows * columns, 1)
        least = np.array([critical_count(float(mean), chance) for mean in usual])
        beyond = self._spikes >= np.maximum(least, LEAST_TIMES * usual)
        z = 2.0 * (np.sqrt(self._spikes + 0.375) - np.sqrt(usual + 0.375))
        return Spikes(beyond=beyond, z=z, lost_s=self._seconds / max(self._steps, 1.0))


def critical_count(mean: float, chance: float) -> int:
    """The smallest count that a Poisson variable reaches with at most this probability.

    >>> critical_count(0.3, 1e-5), critical_count(4.0, 1e-5)
    (6, 16)
    """
    term = math.exp(-mean)
    left = 1.0 - term
    for count in range(1, MOST_COUNTED):
        if left <= chance:
            return count
        term *= mean / count
        left -= term
    return MOST_COUNTED

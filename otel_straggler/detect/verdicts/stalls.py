"""Stalls in one step of twenty, which no median shows.

A spike begins where a rank takes a tenth of a step longer than its peers and than usual, and ends
where that is less than half. Counts fade with a half-life of 400 steps; a rank is flagged if a
Poisson variable with the mean of all reaches its count with a probability of at most 0.005 / (ranks
x quantities), and if it has three times the mean. Outside data loading the cause is unknown, and
the verdict does not page: a rank that logs or saves looks alike.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from otel_straggler.detect.scores.medians import median_of
from otel_straggler.detect.verdicts.significance import FALSE_ALARMS
from otel_straggler.model.observation import Bools, Floats

NEWEST = 12
"""Spikes kept per rank and quantity."""
MIN_STALLS = 4
"""Fewer do not show how often they come."""
APART = 5.0
"""A gap this many times the usual one ends or precedes the trouble."""
MAX_LASTING = 0.34
"""If more stalls last longer than a step, it is not a pattern of single steps."""


@dataclass(frozen=True, slots=True)
class StallPattern:
    """Part of the steps in which a rank stalls, 0 to 0.5, and seconds of the median stall."""

    share: float
    each_s: float

    def __str__(self) -> str:
        """
        >>> str(StallPattern(share=0.1, each_s=0.98))
        'in about 1 of 10 steps, by 0.98 s each time'
        """
        return f"in about 1 of {1.0 / self.share:.0f} steps, by {self.each_s:.2g} s each time"


class StallHistory:
    """Memory of R ranks and C quantities. State: 112 bytes per pair with spikes."""

    def __init__(self, shape: tuple[int, int]) -> None:
        self._at = np.zeros((*shape, NEWEST), np.int32)
        self._lost_s = np.zeros((*shape, NEWEST), np.float32)
        self._lasts = np.zeros((*shape, NEWEST), bool)
        self._count = np.zeros(shape, np.int32)
        self._steps = 0

    def widen(self, quantities: int) -> None:
        """Insert new columns before the last."""
        last = self._count.shape[1] - 1
        at = [last] * (quantities - last - 1)
        for name in ("_at", "_lost_s", "_lasts", "_count"):
            setattr(self, name, np.insert(getattr(self, name), at, 0, axis=1))

    def record(self, is_spike: Bools, is_new: Bools, lost_s: Floats) -> None:
        """The next steps: (T, R, C) who is slow, who was not in the step before, and seconds."""
        if not is_spike.any():
            self._steps += len(is_spike)
            return
        for spikes, new, seconds in zip(is_spike, is_new, lost_s, strict=True):
            self._steps += 1
            rows, columns = (spikes & ~new).nonzero()
            self._lasts[rows, columns, (self._count[rows, columns] - 1) % NEWEST] = True
            rows, columns = new.nonzero()
            index = (rows, columns, self._count[rows, columns] % NEWEST)
            self._at[index] = self._steps
            self._lost_s[index] = seconds[rows, columns]
            self._lasts[index] = False
            self._count[rows, columns] += 1

    def of(self, row: int, column: int) -> StallPattern | None:
        """Recent pattern; None if unknown, ceased, or if stalls last longer than a step."""
        count = int(self._count[row, column])
        kept = np.arange(max(count - NEWEST, 0), count) % NEWEST
        at = self._at[row, column, kept]
        gaps = np.diff(at)
        longest = APART * median_of(gaps[-(MIN_STALLS - 1) :].astype(np.float64))
        if len(at) < MIN_STALLS or self._steps - at[-1] > longest:
            return None
        begins = int(np.flatnonzero(np.append(True, gaps > longest))[-1])
        at, kept = at[begins:], kept[begins:]
        if len(at) < MIN_STALLS or self._lasts[row, column, kept].mean() > MAX_LASTING:
            return None
        return StallPattern(
            share=(len(at) - 1) / float(at[-1] - at[0]),
            each_s=median_of(self._lost_s[row, column, kept]),
        )


SPIKE, STILL = 0.10, 0.5
"""Part of a step; a spike lasts until it is below half of that, so that a rank that is slow for a
while, by about as much, has one and not many."""
HALF_LIFE_STEPS = 400.0
MIN_RATE = 0.001
"""Healthy ranks have at least a spike in 1,000 steps."""
MIN_TIMES = 3.0
"""A flagged rank has at least so many times the spikes of the others."""
CLUSTER_STEPS = 10
"""Where one stall leads to the next, as where batches are queued, so many steps count as one."""
MAX_COUNTED = 200
MAX_BEYOND = 20.0
WINSORISED = 0.05
"""Ranks with most spikes count for the mean like the first of the others."""
EVALUATIONS = 10.0
"""Counts are evaluated after every block of a long run: less chance for each."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Spikes:
    """(R, C) who spikes too often; its z, and (C,) the z from which on that is too often; seconds
    lost to spikes per step."""

    beyond: Bools
    z: Floats
    z_limit: Floats
    lost_s: Floats


class StallDetector:
    """Memory of R ranks and C quantities. State: 16 bytes per pair, and its stalls."""

    def __init__(self, shape: tuple[int, int]) -> None:
        self.shape = shape
        self._spikes = np.zeros(shape)
        self._seconds = np.zeros(shape)
        self._was_spike = np.zeros(shape, bool)
        self._counted_at = np.full(shape, -CLUSTER_STEPS)
        self._observed = 0
        self._steps = 0.0
        self._stalls = StallHistory(shape)

    def widen(self, quantities: int) -> None:
        """Insert new columns before the last."""
        at = [self.shape[1] - 1] * (quantities - self.shape[1])
        self._stalls.widen(quantities)
        self.shape = (self.shape[0], quantities)
        fillers = {"_spikes": 0, "_seconds": 0, "_was_spike": 0, "_counted_at": -CLUSTER_STEPS}
        for name, filler in fillers.items():
            setattr(self, name, np.insert(getattr(self, name), at, filler, axis=1))

    def observe(
        self,
        excess: Floats,
        usual: Floats,
        columns_s: Floats,
        step_s: Floats,
        is_queued: Bools | None = None,
    ) -> Spikes:
        """The next block: (T, R, C) log excess over the peers, NaN if unknown.

        Args:
            usual: (R, C) recent excess: a lasting rise is no spike.
            columns_s: (R, C) usual seconds of the quantity; step_s: (R,) of the step.
            is_queued: (C,) quantities in which one stall leads to the next.
        """
        apart = np.where(
            np.zeros(self.shape[1]) if is_queued is None else is_queued, CLUSTER_STEPS, 1
        )
        usual = np.fmax(usual, 0.0)
        with np.errstate(invalid="ignore", divide="ignore"):
            part = SPIKE * step_s[:, None] / columns_s
            begins = excess >= usual + np.log1p(part)
            lasts = excess >= usual + np.log1p(STILL * part)
        is_spike, is_new = self._spikes_of(begins, lasts)
        fade = 0.5 ** (len(excess) / HALF_LIFE_STEPS)
        self._steps = self._steps * fade + len(excess)
        self._spikes *= fade
        self._seconds *= fade
        lost_s = np.zeros(excess.shape)
        for t, row, column in zip(*(indexes.tolist() for indexes in is_new.nonzero()), strict=True):
            beyond = float(excess[t, row, column] - usual[row, column])
            one_s = math.expm1(min(beyond, MAX_BEYOND)) * float(columns_s[row, column])
            lost_s[t, row, column] = one_s
            if self._observed + t - self._counted_at[row, column] >= apart[column]:
                self._counted_at[row, column] = self._observed + t
                self._spikes[row, column] += 1.0
            self._seconds[row, column] += min(one_s, 2.0 * float(step_s[row]))
        self._observed += len(excess)
        self._stalls.record(is_spike, is_new, lost_s)
        return self._evaluate()

    def _spikes_of(self, begins: Bools, lasts: Bools) -> tuple[Bools, Bools]:
        """(T, R, C) who is in a spike, and whose has just begun."""
        if not begins.any() and not self._was_spike.any():
            return begins, begins
        is_spike, is_new = begins.copy(), begins.copy()
        for t, (begun, lasting) in enumerate(zip(begins, lasts, strict=True)):
            is_new[t] = begun & ~self._was_spike
            is_spike[t] = self._was_spike = begun | (self._was_spike & lasting)
        return is_spike, is_new

    def stalling(self, row: int, column: int) -> StallPattern | None:
        return self._stalls.of(row, column)

    def _evaluate(self) -> Spikes:
        rows, columns = self.shape
        ordered = np.sort(self._spikes, axis=0)
        maximum = np.maximum(ordered[max(0, int(rows * (1.0 - WINSORISED)) - 1)], 1.0)
        usual = np.minimum(ordered, maximum).mean(axis=0)
        usual = np.maximum(usual, MIN_RATE * self._steps)
        chance = FALSE_ALARMS / EVALUATIONS / max(rows * columns, 1)
        minimum = np.array([critical_count(mean, chance) for mean in usual.tolist()])
        minimum = np.maximum(minimum, MIN_TIMES * usual)
        z, z_limit = (
            2.0 * (np.sqrt(spikes + 0.375) - np.sqrt(usual + 0.375))
            for spikes in (self._spikes, minimum)
        )
        lost_s = self._seconds / max(self._steps, 1.0)
        return Spikes(beyond=self._spikes >= minimum, z=z, z_limit=z_limit, lost_s=lost_s)


@lru_cache(16)  # most quantities have no spikes, and the same mean
def critical_count(mean: float, chance: float) -> int:
    """The smallest count that a Poisson variable reaches with at most this probability.

    >>> critical_count(0.3, 1e-5), critical_count(4.0, 1e-5)
    (6, 16)
    """
    term = math.exp(-mean)
    left = 1.0 - term
    for count in range(1, MAX_COUNTED):
        if left <= chance:
            return count
        term *= mean / count
        left -= term
    return MAX_COUNTED

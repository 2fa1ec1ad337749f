"""How often and how long somebody stalls who stalls now and then: the newest spikes of each."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from otel_straggler.model.observation import Floats
from otel_straggler.score.medians import median_of
from otel_straggler.score.verdicts.findings import Flags

NEWEST = 12
"""Spikes of a rank and quantity that are kept."""
LEAST = 4
"""Fewer say nothing of how often they come."""
APART = 5.0
"""A gap so many times as long as the usual one is the time before the trouble, or after it."""
MOST_LASTING = 0.34
"""Who is slow for more steps in a row is not slow in one of so many; some may fall together."""


@dataclass(frozen=True, slots=True)
class Stalling:
    """Part of the steps in which a rank stalls, 0 to 0.5, and seconds of the median stall."""

    share: float
    each_s: float

    def __str__(self) -> str:
        """
        >>> str(Stalling(share=0.1, each_s=0.98))
        'in about 1 of 10 steps, by 0.98 s each time'
        """
        return f"in about 1 of {1.0 / self.share:.0f} steps, by {self.each_s:.2g} s each time"


class Stalls:
    """Memory of R ranks and C quantities. State: 112 bytes per pair, where there are spikes."""

    def __init__(self, shape: tuple[int, int]) -> None:
        self._at = np.zeros((*shape, NEWEST), np.int32)
        self._lost_s = np.zeros((*shape, NEWEST), np.float32)
        self._lasts = np.zeros((*shape, NEWEST), bool)
        self._count = np.zeros(shape, np.int32)
        self._steps = 0

    def widen(self, quantities: int) -> None:
        """Make room for new sections: columns before the last, without spikes."""
        last = self._count.shape[1] - 1
        at = [last] * (quantities - last - 1)
        self._at = np.insert(self._at, at, 0, axis=1)
        self._lost_s = np.insert(self._lost_s, at, 0.0, axis=1)
        self._lasts = np.insert(self._lasts, at, False, axis=1)
        self._count = np.insert(self._count, at, 0, axis=1)

    def take(self, is_spike: Flags, is_new: Flags, lost_s: Floats) -> None:
        """The next steps: (T, R, C) who is slow, who was not in the step before, and seconds."""
        for spikes, new, seconds in zip(is_spike, is_new, lost_s, strict=True):
            self._steps += 1
            rows, columns = (spikes & ~new).nonzero()
            self._lasts[rows, columns, (self._count[rows, columns] - 1) % NEWEST] = True
            rows, columns = new.nonzero()
            place = (rows, columns, self._count[rows, columns] % NEWEST)
            self._at[place] = self._steps
            self._lost_s[place] = seconds[rows, columns]
            self._lasts[place] = False
            self._count[rows, columns] += 1

    def of(self, row: int, column: int) -> Stalling | None:
        """How a row has been stalling lately; None where too little is known, where stalls last
        longer than a step, and where they have ceased."""
        count = int(self._count[row, column])
        kept = np.arange(max(count - NEWEST, 0), count) % NEWEST
        at = self._at[row, column, kept]
        gaps = np.diff(at)
        longest = APART * median_of(gaps[-(LEAST - 1) :].astype(np.float64))
        if len(at) < LEAST or self._steps - at[-1] > longest:
            return None
        begins = int(np.flatnonzero(np.append(True, gaps > longest))[-1])
        at, kept = at[begins:], kept[begins:]
        if len(at) < LEAST or self._lasts[row, column, kept].mean() > MOST_LASTING:
            return None
        return Stalling(
            share=(len(at) - 1) / float(at[-1] - at[0]),
            each_s=median_of(self._lost_s[row, column, kept]),
        )

"""Since when a subject is slow: the step at which its excess rose, and the time at which it began.

Detection needs many steps after an onset, so the step is searched for backwards: the onset is where
the sum of what lies above the middle of the normal and the present level is largest. Its time is
the begin of that step on the slow rank's own host, by the foremost clock of the ranks: those that
wait for each other begin a step together, so a lasting difference of their begins is one of clocks.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Sequence

import numpy as np

from otel_straggler.detect.scores.medians import median_of, median_of_rows
from otel_straggler.model.observation import Floats, Ints
from otel_straggler.model.step_table import StepTable

APART_BLOCKS, APART_NOISES = 4.0, 4.0
"""Blocks at the normal level that end the search, or so much more noise."""
REMEMBERED_BLOCKS = 80
"""Blocks of which the begins of every rank are kept; of earlier ones their median is."""
EARLIER_BLOCKS = 10_000
COMPARED_EVERY = 10
SAME_CLOCK = 0.5
"""Begins of ranks that wait for each other differ by the same, within this part of a step."""


def onset_of(blocks: Floats, normal: float, error: float) -> int:
    """Index of the first of the (n,) newest blocks of the present rise; 0 if it began before them.

    Args:
        blocks: log excesses, oldest first; NaN where unknown.
        normal: before the rise; error: noise of a block.

    >>> onset_of(np.array([0.0, 0.01, 0.2, 0.0, -0.01, 0.0, 0.01, 0.0, 0.2, 0.19]), 0.0, 0.01)
    8
    """
    known = np.flatnonzero(np.isfinite(blocks))
    if not len(known):
        return 0
    level = median_of(blocks[known[-4:]])
    rise = level - normal
    if not rise > 0.0:
        return 0
    above = np.cumsum((blocks[known] - 0.5 * (normal + level))[::-1])
    highest = np.maximum.accumulate(above)
    maximum = max(0.5 * APART_BLOCKS * rise, APART_NOISES * error**2 / rise)
    ended = np.flatnonzero(highest - above >= maximum)
    searched = above[: ended[0] + 1] if len(ended) else above
    return int(known[len(known) - 1 - int(np.argmax(searched))])


class StepBegins:
    """When the observed steps began. State: 8 bytes x 80 blocks per rank."""

    def __init__(self) -> None:
        self._length = 0
        self._of_ranks: deque[tuple[int, Ints]] = deque(maxlen=REMEMBERED_BLOCKS)
        self._of_all: deque[tuple[int, int]] = deque(maxlen=EARLIER_BLOCKS)
        self._newest_behind_ns: Ints | None = None

    def __len__(self) -> int:
        return self._length

    def add(self, block: StepTable) -> None:
        """The next steps, of all ranks of the world."""
        begin_ns = block.start_ns[0].copy()  # not the whole table with it
        known = begin_ns[begin_ns > 0]
        if len(known):
            self._of_ranks.append((self._length, begin_ns))
            self._of_all.append((self._length, int(median_of(known.astype(np.float64)))))
        self._length += len(block)
        self._newest_behind_ns = None

    def at_ns(self, row: int, index: int) -> int:
        """Begin of the observed step ``index`` on a rank, by the foremost clock; 0 if unknown."""
        known = [(at, begins) for at, begins in self._of_ranks if begins[row] > 0]
        if not known:
            return 0
        own = [(at, int(begins[row])) for at, begins in known]
        if index < own[0][0]:
            late_ns = own[0][1] - _between(self._of_all, own[0][0])
            return _between(self._of_all, index) + late_ns + int(self._behind_ns[row])
        return _between(own, index) + int(self._behind_ns[row])

    @property
    def _behind_ns(self) -> Ints:
        """(R,) how far a rank's clock is behind the foremost; 0 of ranks that do not begin steps
        together. Cost: O(8 R), once a block."""
        if self._newest_behind_ns is None:
            begins = np.array([of for _, of in list(self._of_ranks)[::-COMPARED_EVERY]], np.float64)
            begins[begins <= 0.0] = np.nan
            apart = begins - median_of_rows(np.ascontiguousarray(begins.T))[:, None]
            spread = np.fmax.reduce(apart, axis=0) - np.fmin.reduce(apart, axis=0)
            together = spread <= SAME_CLOCK * self._step_ns()
            offset = np.where(together, median_of_rows(apart), np.nan)
            behind = np.fmax.reduce(offset, initial=-np.inf) - offset
            self._newest_behind_ns = np.nan_to_num(behind).astype(np.int64)
        return self._newest_behind_ns

    def _step_ns(self) -> float:
        (first, begin_ns), (last, end_ns) = self._of_all[0], self._of_all[-1]
        return (end_ns - begin_ns) / (last - first) if last > first else 0.0


def _between(begins: Sequence[tuple[int, int]], index: int) -> int:
    """Time of a step between those of known steps, or beyond them."""
    steps = [at for at, _ in begins]
    at = min(max(bisect_right(steps, index), 1), len(steps) - 1)
    if at < 1:
        return begins[0][1]
    (before, begin_ns), (after, end_ns) = begins[at - 1], begins[at]
    return begin_ns + round((index - before) * (end_ns - begin_ns) / (after - before))

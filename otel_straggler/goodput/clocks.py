"""Clocks of hosts that differ, put right by the ends of steps.

Ranks that wait for each other end a step together, so the usual difference of their ends is that of
their clocks, as :mod:`.scalability.arrivals` has it of collectives. A clock that is set while a run
goes on makes one step of one rank much longer than that of the others, or of negative length.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

import numpy as np

from otel_straggler.model.observation import (
    NO_KERNEL,
    NO_STEP,
    Bools,
    Floats,
    Ints,
    ObservationBatch,
)

MIN_APART_S: Final = 1.0
"""Clocks that differ by less, or by fewer than ``MIN_APART_STEPS`` steps, need no correction."""
MIN_APART_STEPS: Final = 3.0
MEET: Final = 0.5
"""Ranks wait for each other if their ends, clocks corrected, differ by less of a step."""
_MIN_STEPS: Final = 3
_MAX_NOTES: Final = 4


def on_one_clock(batch: ObservationBatch) -> tuple[ObservationBatch, list[str]]:
    """Rows of any runs with their starts by one clock for each run, group and attempt, and what
    was corrected, or cannot be, for people. Cost: O(n log n) where there are steps."""
    shift_ns = np.zeros(len(batch), np.int64)
    notes: list[str] = []
    for codes in _worlds(batch):
        in_world = np.isin(batch.source, codes) & (batch.kernel == NO_KERNEL)
        rows = np.flatnonzero(in_world)
        ends = _Ends.of(batch, rows, codes)
        if ends is None:
            notes += _unknown(batch, rows, codes)
            continue
        rank_of = [batch.sources[code].rank for code in codes.tolist()]
        clocks_s, jumps_s = ends.clocks_s()
        if not clocks_s.any() and not jumps_s.any():
            continue
        notes += _texts(rank_of, clocks_s, jumps_s, ends.steps)
        shift_ns[rows] = np.rint(ends.of_rows(batch, rows, clocks_s + jumps_s) * 1e9)
    if not shift_ns.any():
        return batch, notes
    return replace(batch, start_ns=batch.start_ns - shift_ns), notes


def _worlds(batch: ObservationBatch) -> Iterator[Ints]:
    """Codes of the sources of each run, group and attempt, ordered by rank."""
    worlds: dict[tuple[str, str, int], list[int]] = {}
    for code in np.unique(batch.source).tolist():
        source = batch.sources[code]
        worlds.setdefault((source.run_id, source.group, source.attempt), []).append(code)
    for codes in worlds.values():
        yield np.array(sorted(codes, key=lambda code: batch.sources[code].rank), np.int64)


class _Ends:
    """When each rank ended each step: (T, R) seconds by its own clock, NaN where it has none."""

    def __init__(self, steps: Ints, codes: Ints, ends_s: Floats, begin_ns: int) -> None:
        self.steps = steps
        self._codes = codes
        self._ends_s = ends_s
        self._begin_ns = begin_ns

    @classmethod
    def of(cls, batch: ObservationBatch, rows: Ints, codes: Ints) -> _Ends | None:
        """None if ranks have too few steps in common."""
        rows = rows[batch.step[rows] != NO_STEP]
        if len(codes) < 2 or not len(rows):
            return None
        steps, at = np.unique(batch.step[rows], return_inverse=True)
        row_of = np.zeros(len(batch.sources), np.int64)
        row_of[codes] = np.arange(len(codes))
        begin_ns = int(batch.start_ns[rows].min())
        ends_s = (batch.start_ns[rows] - begin_ns) * 1e-9 + batch.duration_s[rows]
        last_s = np.full((len(steps), len(codes)), -np.inf)
        np.maximum.at(last_s, (at.reshape(-1), row_of[batch.source[rows]]), ends_s)
        last_s[np.isinf(last_s)] = np.nan
        is_common: Bools = np.isfinite(last_s).sum(axis=1) > 1
        if is_common.sum() < _MIN_STEPS:
            return None
        return cls(steps[is_common], codes, last_s[is_common], begin_ns)

    def clocks_s(self) -> tuple[Floats, Floats]:
        """(R,) what each clock is ahead of the reference, and (T, R) of what it was set since the
        first step; 0 where that is little, or where ranks do not wait for each other."""
        lasted_s = np.diff(self._ends_s, axis=0)
        usual_s = float(np.nanmedian(np.where(lasted_s > 0.0, lasted_s, np.nan)))
        min_s = max(MIN_APART_S, MIN_APART_STEPS * usual_s)
        apart = np.where(np.isfinite(lasted_s), np.abs(lasted_s - usual_s), np.inf)
        typical_s = np.take_along_axis(lasted_s, apart.argmin(axis=1)[:, None], axis=1)
        with np.errstate(invalid="ignore"):
            more_s = lasted_s - typical_s
            set_s = np.where(np.abs(more_s) > min_s, more_s, 0.0)
        jumps_s = np.vstack([np.zeros(self._ends_s.shape[1]), np.cumsum(set_s, axis=0)])
        ends_s = self._ends_s - jumps_s
        clocks_s = np.nanmedian(ends_s - _middle(ends_s), axis=0)
        clocks_s -= np.sort(clocks_s)[(len(clocks_s) - 1) // 2]
        left_s = ends_s - clocks_s
        meet_s = np.nanmedian(np.abs(left_s - _middle(left_s)), axis=0)
        meets = meet_s <= MEET * usual_s
        clocks_s = np.where((np.abs(clocks_s) > min_s) & meets, clocks_s, 0.0)
        return clocks_s, np.where(meets, jumps_s, 0.0)

    def of_rows(self, batch: ObservationBatch, rows: Ints, ahead_s: Floats) -> Floats:
        """(n,) what (T, R) of the rows' steps is; of rows without a step, of that nearest to them
        by the rank's own clock."""
        result = np.zeros(len(rows))
        step, start_s = batch.step[rows], (batch.start_ns[rows] - self._begin_ns) * 1e-9
        for column, code in enumerate(self._codes.tolist()):
            if not ahead_s[:, column].any():
                continue
            own = np.flatnonzero(batch.source[rows] == code)
            at = np.minimum(np.searchsorted(self.steps, step[own]), len(self.steps) - 1)
            is_free = step[own] == NO_STEP
            if is_free.any():
                ends_s = np.nan_to_num(self._ends_s[:, column], nan=np.inf)
                apart_s = np.abs(start_s[own[is_free], None] - ends_s[None])
                at[is_free] = apart_s.argmin(axis=1)
            result[own] = ahead_s[at, column]
        return result


def _middle(values: Floats) -> Floats:
    """(T, 1) the lower median over the ranks, a value of one of them."""
    ordered = np.sort(values, axis=1)  # NaN stand last
    at = np.maximum(np.isfinite(values).sum(axis=1) - 1, 0) // 2
    return np.asarray(np.take_along_axis(ordered, at[:, None], axis=1))


def _unknown(batch: ObservationBatch, rows: Ints, codes: Ints) -> list[str]:
    """What is said of ranks without steps in common whose times lie apart."""
    starts_ns = batch.start_ns[rows]
    own = [starts_ns[batch.source[rows] == code] for code in codes.tolist()]
    own = [of for of in own if len(of)]
    if len(own) < 2:
        return []
    apart_s = (max(int(of.min()) for of in own) - min(int(of.max()) for of in own)) * 1e-9
    if apart_s <= MIN_APART_S:
        return []
    text = f"{len(own):,} ranks have too few steps in common to compare the clocks of their hosts"
    return [f"{text}; their times lie {apart_s:,.0f} s apart, and sums may be wrong by that"]


def _texts(ranks: list[int], clocks_s: Floats, jumps_s: Floats, steps: Ints) -> Iterator[str]:
    """
    >>> [*_texts([0, 1], np.array([0.0, 3600.0]), np.zeros((2, 2)), np.arange(2))]
    ["the clock of rank 1 is 3,600 s ahead of the others': corrected by the ends of steps"]
    """
    texts = []
    for column, rank in enumerate(ranks):
        if clocks_s[column]:
            how = "ahead of" if clocks_s[column] > 0.0 else "behind"
            texts.append(f"of rank {rank} is {abs(clocks_s[column]):,.0f} s {how} the others'")
        for at in np.flatnonzero(np.diff(jumps_s[:, column])).tolist():
            set_s = float(jumps_s[at + 1, column] - jumps_s[at, column])
            how = "forward" if set_s > 0.0 else "back"
            at_step = f"at step {steps[at + 1]:,}"
            texts.append(f"of rank {rank} was set {how} by {abs(set_s):,.0f} s {at_step}")
    for text in texts[:_MAX_NOTES]:
        yield f"the clock {text}: corrected by the ends of steps"
    if len(texts) > _MAX_NOTES:
        yield f"and {len(texts) - _MAX_NOTES:,} more differences between clocks"

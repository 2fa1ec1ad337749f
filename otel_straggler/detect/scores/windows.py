"""Which steps are scored together, and when a window can be closed.

A step belongs to the window that was open when the first of its rows was seen, on any rank; so
ranks that run ahead or lag cannot split a step. A window takes a number of steps, or fewer if they
are long by the ranks' clocks, so a file and a live run have the same windows. Times without a step
belong to the interval they start in, one interval a window.

A window also closes when for some time rows have come for later ones only: one far step among its
own, which no rank passes, does not keep it open.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from otel_straggler.detect.scores.medians import number_densely
from otel_straggler.model.observation import NO_STEP, Codes, Ints, ObservationBatch
from otel_straggler.model.rank import Source

REMEMBERED_CLOSED_WINDOWS = 256
MIN_STEPS = 5
"""Of a window, however long they are: a median of fewer says little."""


@dataclass(slots=True)
class OpenWindow:
    """A window that takes rows; ``began_ns`` by the rank's clock, ``opened_at_ns`` and
    ``last_row_at_ns`` on arrival."""

    number: int
    began_ns: int
    opened_at_ns: int
    steps: list[int] = field(default_factory=list)
    last_step: int = NO_STEP
    passed_at_ns: int | None = None
    last_row_at_ns: int = 0
    n_rows: int = 0
    rows: list[ObservationBatch] = field(default_factory=list)

    def add(self, rows: ObservationBatch, now_ns: int) -> None:
        self.rows.append(rows)
        self.n_rows += len(rows)
        self.last_row_at_ns = max(self.last_row_at_ns, now_ns)


class WindowTrack:
    """One division of a stream into windows, in the order in which they were opened.

    Args:
        newest: progress by rank; tracks that count the same may share it.
        steps_per_window: None puts all steps into one.
        longest_s: after so long a window with :data:`MIN_STEPS` takes no further steps.
        interval_s: length of an interval that stands for a step; 0: by steps.
    """

    def __init__(
        self,
        newest: dict[int, int],
        steps_per_window: int | None = 1,
        longest_s: float = math.inf,
        interval_s: float = 0.0,
    ) -> None:
        self.newest = newest
        self.interval_ns = int(interval_s * 1e9)
        self._steps_per_window = steps_per_window
        self._longest_s = longest_s
        self._window_of_step: dict[int, int] = {}
        self._closed_steps: list[list[int]] = []
        self._oldest_known_step: int | None = None
        self._opened = 0
        self.open: dict[int, OpenWindow] = {}
        self.n_closed = 0

    def number_of(self, step: int, start_ns: int, now_ns: int) -> int:
        """Number of the step's window, opened if it is new; -1 if it is closed (late rows).
        ``start_ns`` is that of any section of the step."""
        number = self._window_of_step.get(step)
        if number is not None:
            return number if number in self.open else -1
        if self._oldest_known_step is not None and step < self._oldest_known_step:
            return -1
        window = self._newest_with_room(start_ns)
        if window is None:
            number = self._opened
            window = self.open[number] = OpenWindow(number, start_ns, now_ns, last_row_at_ns=now_ns)
            self._opened += 1
        window.steps.append(step)
        window.last_step = max(window.last_step, step)
        self._window_of_step[step] = window.number
        return window.number

    def close(self, number: int) -> OpenWindow:
        """Remove the window; later rows of its steps are late."""
        self.n_closed += 1
        window = self.open.pop(number)
        self._closed_steps.append(window.steps)
        if len(self._closed_steps) > REMEMBERED_CLOSED_WINDOWS:
            for step in self._closed_steps.pop(0):
                del self._window_of_step[step]
            self._oldest_known_step = min(self._window_of_step, default=None)
        return window

    def is_newest(self, window: OpenWindow) -> bool:
        """Whether no later window has been opened."""
        return window.number == self._opened - 1

    def _newest_with_room(self, start_ns: int) -> OpenWindow | None:
        newest = self.open.get(self._opened - 1)
        if newest is None or self._steps_per_window is None:
            return newest
        is_long = start_ns - newest.began_ns >= self._longest_s * 1e9
        maximum = min(MIN_STEPS, self._steps_per_window) if is_long else self._steps_per_window
        return newest if len(newest.steps) < maximum else None

    def advance(self, newest: Mapping[int, int], now_ns: int) -> None:
        """Record the progress of ranks, and which windows somebody has passed."""
        for rank, step in newest.items():
            if step > self.newest.get(rank, NO_STEP):
                self.newest[rank] = step
        furthest = max(newest.values(), default=NO_STEP)
        for window in self.open.values():
            if window.passed_at_ns is None and furthest > window.last_step:
                window.passed_at_ns = now_ns

    def close_all(self) -> Iterator[OpenWindow]:
        for number in sorted(self.open):
            yield self.close(number)


WindowIndex = tuple[int, int]
"""Numbers of a step's window of scores and block of verdicts; -1 if closed."""


def newest_by_rank(sources: tuple[Source, ...], source: Codes, steps: Ints) -> dict[int, int]:
    """The newest step of each rank that has one."""
    newest = np.full(len(sources), NO_STEP, np.int64)
    np.maximum.at(newest, source, steps)
    result: dict[int, int] = {}
    for code in np.flatnonzero(newest > NO_STEP).tolist():
        rank = sources[code].rank
        result[rank] = max(int(newest[code]), result.get(rank, NO_STEP))
    return result


@dataclass(frozen=True, slots=True)
class Split:
    """Distinct steps in the order of their first rows, those rows, and each row's step."""

    steps: list[int]
    first_rows: Ints
    step_of_row: Ints

    @classmethod
    def of(cls, steps: Ints) -> Split:
        distinct, position = number_densely(steps)
        if len(distinct) == 1:
            return cls(distinct.tolist(), np.zeros(1, np.int64), position)
        first_seen = np.empty(len(distinct), np.int64)
        first_seen[position[::-1]] = np.arange(len(steps) - 1, -1, -1)  # the first is written last
        order = np.argsort(first_seen)
        number = np.empty(len(order), np.int64)
        number[order] = np.arange(len(order))
        return cls(distinct[order].tolist(), first_seen[order], number[position])

    def by_index(
        self, indices: list[WindowIndex]
    ) -> tuple[Ints | None, list[tuple[WindowIndex, slice]]]:
        """An order that groups rows by index, and the slices of it; None if they are grouped."""
        distinct = {index: number for number, index in enumerate(dict.fromkeys(indices))}
        if len(distinct) == 1:
            return None, [(indices[0], slice(None))]
        number_of_step = np.array([distinct[index] for index in indices], np.int64)
        number = number_of_step[self.step_of_row]
        order = None
        if (number[1:] < number[:-1]).any():
            order = np.argsort(number, kind="stable")
        ends = np.bincount(number, minlength=len(distinct)).cumsum().tolist()
        pieces = map(slice, [0, *ends], ends)
        return order, list(zip(distinct, pieces, strict=False))


def are_in_order(windows: Sequence[OpenWindow]) -> bool:
    """Whether each window's steps all lie behind those of the one before."""
    pairs = itertools.pairwise(windows)
    return all(earlier.last_step < min(later.steps) for earlier, later in pairs)


def split_incarnations(rows: ObservationBatch) -> Iterator[ObservationBatch]:
    """Rows of every incarnation, oldest first: a session that repeats a step begins one."""
    incarnation = _incarnations(rows)
    for number in range(int(incarnation.max(initial=0)) + 1):
        of_rows = incarnation[rows.source] == number
        if of_rows.any():
            yield rows if of_rows.all() else rows.take(of_rows)


def _incarnations(rows: ObservationBatch) -> Ints:
    """By source code."""
    n_sources = len(rows.sources)
    begun_ns = np.full(n_sources, np.iinfo(np.int64).max)
    np.minimum.at(begun_ns, rows.source, rows.start_ns)
    first = np.full(n_sources, np.iinfo(np.int64).max)
    np.minimum.at(first, rows.source, rows.step)
    last = np.full(n_sources, NO_STEP, np.int64)
    np.maximum.at(last, rows.source, rows.step)
    incarnation = np.zeros(n_sources, np.int64)
    newest = 0
    done: dict[int, int] = {}
    for code in np.lexsort((np.arange(n_sources), begun_ns)).tolist():
        rank = rows.sources[code].rank
        if NO_STEP < first[code] <= done.get(rank, NO_STEP):
            newest += 1
            done.clear()
        incarnation[code] = newest
        done[rank] = max(int(last[code]), done.get(rank, NO_STEP))
    return incarnation


def split_steps(
    rows: ObservationBatch, steps_at_once: int, interval_ns: int
) -> Iterator[ObservationBatch]:
    """Rows of every ``steps_at_once`` distinct steps or intervals, ascending."""
    steps = rows.start_ns // interval_ns if interval_ns else rows.step
    _, number = number_densely(steps)
    block = number // steps_at_once
    order = np.argsort(block, kind="stable")
    ends = np.cumsum(np.bincount(block)).tolist()
    for begin, end in itertools.pairwise([0, *ends]):
        yield rows.take(order[begin:end])

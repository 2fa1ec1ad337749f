"""Kernel histograms, until the windows that they belong to are scored.

Ranks report counts at intervals of their own (10 s). An interval belongs to every window that it
overlaps on its rank's clock. If none does, because windows are shorter or close earlier, or because
kernels are timed in one step of many, the newest one before the window stands in: for up to a
minute, or so many steps that a sampled one must have come. What only some ranks have reported so
far is left for the next window: ranks are compared over the same time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np

from otel_straggler.detect.scores.kernels import KernelMedians, KernelsOfWindow
from otel_straggler.detect.scores.settings import KEPT, OVER_LIMIT, REPEATED
from otel_straggler.model.kernels import KernelCell, KernelTimes, join_kernel_times
from otel_straggler.model.observation import Bools, Codes, Ints, Kernel
from otel_straggler.model.rank import Source

STANDS_IN_S = 60.0
"""Maximum age of an interval that stands in for one within the window, ..."""
STANDS_IN_STEPS = 250
"""... or so many steps: kernels are timed in one step of 200 at least."""
_LONGEST_S = 120.0
_MAX_CELLS = 65_536
_CELL_BYTES = 400

_Process: TypeAlias = tuple[int, str, str]
_Key: TypeAlias = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Interval:
    """Report of one process for one interval, or a part of it.

    Attributes:
        number: unique in its world.
        start_ns, end_ns: on the sender's clock.
        times: its points; cells are codes of the world.
    """

    number: int
    start_ns: int
    end_ns: int
    times: KernelTimes


class KernelHistograms:
    """Of the ranks of one run, group, and attempt. ``counts`` is shared: points by outcome."""

    def __init__(self, max_kernels: int, counts: Counter[str]) -> None:
        self._max_kernels = max_kernels
        self._counts = counts
        self.clear()

    def clear(self) -> None:
        self._codes: dict[KernelCell, int] = {}
        self._kernels: set[str] = set()
        self._intervals: dict[_Process, list[Interval]] = {}
        self._longest_ns = 0
        self._n_intervals = 0
        self._scored: tuple[_Key, KernelsOfWindow | None] | None = None
        self.nbytes = 0

    def add(self, source: Source, points: KernelTimes) -> None:
        """Keep points of one source and interval, without repeated ones."""
        codes = np.array([self._code(cell) for cell in points.cells], np.int32)
        cell = codes[points.cell]
        known = self._intervals.setdefault(_process_of(source), [])
        is_over = cell < 0
        is_repeated = ~is_over & _is_known(known, points, cell)
        is_new = ~(is_over | is_repeated)
        self._counts[OVER_LIMIT] += int(is_over.sum())
        self._counts[REPEATED] += int(is_repeated.sum())
        self._counts[KEPT] += int(is_new.sum())
        if is_new.any():
            points = replace(points, cell=cell)
            self._keep(known, points if is_new.all() else points.take(is_new))

    def of_window(
        self, sources: Sequence[Source], first_ns: Ints, last_ns: Ints, n_steps: int = 0
    ) -> KernelsOfWindow | None:
        """Medians of histograms that belong to a window of ranks, each with (ranks,) first and last
        time on its own clock; None if there are none. Drops what is too old for later windows.

        Args:
            n_steps: in the window; 0: it has none.
        """
        chosen = self.intervals_of_window(sources, first_ns, last_ns, n_steps)
        key = tuple((line, interval.number) for line, interval in chosen)
        if self._scored is None or self._scored[0] != key:  # short windows share intervals
            self._scored = key, self._medians_of(sources, chosen)
        return self._scored[1]

    def intervals_of_window(
        self, sources: Sequence[Source], first_ns: Ints, last_ns: Ints, n_steps: int = 0
    ) -> list[tuple[int, Interval]]:
        """The intervals that belong to a window, each with the index of its rank."""
        held = [self._intervals.get(_process_of(source), []) for source in sources]
        max_age_ns = int(STANDS_IN_S * 1e9)
        if n_steps:
            step_ns = int((last_ns - first_ns).max(initial=0)) // n_steps
            max_age_ns = max(max_age_ns, STANDS_IN_STEPS * step_ns)
        until_ns = _reported_by_all(held, self._longest_ns)
        chosen: list[tuple[int, Interval]] = []
        for line, (intervals, first, last) in enumerate(
            zip(held, first_ns.tolist(), last_ns.tolist(), strict=True)
        ):
            oldest_ns = first - max_age_ns
            chosen += [
                (line, each) for each in _belonging(intervals, first, last, until_ns, oldest_ns)
            ]
            limit_ns = first - int(STANDS_IN_S * 1e9) - 2 * self._longest_ns
            if intervals and intervals[0].end_ns < limit_ns:
                limit_ns = min(limit_ns, _newest_ends(intervals)[0])
                self._drop(intervals, [i for i in intervals if i.end_ns < limit_ns])
        return chosen

    def drop_older_half(self) -> None:
        """Drop half of the intervals, so that this is rare; without intervals all names."""
        ends = sorted(i.end_ns for held in self._intervals.values() for i in held)
        if not ends:
            self.clear()
            return
        limit_ns = ends[len(ends) // 2]
        for held in self._intervals.values():
            dropped = [i for i in held if i.end_ns <= limit_ns]
            points = sum(len(i.times) for i in dropped)
            self._counts[KEPT] -= points
            self._counts[OVER_LIMIT] += points
            self._drop(held, dropped)

    def state(self) -> dict[str, Any]:
        """For a restart: JSON types and NumPy arrays."""
        parts, intervals = [], []
        for code, held in enumerate(self._intervals.values()):
            for interval in held:
                source = np.full(len(interval.times), code, np.int32)
                parts.append(replace(interval.times, source=source))
                intervals.append([code, len(interval.times)])
        return {
            "cells": [[c.section, c.kernel.name, c.kernel.kernel_class] for c in self._codes],
            "processes": [list(process) for process in self._intervals],
            "intervals": intervals,
            "columns": join_kernel_times(parts).columns() if parts else {},
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from :meth:`state`, before the first report; without what it holds if fewer kernels
        are kept now.

        Raises:
            ValueError, KeyError, TypeError, IndexError: it is none.
        """
        for section, name, kernel_class in state["cells"]:
            self._code(KernelCell(section, Kernel(name, kernel_class)))
        if len(self._codes) < len(state["cells"]):
            self.clear()
            return
        held = [
            self._intervals.setdefault((rank, session_id, node), [])
            for rank, session_id, node in state["processes"]
        ]
        first = 0
        for code, length in state["intervals"]:
            times = KernelTimes(sources=(), cells=(), **state["columns"])
            self._keep(held[code], times.take(np.arange(first, first + length)))
            first += length

    def _code(self, cell: KernelCell) -> int:
        """-1 where there is no room for another name."""
        known = self._codes.get(cell)
        if known is not None:
            return known
        name = cell.kernel.name
        has_room = name in self._kernels or len(self._kernels) < self._max_kernels
        if not has_room or len(self._codes) >= _MAX_CELLS:
            return -1
        self.nbytes += _CELL_BYTES + len(name) + len(cell.section)
        self._kernels.add(name)
        return self._codes.setdefault(cell, len(self._codes))

    def _keep(self, known: list[Interval], times: KernelTimes) -> None:
        kept = replace(times, sources=(), cells=())
        end_ns = int(kept.end_ns[0])
        start_ns = int(kept.start_ns[0]) or end_ns
        self._n_intervals += 1
        known.append(Interval(self._n_intervals, start_ns, end_ns, kept))
        self._longest_ns = max(self._longest_ns, min(end_ns - start_ns, int(_LONGEST_S * 1e9)))
        self.nbytes += kept.nbytes

    def _drop(self, held: list[Interval], dropped: list[Interval]) -> None:
        if dropped:
            self.nbytes -= sum(i.times.nbytes for i in dropped)
            ids = {id(i) for i in dropped}
            held[:] = [i for i in held if id(i) not in ids]

    def _medians_of(
        self, sources: Sequence[Source], chosen: Sequence[tuple[int, Interval]]
    ) -> KernelsOfWindow | None:
        if not chosen:
            return None
        parts = [
            replace(each.times, source=np.full(len(each.times), line, np.int32))
            for line, each in chosen
        ]
        times = join_kernel_times(parts)
        times = replace(times, sources=tuple(sources), cells=tuple(self._codes))
        newest_ns = max(each.end_ns for _, each in chosen)
        return KernelsOfWindow(KernelMedians(times), newest_ns)


def by_interval(times: KernelTimes) -> Iterator[tuple[Source, KernelTimes]]:
    """Points by source and interval: nearly always a request is one of each."""
    keys = np.stack([times.source.astype(np.int64), times.start_ns, times.end_ns])
    if len(times) == 0 or (keys == keys[:, :1]).all():
        if len(times):
            yield times.sources[int(times.source[0])], times
        return
    distinct, number = np.unique(keys, axis=1, return_inverse=True)
    for each in range(distinct.shape[1]):
        yield times.sources[int(distinct[0, each])], times.take(number.ravel() == each)


def _is_known(known: list[Interval], part: KernelTimes, cell: Codes) -> Bools:
    """Which points of an interval are repeated."""
    start_ns, end_ns = int(part.start_ns[0]) or int(part.end_ns[0]), int(part.end_ns[0])
    again = np.zeros(len(cell), bool)
    for interval in known:
        if (interval.start_ns, interval.end_ns) == (start_ns, end_ns):
            again |= np.isin(cell, interval.times.cell)
    return again


def _reported_by_all(held: Sequence[list[Interval]], longest_ns: int) -> int:
    """Until when all reporting ranks have reported; a clock may be off by half an interval. A rank
    without the last but one of those that are ahead has fallen silent."""
    newest = [_newest_ends(intervals) for intervals in held if intervals]
    if not newest:
        return 0
    before, ahead = max(newest, key=lambda ends: ends[-1])[0], max(ends[-1] for ends in newest)
    minimum = min(ahead - longest_ns, before) - longest_ns // 2
    return min(ends[-1] for ends in newest if ends[-1] >= minimum) + longest_ns // 2


def _newest_ends(intervals: list[Interval]) -> list[int]:
    """Of the newest two, the older one first; or of the only one."""
    return sorted({i.end_ns for i in intervals})[-2:]


def _belonging(
    intervals: list[Interval], first_ns: int, last_ns: int, until_ns: int, oldest_ns: int
) -> list[Interval]:
    """Those that overlap the window; else the newest before it, in all its parts."""
    reported = [i for i in intervals if i.end_ns <= until_ns and i.start_ns <= last_ns]
    inside = [i for i in reported if i.end_ns > first_ns]
    if inside or not reported:
        return inside
    newest = max(i.end_ns for i in reported)
    return [i for i in reported if i.end_ns == newest] if newest >= oldest_ns else []


def _process_of(source: Source) -> _Process:
    return (source.rank, *source.session)

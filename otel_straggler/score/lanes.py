"""Ways to divide the rows of a stream into windows, and who has passed them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from otel_straggler.model.observation import NO_STEP, Codes, Ints
from otel_straggler.model.rank import Source
from otel_straggler.score.medians import number_densely
from otel_straggler.score.windows import OpenWindow, Windows

Place = tuple[int, int]
"""Where a step belongs: number of its window in layer 1 and in layer 2; -1 if that is closed."""


class Lane:
    """One way to divide rows into windows: by steps, or by intervals of time.

    Attributes:
        windows: those that are open.
        interval_ns: length of an interval; 0: by steps.
        newest: by rank, how far it has come; lanes that count the same may share it.
    """

    def __init__(self, windows: Windows, newest: dict[int, int], interval_s: float = 0.0) -> None:
        self.windows = windows
        self.newest = newest
        self.interval_ns = int(interval_s * 1e9)

    def advance(self, newest: Mapping[int, int], now_ns: int) -> None:
        """Ranks have come so far: note it, and which windows somebody has passed."""
        for rank, step in newest.items():
            if step > self.newest.get(rank, NO_STEP):
                self.newest[rank] = step
        furthest = max(newest.values(), default=NO_STEP)
        for window in self.windows.open.values():
            if window.passed_at_ns is None and furthest > window.last_step:
                window.passed_at_ns = now_ns

    def close_all(self) -> Iterator[OpenWindow]:
        """Every open window, oldest first."""
        for number in sorted(self.windows.open):
            yield self.windows.close(number)


def newest_by_rank(sources: tuple[Source, ...], source: Codes, steps: Ints) -> dict[int, int]:
    """How far the ranks of some rows have come; ranks without a step are left out."""
    newest = np.full(len(sources), NO_STEP, np.int64)
    np.maximum.at(newest, source, steps)
    found: dict[int, int] = {}
    for code in np.flatnonzero(newest > NO_STEP).tolist():
        rank = sources[code].rank
        found[rank] = max(int(newest[code]), found.get(rank, NO_STEP))
    return found


@dataclass(frozen=True, slots=True)
class Split:
    """Steps of some rows: the distinct ones, in the order in which they were seen first, with the
    first row of each, and for every row the number of its step among them."""

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

    def by_place(self, places: list[Place]) -> tuple[Ints | None, list[tuple[Place, slice]]]:
        """An order of the rows in which those whose step has the same place stand together, and
        where they stand in it. None: they do so already.

        Cost: O(n), more by a sort if they do not.
        """
        distinct = {place: number for number, place in enumerate(dict.fromkeys(places))}
        if len(distinct) == 1:
            return None, [(places[0], slice(None))]
        number_of_step = np.array([distinct[place] for place in places], np.int64)
        number = number_of_step[self.step_of_row]
        order = None
        if (number[1:] < number[:-1]).any():
            order = np.argsort(number, kind="stable")
        ends = np.bincount(number, minlength=len(distinct)).cumsum().tolist()
        pieces = map(slice, [0, *ends], ends)
        return order, list(zip(distinct, pieces, strict=False))

"""The newest windows of every run and group, as bytes: what the timeline of the live page shows.

The scoring thread puts a window in when it closes; pages read from any thread. All runs together
stay within a budget; the run that takes most gives its oldest windows up first.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from otel_straggler.model.scores import WindowScores
from otel_straggler.publish.picture import Column, RankTable, TimelineEnds, column_of

MOST_COLUMNS: Final = 360
"""Windows of one run and group; at 20 steps of a second each, two hours."""
FIRST_SEQ: Final = MOST_COLUMNS + 1
"""Of the first window that closes in this process. Those of before, from the history, have the
numbers below it, so that it does not matter when they are read."""
_Key = tuple[str, str]


@dataclass(slots=True)
class _Ring:
    """The columns of one run and group, oldest first."""

    columns: list[Column] = field(default_factory=list)
    next_seq: int = FIRST_SEQ
    size: int = 0

    def add(self, column: Column) -> None:
        self.columns.append(column)
        self.size += column.size
        self.next_seq = max(self.next_seq, column.seq + 1)
        while len(self.columns) > MOST_COLUMNS:
            self.drop_oldest()

    def drop_oldest(self) -> None:
        self.size -= self.columns.pop(0).size

    @property
    def is_by_step(self) -> bool:
        return bool(self.columns) and self.columns[-1].first_step is not None

    @property
    def attempt(self) -> int:
        return self.columns[-1].attempt if self.columns else 0


class Recent:
    """See above.

    Args:
        budget_bytes: for the columns of all runs.
    """

    def __init__(self, budget_bytes: int) -> None:
        self._budget = budget_bytes
        self._rings: dict[_Key, _Ring] = {}
        self._lock = threading.Lock()

    def take(self, window: WindowScores) -> None:
        """A closed window. Cost: O(ranks * sections * log ranks)."""
        if len(window.sources) == 0:
            return
        column = column_of(RankTable.of_window(window), 0, window.attempt)
        key = window.run_id, window.group
        with self._lock:
            ring = self._rings.setdefault(key, _Ring())
            if _is_outdated(ring, column):
                return
            if column.first_step is not None and not ring.is_by_step:
                _drop_all(ring)  # windows by time overlap those by step
            ring.add(_sharing(replace(column, seq=ring.next_seq), ring))
            self._keep_budget()

    def put_before(self, run_id: str, group: str, columns: Sequence[Column]) -> None:
        """Older windows, of the history, oldest first; they get the numbers before the first of
        this process."""
        with self._lock:
            ring = self._rings.setdefault((run_id, group), _Ring())
            room = MOST_COLUMNS - len(ring.columns)
            kept = list(columns)[-room:] if room > 0 else []
            if ring.is_by_step:
                kept = [column for column in kept if column.first_step is not None]
            older = _Ring()
            for place, column in enumerate(kept):
                older.add(_sharing(replace(column, seq=FIRST_SEQ - len(kept) + place), older))
            older.columns += ring.columns
            older.size += ring.size
            older.next_seq = ring.next_seq
            self._rings[run_id, group] = older
            self._keep_budget()

    def columns(self, run_id: str, group: str, after: int = -1) -> list[Column]:
        """Those with a number above ``after``, oldest first; empty if there are none."""
        with self._lock:
            ring = self._rings.get((run_id, group))
            return [] if ring is None else [c for c in ring.columns if c.seq > after]

    def ends(self, run_id: str, group: str) -> TimelineEnds:
        """Which columns there are."""
        with self._lock:
            ring = self._rings.get((run_id, group))
            if ring is None or not ring.columns:
                return TimelineEnds()
            first, last = ring.columns[0].seq, ring.columns[-1].seq
            return TimelineEnds(first=first, last=last, n_columns=len(ring.columns))

    def newest_seq(self, run_id: str) -> int | None:
        """The highest number of any group of the run; None if it has no window."""
        with self._lock:
            rings = [ring for (run, _), ring in self._rings.items() if run == run_id]
            return max((ring.columns[-1].seq for ring in rings if ring.columns), default=None)

    def forget(self, run_ids: Iterable[str]) -> None:
        gone = set(run_ids)
        with self._lock:
            for key in [key for key in self._rings if key[0] in gone]:
                del self._rings[key]

    def forget_group(self, run_id: str, group: str) -> None:
        with self._lock:
            self._rings.pop((run_id, group), None)

    @property
    def size(self) -> int:
        """Bytes of all columns."""
        with self._lock:
            return sum(ring.size for ring in self._rings.values())

    def _keep_budget(self) -> None:
        """Its newest window stays, however large it is."""
        total = sum(ring.size for ring in self._rings.values())
        while total > self._budget:
            largest = max(self._rings.values(), key=lambda ring: ring.size)
            if len(largest.columns) < 2:
                return
            total -= largest.columns[0].size
            largest.drop_oldest()


def _is_outdated(ring: _Ring, column: Column) -> bool:
    """Of an attempt that is over, or by time where others are by step."""
    is_older = bool(ring.columns) and column.attempt < ring.attempt
    return is_older or (column.first_step is None and ring.is_by_step)


def _drop_all(ring: _Ring) -> None:
    ring.columns.clear()
    ring.size = 0


def _sharing(column: Column, ring: _Ring) -> Column:
    """With the tables of names of the column before, where they are the same."""
    if not ring.columns:
        return column
    last = ring.columns[-1]
    if np.array_equal(last.ranks, column.ranks):
        column = replace(column, ranks=last.ranks)
    if last.sections == column.sections:
        column = replace(column, sections=last.sections)
    return column

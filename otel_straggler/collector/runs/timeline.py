"""The newest windows of one world, for the timeline of the live page."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from otel_straggler.collector.views.timeline import Column, column_of, sharing
from otel_straggler.collector.views.world_view import RankTable
from otel_straggler.model.scores import WindowScores

MAX_COLUMNS: Final = 360
"""Windows of one world; at 20 steps of a second each, two hours."""
FIRST_SEQ: Final = MAX_COLUMNS + 1
"""Of the first window that closes in this process; those of the history have the numbers below."""


@dataclass(slots=True)
class Timeline:
    """One thread owns it; ``columns``, oldest first, is replaced, so that others may read it."""

    columns: tuple[Column, ...] = ()
    size: int = 0
    _next_seq: int = FIRST_SEQ

    def observe(self, window: WindowScores) -> None:
        """Append a closed window. Cost: O(ranks * sections * log ranks)."""
        if len(window.sources) == 0:
            return
        column = column_of(RankTable.of_window(window), self._next_seq, window.attempt)
        if self._is_outdated(column):
            return
        if column.first_step is not None and not self._is_by_step:
            self.columns = ()  # windows by time overlap those by step
        self._next_seq += 1
        self._set((*self.columns, sharing(column, self.columns)))

    def put_before(self, columns: Sequence[Column]) -> None:
        """Prepend windows of the history, oldest first."""
        room = MAX_COLUMNS - len(self.columns)
        kept = list(columns)[-room:] if room > 0 else []
        if self._is_by_step:
            kept = [column for column in kept if column.first_step is not None]
        older: list[Column] = []
        for at, column in enumerate(kept):
            older.append(sharing(replace(column, seq=FIRST_SEQ - len(kept) + at), older))
        self._set((*older, *self.columns))

    def drop_oldest(self) -> None:
        self._set(self.columns[1:])

    def _set(self, columns: tuple[Column, ...]) -> None:
        self.columns = columns[-MAX_COLUMNS:]
        self.size = sum(column.size for column in self.columns)

    @property
    def _is_by_step(self) -> bool:
        return bool(self.columns) and self.columns[-1].first_step is not None

    def _is_outdated(self, column: Column) -> bool:
        """Of an attempt that is over, or by time where others are by step."""
        is_older = bool(self.columns) and column.attempt < self.columns[-1].attempt
        return is_older or (column.first_step is None and self._is_by_step)


def keep_within(budget: int, timelines: Iterable[Timeline]) -> None:
    """Drop the oldest windows of the largest timelines until all fit into the budget of bytes. The
    newest window of a world stays."""
    every = list(timelines)
    total = sum(timeline.size for timeline in every)
    while total > budget:
        largest = max(every, key=lambda timeline: timeline.size)
        if len(largest.columns) < 2:
            return
        total -= largest.size
        largest.drop_oldest()
        total += largest.size

"""Runs that only the history knows, and windows that are older than what is kept in memory."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

import numpy as np

from otel_straggler.model.verdict import RunVerdicts
from otel_straggler.publish.history import HistoryReader, RunEntry
from otel_straggler.publish.picture import Column, RankTable, Seen, column_of

MOST_COLUMNS: Final = 240
MOST_RUNS: Final = 100
_AGAIN_S: Final = 10.0


class PageHistory:
    """Reads the history file of a collector while that writes to it. Slow: not for the event loop.

    Args:
        path: of the file; empty: there is none, and nothing is known.
    """

    def __init__(self, path: str, monotonic_s: Callable[[], float] = time.monotonic) -> None:
        self._path = path
        self._monotonic_s = monotonic_s
        self._runs: tuple[RunEntry, ...] = ()
        self._read_at_s = -np.inf

    def runs(self) -> tuple[RunEntry, ...]:
        """The newest 100, at most ten seconds old.

        Raises:
            StragglerError: the file cannot be read.
        """
        now_s = self._monotonic_s()
        if self._path and now_s - self._read_at_s >= _AGAIN_S:
            with HistoryReader(self._path) as history:
                self._runs = tuple(reversed(history.runs()))[:MOST_RUNS]
            self._read_at_s = now_s
        return self._runs

    def seen(self, run_id: str, now_s: float) -> dict[str, Seen]:
        """The worlds of a run by group, as they were last; empty if it is not known.

        Raises:
            StragglerError: the file cannot be read.
        """
        entry = next((run for run in self.runs() if run.run_id == run_id), None)
        if entry is None:
            return {}
        with HistoryReader(self._path) as history:
            newest = {window.group: window for window in history.windows(run_id)}
            judged = RunVerdicts(changes=tuple(history.changes(run_id)))
            tables = {group: history.window(window.id) for group, window in newest.items()}
        groups = tuple(dict.fromkeys((*newest, *(v.group for v in judged.changes)))) or ("",)
        found = {}
        for group in groups:
            summary = tables.get(group)
            found[group] = Seen(
                run_id=run_id,
                job=entry.job,
                group=group,
                groups=groups,
                attempt=0 if summary is None else summary.attempt,
                now_s=now_s,
                is_live=False,
                began_at_s=entry.first_seen_ns / 1e9,
                heard_at_s=entry.last_seen_ns / 1e9,
                world_size=0 if summary is None else summary.world_size,
                table=None if summary is None else RankTable.of_summary(summary),
                judged=judged,
            )
        return found

    def columns(self, run_id: str, group: str, from_s: float, to_s: float) -> list[Column]:
        """Windows that ended between, oldest first; evenly chosen where there are more than 240.
        Their numbers are those of the history.

        Raises:
            StragglerError: the file cannot be read.
        """
        if not self._path:
            return []
        with HistoryReader(self._path) as history:
            among = [
                window
                for window in history.windows(run_id)
                if window.group == group and from_s <= window.end_ns / 1e9 <= to_s
            ]
            if len(among) > MOST_COLUMNS:
                places = np.linspace(0, len(among) - 1, MOST_COLUMNS).round().astype(int)
                among = [among[place] for place in places.tolist()]
            return _columns(history, [(window.id, window.attempt) for window in among])


def _columns(history: HistoryReader, windows: list[tuple[int, int]]) -> list[Column]:
    found = []
    for number, attempt in windows:
        summary = history.window(number)
        if summary is not None:
            found.append(column_of(RankTable.of_summary(summary), number, attempt))
    return found

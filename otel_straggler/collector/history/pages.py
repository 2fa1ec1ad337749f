"""Runs and windows that are only in the history, for the live page."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final, TypeAlias, TypeVar

import numpy as np

from otel_straggler.collector.history.reader import HistoryReader, RunEntry
from otel_straggler.collector.history.run_views import FromHistory
from otel_straggler.collector.views.run_json import run_entry
from otel_straggler.collector.views.timeline import Column, column_of
from otel_straggler.collector.views.world_view import Awaited, WorldView
from otel_straggler.detect.hangs.states import ENDS
from otel_straggler.errors import InputError, StragglerError, UnavailableError

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")
Json: TypeAlias = dict[str, Any]
MAX_RUNS: Final = 50
_AGAIN_S: Final = 10.0
"""Interval of reading the list of runs, and of retries after an error."""
_BUSY_S: Final = 1.0
"""Time that a page waits for a program that holds the file."""
_MAX_KEPT: Final = 4
_AWAITED_S: Final = 3600.0
"""Runs seen this shortly before a restart are awaited for as long after it."""
_ELSEWHERE_S: Final = 60.0
"""A collector saves what it knows of a live run every ten seconds."""
_NOT_AWAITED, _AWAITED, _OVERDUE = range(3)


class PageHistory:
    """Reads the history of a running collector. Slow: not for the event loop. Thread-safe.

    Args:
        path: of a file, or a PostgreSQL URL; empty for no history.
        monotonic_s, wall_s: clocks.
        lost_after_s: time within which a live rank reports.
        collector: name of this one among those that share the database.
    """

    def __init__(
        self,
        path: str,
        monotonic_s: Callable[[], float] = time.monotonic,
        wall_s: Callable[[], float] = time.time,
        lost_after_s: float = 20.0,
        collector: str = "",
    ) -> None:
        self._path = path
        self._started_at_s = wall_s()
        self._lost_after_s = lost_after_s
        self._collector = collector
        self._monotonic_s = monotonic_s
        self._wall_s = wall_s
        self._runs: tuple[RunEntry, ...] = ()
        self._read_at_s = -np.inf
        self._entries: dict[str, tuple[str, Json]] = {}
        self._columns: dict[tuple[str, str, str], list[Column]] = {}
        self._worlds: dict[tuple[str, str], list[WorldView]] = {}
        self._problem: StragglerError | None = None
        self._failed_at_s = -np.inf

    @property
    def problem(self) -> str | None:
        """Error of the last attempt to read the file; None if it succeeded."""
        return None if self._problem is None else str(self._problem)

    def runs(self) -> tuple[RunEntry, ...]:
        """The newest 50, last seen first; at most ten seconds old. Without those that another
        collector has now: its page shows them, and ours by ``metrics.peers``.

        Raises:
            StragglerError: (also from the methods below) the file cannot be read.
        """
        now_s = self._monotonic_s()
        if self._path and now_s - self._read_at_s >= _AGAIN_S:
            with self._opened() as history:
                try:
                    every = [run for run in history.runs() if not self._is_elsewhere(run)]
                    self._runs = tuple(reversed(every))[:MAX_RUNS]
                except InputError as error:  # the whole file is damaged, not a single window
                    self._record(error)
                    raise
            self._read_at_s = now_s
        return self._runs

    def _is_elsewhere(self, run: RunEntry) -> bool:
        is_recent = self._wall_s() - run.last_seen_ns / 1e9 < _ELSEWHERE_S
        return is_recent and not self._is_own(run)

    def _is_own(self, run: RunEntry) -> bool:
        return run.collector in ("", self._collector)

    def run(self, run_id: str) -> RunEntry | None:
        return next((run for run in self.runs() if run.run_id == run_id), None)

    def state(self, run: RunEntry) -> str:
        """Changes with the data of a run, and when it becomes overdue."""
        phase = self._phase(run.last_seen_ns / 1e9)
        return f"{run.last_seen_ns:x}-{run.windows}-{run.changes}-{phase}"

    def known_state(self, run_id: str) -> str | None:
        """The same for a run that was read before, without reading: for the event loop."""
        run = next((run for run in self._runs if run.run_id == run_id), None)
        return None if run is None else self.state(run)

    def worlds(self, run_id: str) -> list[WorldView]:
        """The last view of every group of a run, cached; empty for an unknown run."""
        run = self.run(run_id)
        if run is None:
            return []
        key = run_id, self.state(run)
        result = self._worlds.get(key)
        if result is None:
            with self._opened() as history:
                result = self._shown(FromHistory(history, goes_on_s=0.0), run)
            _keep(self._worlds, key, result)
        return result

    def _shown(self, run_views: FromHistory, run: RunEntry) -> list[WorldView]:
        worlds = run_views.worlds(run.run_id)
        return list(map(self._awaited, worlds)) if self._is_own(run) else worlds

    def _awaited(self, view: WorldView) -> WorldView:
        is_over = view.finished_at_s is not None or (
            view.hang is not None and view.hang.state in (*ENDS, "forgotten")
        )
        phase = _NOT_AWAITED if is_over else self._phase(view.now_s)
        if phase == _NOT_AWAITED:
            return view
        return replace(view, awaited=Awaited(self._started_at_s, phase == _OVERDUE))

    def _phase(self, seen_at_s: float) -> int:
        since_s = self._wall_s() - self._started_at_s
        if not 0.0 <= self._started_at_s - seen_at_s < _AWAITED_S or since_s >= _AWAITED_S:
            return _NOT_AWAITED
        return _OVERDUE if since_s >= self._lost_after_s else _AWAITED

    def entries(self, without: Iterable[str]) -> list[Json]:
        """Entries of the list of runs, cached."""
        left_out = set(without)
        runs = [run for run in self.runs() if run.run_id not in left_out]
        stale = [
            run for run in runs if self._entries.get(run.run_id, (None,))[0] != self.state(run)
        ]
        if stale:
            with self._opened() as history:
                run_views = FromHistory(history, goes_on_s=0.0)
                for run in stale:
                    if worlds := self._shown(run_views, run):
                        self._entries[run.run_id] = self.state(run), run_entry(worlds)
        kept = {run.run_id for run in self._runs}
        self._entries = {key: reported for key, reported in self._entries.items() if key in kept}
        return [self._entries[run.run_id][1] for run in runs if run.run_id in self._entries]

    def newest(
        self, run_id: str, group: str, maximum: int, until_s: float = float("inf")
    ) -> list[Column]:
        """The newest windows of a world, oldest first; those read by ``until_s`` of the monotonic
        clock, at least one."""
        if not self._path:
            return []
        columns: list[Column] = []
        with self._opened() as history:
            entries = [entry for entry in history.windows(run_id) if entry.group == group]
            for entry in reversed(entries[-maximum:]):
                if columns and self._monotonic_s() >= until_s:
                    break
                window = history.window(entry.id)
                if window is not None:
                    columns.append(column_of(window, entry.id, entry.attempt))
        return columns[::-1]

    def kept(self, run_id: str, group: str, maximum: int) -> list[Column]:
        """The newest windows of a run that has ended, cached."""
        run = self.run(run_id)
        if run is None:
            return []
        key = run_id, group, self.state(run)
        result = self._columns.get(key)
        if result is None:
            # Windows of other runs leave gaps in the numbers, which a page would show as missing.
            newest = self.newest(run_id, group, maximum)
            result = [replace(each, seq=at) for at, each in enumerate(newest)]
            _keep(self._columns, key, result)
        return result

    def columns(self, run_id: str, group: str, from_s: float, to_s: float) -> list[Column]:
        """Windows that ended between two times; see :meth:`FromHistory.columns`."""
        if not self._path:
            return []
        with self._opened() as history:
            return FromHistory(history).columns(run_id, group, from_s=from_s, to_s=to_s)

    @contextmanager
    def _opened(self) -> Iterator[HistoryReader]:
        """A reader; raises a recent problem again, so that not every page waits for a busy file."""
        now_s = self._monotonic_s()
        if self._problem is not None and now_s - self._failed_at_s < _AGAIN_S:
            raise self._problem
        try:
            history = HistoryReader(self._path, busy_s=_BUSY_S)
        except StragglerError as error:
            self._record(error)
            raise
        with history:
            try:
                yield history
            except UnavailableError as error:
                self._record(error)
                raise
        self._problem = None

    def _record(self, problem: StragglerError) -> None:
        self._problem, self._failed_at_s = problem, self._monotonic_s()


def _keep(kept: dict[_Key, _Value], key: _Key, value: _Value) -> None:
    while len(kept) >= _MAX_KEPT:
        kept.pop(next(iter(kept)), None)
    kept[key] = value

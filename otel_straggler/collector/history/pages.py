"""Runs that only the history knows, and windows that are older than what is kept in memory."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final, TypeAlias, TypeVar

import numpy as np

from otel_straggler.collector.history.reader import HistoryReader, RunEntry
from otel_straggler.collector.history.run_views import FromHistory
from otel_straggler.collector.views.runs_json import run_entry
from otel_straggler.collector.views.timeline import Column, column_of
from otel_straggler.collector.views.world_view import Awaited, RankTable, WorldView
from otel_straggler.detect.hangs.states import ENDS
from otel_straggler.errors import InputError, StragglerError, UnavailableError

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")
Json: TypeAlias = dict[str, Any]
MAX_OLDER: Final = 240
"""Windows of one answer about a time in the past."""
MAX_RUNS: Final = 50
_AGAIN_S: Final = 10.0
"""The list of runs is read again, and a file that could not be read is tried again, after this."""
_BUSY_S: Final = 1.0
"""A page waits no longer for a program that holds the file."""
_MAX_KEPT: Final = 4
_AWAITED_S: Final = 3600.0
"""Runs that were followed so shortly before a restart are awaited for as long after it."""
_NOT_AWAITED, _AWAITED, _OVERDUE = range(3)


class PageHistory:
    """Reads the history file of a collector while that writes to it. Slow: not for the event loop.
    From any thread.

    Args:
        path: of the file; empty: there is none, and nothing is known.
        monotonic_s, wall_s: clocks.
        lost_after_s: who lives is heard of within this time.
    """

    def __init__(
        self,
        path: str,
        monotonic_s: Callable[[], float] = time.monotonic,
        wall_s: Callable[[], float] = time.time,
        lost_after_s: float = 20.0,
    ) -> None:
        self._path = path
        self._started_at_s = wall_s()
        self._lost_after_s = lost_after_s
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
        """Why the file could not be read when that was tried last; None if it could."""
        return None if self._problem is None else str(self._problem)

    def runs(self) -> tuple[RunEntry, ...]:
        """The newest 50, those seen last first; at most ten seconds old.

        Raises:
            StragglerError: (also of every method below) the file cannot be read.
        """
        now_s = self._monotonic_s()
        if self._path and now_s - self._read_at_s >= _AGAIN_S:
            with self._opened() as history:
                try:
                    self._runs = tuple(reversed(history.runs()))[:MAX_RUNS]
                except InputError as error:  # the whole file is damaged, and not one window
                    self._note(error)
                    raise
            self._read_at_s = now_s
        return self._runs

    def run(self, run_id: str) -> RunEntry | None:
        return next((run for run in self.runs() if run.run_id == run_id), None)

    def state(self, run: RunEntry) -> str:
        """Changes when there is something new of a run: also that it should have been heard of."""
        phase = self._phase(run.last_seen_ns / 1e9)
        return f"{run.last_seen_ns:x}-{run.windows}-{run.changes}-{phase}"

    def known_state(self, run_id: str) -> str | None:
        """The same of a run that was read of before; reads nothing, so that it may be asked for on
        the event loop."""
        run = next((run for run in self._runs if run.run_id == run_id), None)
        return None if run is None else self.state(run)

    def worlds(self, run_id: str) -> list[WorldView]:
        """Every group of a run as it was last; empty if it is not known. Kept for a while."""
        run = self.run(run_id)
        if run is None:
            return []
        key = run_id, self.state(run)
        result = self._worlds.get(key)
        if result is None:
            with self._opened() as history:
                result = self._shown(FromHistory(history, goes_on_s=0.0), run_id)
            _keep(self._worlds, key, result)
        return result

    def _shown(self, run_views: FromHistory, run_id: str) -> list[WorldView]:
        """Nothing is followed that only the history knows; what was, before this process, may still
        go on."""
        return [self._awaited(view) for view in run_views.worlds(run_id)]

    def _awaited(self, view: WorldView) -> WorldView:
        is_over = view.finished_at_s is not None or (
            view.hang is not None and view.hang.state in (*ENDS, "forgotten")
        )
        phase = _NOT_AWAITED if is_over else self._phase(view.now_s)
        if phase == _NOT_AWAITED:
            return view
        return replace(view, awaited=Awaited(self._started_at_s, phase == _OVERDUE))

    def _phase(self, seen_at_s: float) -> int:
        """Of a run that was seen last at that time."""
        since_s = self._wall_s() - self._started_at_s
        if not 0.0 <= self._started_at_s - seen_at_s < _AWAITED_S or since_s >= _AWAITED_S:
            return _NOT_AWAITED
        return _OVERDUE if since_s >= self._lost_after_s else _AWAITED

    def entries(self, without: Iterable[str]) -> list[Json]:
        """For the list of runs. Each is made once, until there is something new of its run."""
        left_out = set(without)
        runs = [run for run in self.runs() if run.run_id not in left_out]
        stale = [
            run for run in runs if self._entries.get(run.run_id, (None,))[0] != self.state(run)
        ]
        if stale:
            with self._opened() as history:
                run_views = FromHistory(history, goes_on_s=0.0)
                for run in stale:
                    if worlds := self._shown(run_views, run.run_id):
                        self._entries[run.run_id] = self.state(run), run_entry(worlds)
        kept = {run.run_id for run in self._runs}
        self._entries = {key: reported for key, reported in self._entries.items() if key in kept}
        return [self._entries[run.run_id][1] for run in runs if run.run_id in self._entries]

    def newest(
        self, run_id: str, group: str, maximum: int, until_s: float = float("inf")
    ) -> list[Column]:
        """The newest windows of a world, oldest first; those that could be read by ``until_s`` of
        the monotonic clock, at least one."""
        if not self._path:
            return []
        with self._opened() as history:
            numbers = [
                (window.id, window.attempt)
                for window in history.windows(run_id)
                if window.group == group
            ]
            return _columns(history, numbers[-maximum:], lambda: self._monotonic_s() >= until_s)

    def kept(self, run_id: str, group: str, maximum: int) -> list[Column]:
        """The same for a run that is over, kept for who asks again."""
        run = self.run(run_id)
        if run is None:
            return []
        key = run_id, group, self.state(run)
        result = self._columns.get(key)
        if result is None:
            # Other runs have windows between those of this one: their numbers leave gaps, which a
            # page would show as windows that are missing.
            newest = self.newest(run_id, group, maximum)
            result = [replace(each, seq=at) for at, each in enumerate(newest)]
            _keep(self._columns, key, result)
        return result

    def columns(self, run_id: str, group: str, from_s: float, to_s: float) -> list[Column]:
        """Windows that ended between, oldest first; evenly chosen where there are more than 240.
        Their numbers are those of the history."""
        if not self._path:
            return []
        with self._opened() as history:
            among = [
                (window.id, window.attempt)
                for window in history.windows(run_id)
                if window.group == group and from_s <= window.end_ns / 1e9 <= to_s
            ]
            if len(among) > MAX_OLDER:
                indexes = np.linspace(0, len(among) - 1, MAX_OLDER).round().astype(int)
                among = [among[index] for index in indexes.tolist()]
            return _columns(history, among)

    @contextmanager
    def _opened(self) -> Iterator[HistoryReader]:
        """A reader; the problem of before while that is young, so that a file that somebody holds
        does not make every page wait."""
        now_s = self._monotonic_s()
        if self._problem is not None and now_s - self._failed_at_s < _AGAIN_S:
            raise self._problem
        try:
            history = HistoryReader(self._path, busy_s=_BUSY_S)
        except StragglerError as error:
            self._note(error)
            raise
        with history:
            try:
                yield history
            except UnavailableError as error:
                self._note(error)
                raise
        self._problem = None

    def _note(self, problem: StragglerError) -> None:
        self._problem, self._failed_at_s = problem, self._monotonic_s()


def _keep(kept: dict[_Key, _Value], key: _Key, value: _Value) -> None:
    """Beside the newest others."""
    while len(kept) >= _MAX_KEPT:
        kept.pop(next(iter(kept)), None)
    kept[key] = value


def _columns(
    history: HistoryReader,
    numbers: list[tuple[int, int]],
    is_over: Callable[[], bool] = lambda: False,
) -> list[Column]:
    """The windows with these numbers and attempts, oldest first; the newest are read first."""
    result: list[Column] = []
    for number, attempt in reversed(numbers):
        if result and is_over():
            break
        summary = history.window(number)
        if summary is not None:
            result.append(column_of(RankTable.of_summary(summary), number, attempt))
    return result[::-1]

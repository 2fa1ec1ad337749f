"""What the live page asks for, by run: pictures, ranks, timelines, the list of runs.

Everything is made from what the scoring thread last published, on the thread of whoever asks.
"""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

from otel_straggler.collector.board import Snapshot
from otel_straggler.collector.board_report import AlertsOf
from otel_straggler.collector.page_cache import Answer, AnswerCache
from otel_straggler.collector.page_history import PageHistory
from otel_straggler.collector.page_seen import clock_of, groups_of, newest_window, seen_of
from otel_straggler.collector.page_state import digest, progress_of, state_of_list, state_of_run
from otel_straggler.collector.recent import MOST_COLUMNS, Recent
from otel_straggler.collector.watching import RunSeen
from otel_straggler.errors import StragglerError
from otel_straggler.model.alert import Mode
from otel_straggler.model.scores import WindowScores
from otel_straggler.publish.picture import (
    Column,
    Maker,
    RankTable,
    Seen,
    TimelineEnds,
    dearest_group,
    picture_json,
    rank_json,
    run_entry,
    runs_json,
    timeline_json,
)
from otel_straggler.publish.picture.rank import is_known
from otel_straggler.publish.picture.scalars import scalars_json

Json: TypeAlias = dict[str, Any]

_SAME_S: Final = 1.0
"""A world that was looked at so lately, and of which nothing was heard since, is not read again."""
_MOST_WORLDS: Final = 16


class UnknownError(Exception):
    """There is no such run, group, rank or section; the text says which there are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """Where pictures come from.

    Attributes:
        snapshot: what the scoring thread last published.
        alerts: those that fire, by run.
        recent: the newest windows.
        history: older ones, and runs that are over.
        wait: until ``recent`` has what the history had of it.
        maker: who says it.
        mode: whether alerts may call somebody.
        now_s: wall clock.
        problems: what is wrong with the runs as a whole.
    """

    snapshot: Callable[[], Snapshot]
    alerts: AlertsOf
    recent: Recent
    history: PageHistory
    maker: Callable[[], Maker]
    mode: Mode
    now_s: Callable[[], float]
    wait: Callable[[], None] = lambda: None
    problems: Callable[[], tuple[str, ...]] = tuple


class Pictures:
    """Thread-safe. Every method may take a while, so none is for the event loop unless it says so.

    Raises:
        UnknownError: there is no such thing.
        StragglerError: the history cannot be read.
    """

    def __init__(self, sources: Sources, cache: AnswerCache | None = None) -> None:
        self._from = sources
        self._cache = cache or AnswerCache()
        self._tables: dict[tuple[str, str], tuple[WindowScores, RankTable]] = {}
        self._seen_last: dict[tuple[str, str], tuple[str, Seen]] = {}
        self._listed: tuple[Snapshot | None, tuple[int, str]] = (None, (0, ""))
        self._lock = threading.Lock()

    # --- answers ---------------------------------------------------------------------------------

    def runs(self) -> Answer:
        """All runs, live ones and those that the history knows."""

        def make(_: float) -> Json:
            entries = self._entries()
            problem = self._from.history.problem
            now_s, problems = self._from.now_s(), self._from.problems()
            return runs_json(entries, self._from.maker(), now_s, problem, problems)

        return self._cache.get(("runs",), self._entries_state(), make)

    def run(self, run_id: str | None, group: str | None) -> Answer:
        """The picture of one run; of the first, and of the group that has lost most, by default."""
        run_id = self._named(run_id)
        run = self._live(run_id)
        snapshot = self._state(run_id, run)

        def make(next_look_s: float) -> Json:
            seen = self._seen(run_id, run, group)
            return picture_json(
                seen,
                self._from.maker(),
                snapshot=snapshot,
                next_look_s=next_look_s,
                timeline=TimelineEnds.of(self._columns(run_id, seen.group)),
                now_s=self._from.now_s(),
            )

        return self._cache.get(("run", run_id, group), snapshot, make)

    def rank(self, run_id: str | None, group: str | None, rank: int) -> Answer:
        """One rank in detail."""
        run_id = self._named(run_id)
        run = self._live(run_id)

        def make(_: float) -> Json:
            seen = self._seen(run_id, run, group)
            if not is_known(seen, rank):
                raise UnknownError(f"run {run_id} has no rank {rank}")
            columns = self._columns(run_id, seen.group)
            return rank_json(seen, rank, columns, self._from.maker(), now_s=self._from.now_s())

        return self._cache.get(("rank", run_id, group, rank), self._state(run_id, run), make)

    def scalars(self, run_id: str | None, group: str | None) -> Answer:
        """A few numbers of one run, for experiment trackers."""
        run_id = self._named(run_id)
        run = self._live(run_id)
        snapshot = self._state(run_id, run)

        def make(_: float) -> Json:
            seen = self._seen(run_id, run, group)
            return scalars_json(seen, self._from.maker(), snapshot=snapshot)

        return self._cache.get(("scalars", run_id, group), snapshot, make)

    def timeline(self, run_id: str | None, group: str | None, section: str, after: int) -> Answer:
        """The newest windows, those with a number above ``after``."""
        run_id = self._named(run_id)
        group = self._group(run_id, group)
        every = self._columns(run_id, group)
        columns = [column for column in every if column.seq > after]
        _require_section(every, section)

        def make(_: float) -> Json:
            return timeline_json(columns, run_id=run_id, group=group, section=section)

        ends = (columns[0].seq, columns[-1].seq) if columns else (None, None)
        return self._cache.get(("timeline", run_id, group, section, *ends), ends, make)

    def older(
        self, run_id: str | None, group: str | None, section: str, from_s: float, to_s: float
    ) -> Answer:
        """Windows of the history."""
        run_id = self._named(run_id)
        group = self._group(run_id, group)

        def make(_: float) -> Json:
            columns = self._from.history.columns(run_id, group, from_s, to_s)
            _require_section(columns, section)
            return timeline_json(columns, run_id=run_id, group=group, section=section)

        key = ("older", run_id, group, section, from_s, to_s)
        return self._cache.get(key, int(self._from.now_s()), make)

    def first(self) -> str | None:
        """The run that is shown if nobody asks for one; None if none is known."""
        ordered = json.loads(self.runs().body)["runs"]
        return ordered[0]["run_id"] if ordered else None

    # --- what has changed: quick enough for the event loop ---------------------------------------

    def list_state(self) -> tuple[int, str]:
        """How many live runs there are, and a text that changes when the list of runs does; made
        once for all who listen."""
        snapshot = self._from.snapshot()
        if self._listed[0] is not snapshot:
            runs = snapshot.seen
            told = ((run, len(tuple(self._from.alerts(run.run_id)))) for run in runs)
            self._listed = snapshot, (len(runs), state_of_list(told))
        return self._listed[1]

    def run_state(self, run_id: str) -> str | None:
        """Changes when the picture of a run does; None if there is none, or nobody has asked for it
        since the history was read."""
        run = self._live(run_id)
        if run is not None:
            return self._live_state(run)
        kept = self._from.history.known_state(run_id)
        return None if kept is None else _kept_state(kept)

    @property
    def look_s(self) -> float:
        """How long a picture that was made just now is shown to all who ask."""
        return self._cache.look_s

    def newest_seq(self, run_id: str) -> int | None:
        """The newest column of a live run; None if it has none."""
        return self._from.recent.newest_seq(run_id)

    # --- parts -----------------------------------------------------------------------------------

    def _live(self, run_id: str) -> RunSeen | None:
        return next((run for run in self._from.snapshot().seen if run.run_id == run_id), None)

    def _live_state(self, run: RunSeen) -> str:
        snapshot, alerts = self._from.snapshot(), self._from.alerts(run.run_id)
        return state_of_run(run, alerts, snapshot.maintenance, self._from.now_s())

    def _state(self, run_id: str, run: RunSeen | None) -> str:
        if run is not None:
            return self._live_state(run)
        entry = self._from.history.run(run_id)
        if entry is None:
            raise _no_run(run_id)
        return _kept_state(self._from.history.state(entry))

    def _entries(self) -> list[Json]:
        entries = [run_entry(self._worlds(run)) for run in self._from.snapshot().seen]
        with contextlib.suppress(StragglerError):  # what is live is shown; the collector logs why
            entries += self._from.history.entries([entry["run_id"] for entry in entries])
        return entries

    def _entries_state(self) -> Hashable:
        """Changes when an entry of the list does."""
        live = tuple(progress_of(run) for run in self._from.snapshot().seen)
        older: list[Hashable] = []
        with contextlib.suppress(StragglerError):
            older = [self._from.history.state(run) for run in self._from.history.runs()]
        problems = self._from.history.problem, self._from.problems()
        return (self.list_state(), live, tuple(older), problems)

    def _named(self, run_id: str | None) -> str:
        found = self.first() if run_id is None else run_id
        if found is None:
            raise UnknownError("no run is known yet")
        return found

    def _group(self, run_id: str, group: str | None) -> str:
        """The group that is meant, which is a known one."""
        run = self._live(run_id)
        if run is not None and group is not None and group in groups_of(run):
            return group
        return self._seen(run_id, run, group).group

    def _columns(self, run_id: str, group: str) -> Sequence[Column]:
        """The newest, oldest first; of the history if the run is not followed."""
        self._from.wait()
        run = self._live(run_id)
        if run is None:
            return self._from.history.kept(run_id, group, MOST_COLUMNS)
        columns = self._from.recent.columns(run_id, group)
        clock_s = clock_of(run, group)
        if not clock_s:
            return columns
        return [replace(each, at_s=each.at_s + clock_s) for each in columns]

    def _seen(self, run_id: str, run: RunSeen | None, group: str | None) -> Seen:
        worlds = self._from.history.worlds(run_id) if run is None else self._worlds(run, group)
        if not worlds:
            raise _no_run(run_id)
        if group is None:
            return dearest_group(worlds)
        for seen in worlds:
            if seen.group == group:
                return seen
        known = ", ".join(repr(name) for name in worlds[0].groups)
        raise UnknownError(f"run {run_id} has no group {group!r}; it has {known}")

    def _worlds(self, run: RunSeen, only: str | None = None) -> list[Seen]:
        """All worlds of a live run, or only one of them if there is such a one."""
        groups = groups_of(run)
        if only is not None and only in groups:
            groups = (only,)
        state = self._live_state(run)
        return [self._world(run, group, state) for group in groups]

    def _world(self, run: RunSeen, group: str, state: str) -> Seen:
        """One world, made once for the list, the picture and the timeline of the same view."""
        key = run.run_id, group
        now_s = self._from.now_s()
        known = self._seen_last.get(key)
        if known is not None and known[0] == state and 0.0 <= now_s - known[1].now_s < _SAME_S:
            return known[1]
        seen = seen_of(
            run,
            group,
            table=self._table(run, group),
            alerts=tuple(self._from.alerts(run.run_id)),
            maintenance=self._from.snapshot().maintenance,
            mode=self._from.mode,
            now_s=now_s,
        )
        with self._lock:
            self._seen_last.pop(key, None)
            while len(self._seen_last) >= _MOST_WORLDS:
                del self._seen_last[next(iter(self._seen_last))]
            self._seen_last[key] = state, seen
        return seen

    def _table(self, run: RunSeen, group: str) -> RankTable | None:
        """Of the newest window; made once."""
        window = newest_window(run, group)
        if window is None:
            return None
        key = run.run_id, group
        with self._lock:
            known = self._tables.get(key)
            if known is not None and known[0] is window:
                return known[1]
            table = RankTable.of_window(window)
            self._tables[key] = window, table
            live = {run.run_id for run in self._from.snapshot().seen}
            for gone in [key for key in self._tables if key[0] not in live]:
                del self._tables[gone]
            return table


def _kept_state(state: Hashable) -> str:
    """Of a run that only the history knows."""
    return digest(repr(state).encode())


def _no_run(run_id: str) -> UnknownError:
    return UnknownError(f"no run is called {run_id!r}; /v1/runs has those that are known")


def _require_section(columns: Sequence[Column], section: str) -> None:
    names = list(dict.fromkeys(name for column in columns for name in column.sections))
    if section and section not in names:
        raise UnknownError(f"no window has a section {section!r}; there are {', '.join(names)}")

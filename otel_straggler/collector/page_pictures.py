"""What the live page asks for, by run: pictures, ranks, timelines, the list of runs.

Everything is made from what the scoring thread last published, on the thread of whoever asks.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

from otel_straggler.collector.board import AlertsOf, Snapshot
from otel_straggler.collector.page_cache import Answer, AnswerCache
from otel_straggler.collector.page_history import PageHistory
from otel_straggler.collector.page_seen import groups_of, newest_window, seen_of
from otel_straggler.collector.recent import Recent
from otel_straggler.collector.watching import RunSeen
from otel_straggler.errors import StragglerError
from otel_straggler.model.alert import Mode
from otel_straggler.model.scores import WindowScores
from otel_straggler.publish.picture import (
    Column,
    Maker,
    RankTable,
    Seen,
    dearest_group,
    picture_json,
    rank_json,
    run_entry,
    runs_json,
    timeline_json,
)
from otel_straggler.publish.picture.rank import is_known

Json: TypeAlias = dict[str, Any]


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
        maker: who says it.
        mode: whether alerts may call somebody.
        now_s: wall clock.
    """

    snapshot: Callable[[], Snapshot]
    alerts: AlertsOf
    recent: Recent
    history: PageHistory
    maker: Callable[[], Maker]
    mode: Mode
    now_s: Callable[[], float]


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
        self._lock = threading.Lock()

    # --- answers ---------------------------------------------------------------------------------

    def runs(self) -> Answer:
        """All runs, live ones and those that the history knows."""

        def make(_: float) -> Json:
            entries = [run_entry(self._worlds(run)) for run in self._from.snapshot().seen]
            entries += self._finished({entry["run_id"] for entry in entries})
            return runs_json(entries, self._from.maker(), self._from.now_s())

        return self._cache.get(("runs",), self._from.snapshot().watched.now_s, make)

    def run(self, run_id: str | None, group: str | None) -> Answer:
        """The picture of one run; of the first, and of the group that has lost most, by default."""
        run_id = self._first() if run_id is None else run_id
        run = self._live(run_id)
        state = self._history_state(run_id) if run is None else self.state_of(run)

        def make(next_look_s: float) -> Json:
            seen = self._seen(run_id, run, group)
            return picture_json(
                seen,
                self._from.maker(),
                snapshot=state,
                next_look_s=next_look_s,
                timeline=self._from.recent.ends(run_id, seen.group),
            )

        return self._cache.get(("run", run_id, group), state, make)

    def rank(self, run_id: str | None, group: str | None, rank: int) -> Answer:
        """One rank in detail."""
        run_id = self._first() if run_id is None else run_id
        run = self._live(run_id)
        state = self._history_state(run_id) if run is None else self.state_of(run)

        def make(_: float) -> Json:
            seen = self._seen(run_id, run, group)
            if not is_known(seen, rank):
                raise UnknownError(f"run {run_id} has no rank {rank}")
            columns = self._from.recent.columns(run_id, seen.group)
            return rank_json(seen, rank, columns, self._from.maker())

        return self._cache.get(("rank", run_id, group, rank), state, make)

    def timeline(self, run_id: str | None, group: str | None, section: str, after: int) -> Answer:
        """The newest windows, those with a number above ``after``."""
        run_id = self._first() if run_id is None else run_id
        group = self._group(run_id, group)
        every = self._from.recent.columns(run_id, group)
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
        run_id = self._first() if run_id is None else run_id
        group = self._group(run_id, group)
        columns = self._from.history.columns(run_id, group, from_s, to_s)
        _require_section(columns, section)
        return Answer.of(timeline_json(columns, run_id=run_id, group=group, section=section))

    # --- what has changed: quick enough for the event loop ---------------------------------------

    def list_state(self) -> tuple[int, str]:
        """How many live runs there are, and a text that changes when the list of runs does."""
        seen = self._from.snapshot().seen
        told = [
            (
                run.run_id,
                tuple((group, found.state) for group, found in run.found.items()),
                len(run.judged.changes),
                sorted(run.judged.silenced),
                len(tuple(self._from.alerts(run.run_id))),
            )
            for run in seen
        ]
        return len(seen), _digest(repr(told).encode())

    def run_state(self, run_id: str) -> str | None:
        """Changes when the picture of a live run does; None if there is none."""
        run = self._live(run_id)
        return None if run is None else self.state_of(run)

    def newest_seq(self, run_id: str) -> int | None:
        return self._from.recent.newest_seq(run_id)

    def state_of(self, run: RunSeen) -> str:
        """A text that changes when a picture of the run does. Cost: O(ranks), microseconds.

        While a run hangs its sentence says for how long, so it changes every ten seconds.
        """
        hangs = any(found.is_hung for found in run.found.values())
        told = (
            [(group, world.attempt, world.touched_at_s) for group, world in run.worlds.items()],
            [(group, found.state, found.since_s) for group, found in run.found.items()],
            [(w.group, w.attempt, w.last_step, w.end_ns) for w in run.windows],
            (len(run.judged.changes), sorted(run.judged.silenced), len(run.judged.decisions)),
            [(each.node, each.until_ns) for each in self._from.snapshot().maintenance],
            [(alert.name, alert.starts_at_s) for alert in self._from.alerts(run.run_id)],
            int(self._from.now_s() / 10.0) if hangs else 0,
        )
        states = b"".join(found.rank_states.tobytes() for found in run.found.values())
        return _digest(repr(told).encode() + states)

    # --- parts -----------------------------------------------------------------------------------

    def _live(self, run_id: str) -> RunSeen | None:
        return next((run for run in self._from.snapshot().seen if run.run_id == run_id), None)

    def first(self) -> str | None:
        """The run that is shown if nobody asks for one; None if none is known."""
        entries = [run_entry(self._worlds(run)) for run in self._from.snapshot().seen]
        entries = entries or self._finished(set())
        ordered = runs_json(entries, self._from.maker(), 0.0)["runs"]
        return ordered[0]["run_id"] if ordered else None

    def _first(self) -> str:
        run_id = self.first()
        if run_id is None:
            raise UnknownError("no run is known yet")
        return run_id

    def _group(self, run_id: str, group: str | None) -> str:
        return self._seen(run_id, self._live(run_id), group).group

    def _seen(self, run_id: str, run: RunSeen | None, group: str | None) -> Seen:
        worlds = self._older_worlds(run_id) if run is None else self._worlds(run, group)
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
        snapshot = self._from.snapshot()
        return [
            seen_of(
                run,
                group,
                table=self._table(run, group),
                alerts=tuple(self._from.alerts(run.run_id)),
                maintenance=snapshot.maintenance,
                mode=self._from.mode,
                now_s=self._from.now_s(),
            )
            for group in ([only] if only in groups else groups)
            if group is not None
        ]

    def _older_worlds(self, run_id: str) -> list[Seen]:
        worlds = self._from.history.seen(run_id, self._from.now_s())
        if not worlds:
            raise UnknownError(f"no run is called {run_id!r}; /v1/runs has those that are known")
        return list(worlds.values())

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
            self._drop_gone()
            return table

    def _drop_gone(self) -> None:
        live = {run.run_id for run in self._from.snapshot().seen}
        for key in [key for key in self._tables if key[0] not in live]:
            del self._tables[key]

    def _finished(self, live: set[str]) -> list[Json]:
        """Entries of runs that only the history knows; none if it cannot be read."""
        return list(self._of_history(live))

    def _of_history(self, live: set[str]) -> Iterator[Json]:
        try:
            runs = self._from.history.runs()
        except StragglerError:
            return
        for run in runs:
            if run.run_id in live:
                continue
            seen = Seen(
                run_id=run.run_id,
                job=run.job,
                now_s=self._from.now_s(),
                is_live=False,
                began_at_s=run.first_seen_ns / 1e9,
                heard_at_s=run.last_seen_ns / 1e9,
            )
            yield run_entry([seen])

    def _history_state(self, run_id: str) -> str:
        for run in self._from.history.runs():
            if run.run_id == run_id:
                return _digest(repr((run.last_seen_ns, run.windows, run.changes)).encode())
        raise UnknownError(f"no run is called {run_id!r}; /v1/runs has those that are known")


def _require_section(columns: list[Column], section: str) -> None:
    names = list(dict.fromkeys(name for column in columns for name in column.sections))
    if section and section not in names:
        raise UnknownError(f"no window has a section {section!r}; there are {', '.join(names)}")


def _digest(told: bytes) -> str:
    return hashlib.blake2b(told, digest_size=9).hexdigest()

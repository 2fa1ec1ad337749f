"""Answers for the live page: views of runs, ranks, timelines, the list of runs. They are built from
the last snapshot, on the caller's thread."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, Final, Protocol, TypeAlias

from otel_straggler.collector.api.cache import Answer, AnswerCache
from otel_straggler.collector.api.peers import Peers, UnknownOnPeerError
from otel_straggler.collector.history.pages import PageHistory
from otel_straggler.collector.runs.timeline import MAX_COLUMNS
from otel_straggler.collector.views.page_json import (
    ResponseMeta,
    page_json,
    runs_json,
    scalars_json,
)
from otel_straggler.collector.views.rank_json import is_known, rank_json
from otel_straggler.collector.views.run_json import one_of, run_entry
from otel_straggler.collector.views.run_view import RunView
from otel_straggler.collector.views.snapshot import Snapshot
from otel_straggler.collector.views.timeline import Column, timeline_json
from otel_straggler.collector.views.world_view import WorldView
from otel_straggler.errors import StragglerError
from otel_straggler.model.names import MAX_NAME

Json: TypeAlias = dict[str, Any]

_PATIENCE_S: Final = 10.0
"""Wait for the history before the first answer: later, timelines grow at their end only."""


class UnknownError(Exception):
    """No such run, group, rank, or section; the message lists those that exist."""


class _Published(Protocol):
    snapshot: Snapshot
    is_backfilled: threading.Event


class Pages:
    """Thread-safe. Methods may block, so they are not for the event loop unless marked.

    Raises:
        UnknownError: from all answers.
        StragglerError: the history cannot be read.
    """

    def __init__(
        self,
        published: _Published,
        history: PageHistory,
        meta: Callable[[], ResponseMeta],
        now_s: Callable[[], float] = time.time,
        cache: AnswerCache | None = None,
        peers: Peers | None = None,
        refusals: Callable[[str], tuple[str, ...]] = lambda _: (),
    ) -> None:
        self._published = published
        self._history = history
        self._meta = meta
        self._now_s = now_s
        self._cache = cache or AnswerCache()
        self._peers = peers
        self._refusals = refusals

    # --- answers ---------------------------------------------------------------------------------

    def runs(self, prefix: str = "", *, is_local: bool = False) -> Answer:
        """All runs whose names begin so, live and from the history, and unless ``is_local`` those
        of the other shards. Problems may name any run, and are for those who may see all; of what
        was refused, each sees what is about its runs."""
        peers = None if is_local else self._peers
        refusals = self._refusals(prefix)

        def make(_: float) -> Json:
            meta, entries = self._meta(), self._entries()
            problems = (*meta.problems, *self._snapshot.problems)
            if peers is not None:
                entries, problems = peers.merged(entries), (*problems, *peers.problems())
            if prefix:
                entries = [each for each in entries if each["run_id"].startswith(prefix)]
                problems = () if peers is None else peers.problems(prefix)
            problems = (*problems, *refusals)
            return runs_json(entries, meta, self._now_s(), self._history.problem, problems)

        state = (self._entries_state(), self._meta().problems, refusals, peers and peers.version)
        return self._cache.get(("runs", prefix, is_local), state, make)

    def elsewhere(self, path: str, query: Mapping[str, str]) -> Answer | None:
        """The answer of the shard that has the run; None if it is here, or nowhere."""
        run_id = query.get("run")
        if self._peers is None or run_id is None or self._live(run_id) is not None:
            return None
        peer = self._peers.owner(run_id)
        if peer is None:
            return None
        try:
            return Answer({**self._peers.fetch(peer, path, query), "page_url": peer.page_url})
        except UnknownOnPeerError as error:
            raise UnknownError(str(error)) from error

    def is_elsewhere(self, run_id: str | None) -> bool:
        """Whether another shard is asked for it, which may take as long as that likes."""
        is_here = run_id is None or self._peers is None or self._live(run_id) is not None
        return not is_here and self._peers.owner(run_id) is not None  # type: ignore[union-attr]

    def run(self, run_id: str | None, group: str | None) -> Answer:
        """One run; by default the first, and its costliest group."""

        def make(view: WorldView, snapshot: str, next_look_s: float) -> Json:
            return page_json(
                view,
                self._meta(),
                snapshot=snapshot,
                next_look_s=next_look_s,
                timeline=self._columns(view.run_id, view.group),
                now_s=self._now_s(),
            )

        return self._of_run("run", run_id, group, make)

    def rank(self, run_id: str | None, group: str | None, rank: int) -> Answer:
        def make(view: WorldView, _: str, __: float) -> Json:
            if not is_known(view, rank):
                raise UnknownError(f"run {view.run_id} has no rank {rank}")
            columns = self._columns(view.run_id, view.group)
            return rank_json(view, rank, columns, self._meta(), now_s=self._now_s())

        return self._of_run(("rank", rank), run_id, group, make)

    def scalars(self, run_id: str | None, group: str | None) -> Answer:
        def make(view: WorldView, snapshot: str, _: float) -> Json:
            return scalars_json(view, self._meta(), snapshot=snapshot)

        return self._of_run("scalars", run_id, group, make)

    def _of_run(
        self,
        name: Hashable,
        run_id: str | None,
        group: str | None,
        make: Callable[[WorldView, str, float], Json],
    ) -> Answer:
        run_id = self.named(run_id)
        run = self._live(run_id)
        snapshot = self._state(run_id, run)

        def of_view(next_look_s: float) -> Json:
            return make(self._view(run_id, run, group), snapshot, next_look_s)

        return self._cache.get((name, run_id, group), snapshot, of_view)

    def timeline(self, run_id: str | None, group: str | None, section: str, after: int) -> Answer:
        """The newest windows, numbered above ``after``."""
        run_id = self.named(run_id)
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
        run_id = self.named(run_id)
        group = self._group(run_id, group)

        def make(_: float) -> Json:
            columns = self._history.columns(run_id, group, from_s, to_s)
            _require_section(columns, section)
            return timeline_json(columns, run_id=run_id, group=group, section=section)

        key = ("older", run_id, group, section, from_s, to_s)
        return self._cache.get(key, int(self._now_s()), make)

    def first(self, prefix: str = "") -> str | None:
        """The default run of those whose names begin so; None if none is known."""
        ordered = json.loads(self.runs(prefix, is_local=True).body)["runs"]
        return ordered[0]["run_id"] if ordered else None

    def named(self, run_id: str | None, prefix: str = "") -> str:
        """The run that is asked for, or the default one, of those whose names begin so."""
        result = self.first(prefix) if run_id is None else run_id
        if result is None:
            raise UnknownError("no run is known yet")
        check_visible(result, prefix)
        return result

    # --- versions: for the event loop ------------------------------------------------------------

    def list_state(self, prefix: str = "") -> tuple[int, Hashable]:
        """The number of live runs whose names begin so, and what changes with the list, or with
        what was refused. For the event loop."""
        snapshot = self._snapshot
        of_peers = 0 if self._peers is None else self._peers.list_version
        count = sum(run_id.startswith(prefix) for run_id in snapshot.runs)
        return count, (snapshot.list_version + of_peers, self._refusals(prefix))

    def run_state(self, run_id: str) -> str | None:
        """Changes with the view of a run; None for an unknown run, or one of the history that has
        not been requested."""
        run = self._live(run_id)
        if run is not None:
            return self._live_state(run)
        state = None if self._peers is None else self._peers.state(run_id)
        return state or self._history.known_state(run_id)

    @property
    def look_s(self) -> float:
        """Seconds for which an answer is served from the cache."""
        return self._cache.look_s

    def newest_seq(self, run_id: str) -> int | None:
        """Number of the newest column of a live run; None without one."""
        run = self._live(run_id)
        every = () if run is None else run.columns.values()
        return max((columns[-1].seq for columns in every if columns), default=None)

    # --- parts -----------------------------------------------------------------------------------

    @cached_property
    def _stamp(self) -> str:
        """Identifies this process, whose versions begin at 1."""
        return f"{int(1e3 * (self._meta().started_at_s or 0.0)):x}"

    @property
    def _snapshot(self) -> Snapshot:
        return self._published.snapshot

    def _live(self, run_id: str) -> RunView | None:
        return self._snapshot.runs.get(run_id)

    def _live_state(self, run: RunView) -> str:
        return f"{self._stamp}-{run.version}"

    def _state(self, run_id: str, run: RunView | None) -> str:
        if run is not None:
            return self._live_state(run)
        entry = self._history.run(run_id)
        if entry is None:
            raise _no_run(run_id)
        return self._history.state(entry)

    def _entries(self) -> list[Json]:
        live = self._snapshot.runs.values()
        entries = [run_entry([run.world(group) for group in run.groups]) for run in live]
        with contextlib.suppress(StragglerError):  # live runs remain; the history logs why
            entries += self._history.entries([entry["run_id"] for entry in entries])
        return entries

    def _entries_state(self) -> Hashable:
        snapshot = self._snapshot
        live = tuple((run.run_id, run.version) for run in snapshot.runs.values())
        older: list[Hashable] = []
        with contextlib.suppress(StragglerError):
            older = [self._history.state(run) for run in self._history.runs()]
        return (snapshot.list_version, live, tuple(older), self._history.problem, snapshot.problems)

    def _group(self, run_id: str, group: str | None) -> str:
        return self._view(run_id, self._live(run_id), group).group

    def _columns(self, run_id: str, group: str) -> Sequence[Column]:
        self._published.is_backfilled.wait(_PATIENCE_S)
        run = self._live(run_id)
        if run is None:
            return self._history.kept(run_id, group, MAX_COLUMNS)
        columns = run.columns.get(group, ())
        clock_s = run.world(group).clock_s
        if not clock_s:
            return columns
        return [replace(each, at_s=each.at_s + clock_s) for each in columns]

    def _view(self, run_id: str, run: RunView | None, group: str | None) -> WorldView:
        if run is not None and group in run.groups:
            return run.world(group)
        if run is None:
            worlds = self._history.worlds(run_id)
        else:
            worlds = [run.world(each) for each in run.groups]
        if not worlds:
            raise _no_run(run_id)
        view = one_of(worlds, group)
        if view is None:
            known = ", ".join(repr(name) for name in worlds[0].groups)
            named = (group or "")[:MAX_NAME]
            raise UnknownError(f"run {run_id} has no group {named!r}; it has {known}")
        return view


def check_visible(run_id: str, prefix: str) -> None:
    """UnknownError for a run whose name does not begin so, as for one that there is not."""
    if not run_id.startswith(prefix):
        raise _no_run(run_id)


def _no_run(run_id: str) -> UnknownError:
    return UnknownError(f"no run {run_id[:MAX_NAME]!r}; /v1/runs lists the known ones")


def _require_section(columns: Sequence[Column], section: str) -> None:
    names = list(dict.fromkeys(name for column in columns for name in column.sections))
    if section and section not in names:
        text = f"no window has a section {section[:MAX_NAME]!r}; there are {', '.join(names)}"
        raise UnknownError(text)

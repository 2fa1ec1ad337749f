"""Saves the state of the scoring thread in the history, and restores it after a restart."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, Protocol

from otel_straggler.collector.api.decisions import Decisions
from otel_straggler.collector.api.maintenance import MaintenanceBook
from otel_straggler.collector.history.history import History, HistoryCounts
from otel_straggler.collector.history.pages import PageHistory
from otel_straggler.collector.history.spool import Spool
from otel_straggler.collector.history.store import OPEN_WINDOWS, SPOOL, Summary
from otel_straggler.collector.runs.contents import Content, only
from otel_straggler.collector.runs.hung_worlds import lasting
from otel_straggler.collector.runs.run import Run
from otel_straggler.collector.runs.store import RunStore
from otel_straggler.collector.runs.timeline import MAX_COLUMNS
from otel_straggler.collector.settings import HistorySettings
from otel_straggler.collector.views.run_summary import summary_value
from otel_straggler.collector.views.run_view import RunView
from otel_straggler.collector.views.snapshot import Snapshot
from otel_straggler.collector.views.timeline import Column
from otel_straggler.collector.views.world_view import WorldView
from otel_straggler.detect.hangs.states import HANGS
from otel_straggler.detect.scores.scorer import Scorer
from otel_straggler.errors import StragglerError
from otel_straggler.model.scores import WindowScores
from otel_straggler.model.verdict import Verdict

_DAY_S: Final = 86_400.0
_MiB: Final = 1024 * 1024
_SHARE: Final = 20
"""Copying states may take this fraction (1 / 20) of the scoring thread's time."""
_ENGINES: Final = "judges"
DECISIONS: Final = "decisions"
_HANGS: Final = "hangs"
_HUNG: Final = "hung"
_WAITING: Final = "waiting"
_GOODPUT: Final = "goodput"
ALERTS: Final = "alerts"
MAINTENANCE: Final = "maintenance"


class HistoryWriter:
    """Without a path in the settings nothing is saved or restored.

    With a spool, a save is a checkpoint: windows, states, and the rows of open windows, all of
    the same moment and in one transaction, with the sequence of the last request in them. What is
    behind it is in the spool, so a process that is killed loses nothing and counts nothing twice.
    Requests that wait for a quorum stay in the spool; the save says which, and which part of them.

    Args:
        max_runs: maximum number of verdict engines restored, last saved first.
        monotonic_ns: clock.
        collector: name of this one among those that share a PostgreSQL database.

    Attributes:
        through: sequence of the last request of the spool that the restored states include.
    """

    def __init__(
        self,
        settings: HistorySettings,
        max_runs: int,
        monotonic_ns: Callable[[], int] = time.monotonic_ns,
        spool: Spool | None = None,
        collector: str = "",
    ) -> None:
        self._history: History | None = None
        self._spool = spool
        if settings.path:
            keep_s, max_bytes = settings.keep_days * _DAY_S, settings.max_mib * _MiB
            release = None if spool is None else spool.release
            self._history = History(
                settings.path,
                keep_s=keep_s,
                max_bytes=max_bytes,
                release=release,
                collector=collector,
            )
        self._save_every_ns = int(settings.save_every_seconds * 1e9)
        self._max_runs = max_runs
        self._monotonic_ns = monotonic_ns
        self._due_at_ns = monotonic_ns() + self._save_every_ns
        self._restored: dict[str, Any] = {}
        self._changes: list[Verdict] = []
        self._windows: list[WindowScores] = []
        self._saved_rows = 0
        self._saved_hung: list[tuple[str, str, float | None]] = []
        self.through = 0
        self._maintenance: dict[str, Any] | None = None
        self._held: dict[int, set[tuple[str, str, int, int]]] = {}

    def open(self) -> None:
        """Open it and read the states of the last process; raises as :meth:`History.open`."""
        if self._history is None:
            return
        self._restored = self._history.open()
        checkpoint, waiting = self._restored.pop(SPOOL, {}), self._restored.pop(_WAITING, {})
        if self._spool is not None and checkpoint.get("id") == self._spool.id:
            self.through = checkpoint["sequence"]
            if waiting.get("sequence") == self.through:
                self._restored[_WAITING] = waiting["worlds"]
                for world in waiting["worlds"]:
                    for sequence, attempt, size in world["held"]:
                        key = world["run_id"], world["group"], attempt, size
                        self._held.setdefault(sequence, set()).add(key)

    def close(self, timeout_s: float) -> None:
        if self._history is not None:
            self._history.close(timeout_s)

    def put(self, key: str, state: dict[str, Any]) -> None:
        """Write decisions, alerts, or maintenance immediately. From any thread."""
        if key == MAINTENANCE:
            self._maintenance = state  # refreshed with each save: it may exceed the history's age
        if self._history is not None:
            self._history.put(states={key: state})

    def restore_alerts(self, restore: Callable[[dict[str, Any]], None]) -> None:
        """Restore the notifier."""
        self._restore(ALERTS, restore)

    def counts(self) -> HistoryCounts | None:
        if self._history is None or self._spool is None:
            return None if self._history is None else self._history.counts()
        spool = self._spool
        return replace(
            self._history.counts(),
            spool_bytes=spool.size_bytes,
            spool_failures=spool.counts(),
            why_spool=spool.why,
        )

    @property
    def held(self) -> frozenset[int]:
        """Sequences of the requests that waited for a quorum when the restored states were saved;
        to be replayed as well."""
        return frozenset(self._held)

    # --- from the scoring thread ----------------------------------------------------------------

    def restore(
        self,
        scorer: Scorer,
        decisions: Decisions,
        *,
        store: RunStore | None = None,
        maintenance: MaintenanceBook | None = None,
        now_s: Callable[[], float] = time.time,
    ) -> None:
        """Restore the states of the last process; a rejected one is logged and counted. ``now_s``:
        the collector's clock."""
        self._restore(DECISIONS, decisions.restore)
        if store is not None:
            self._restore(_HANGS, store.restore_hangs)
            self._restore(_WAITING, store.restore_waiting)
            self._restore(_GOODPUT, store.restore_goodput)
            self._restore(_HUNG, lambda state: store.restore_hung(state, now_s()))
        if maintenance is not None and MAINTENANCE in self._restored:
            self._restore(MAINTENANCE, maintenance.restore)
            self._maintenance = maintenance.state()
        for key in (_HANGS, _WAITING, _GOODPUT, _HUNG, MAINTENANCE):
            self._restored.pop(key, None)
        alerts = {key: self._restored.pop(key) for key in (ALERTS,) if key in self._restored}
        opened = self._restored.pop(OPEN_WINDOWS, {})
        engines = 0
        for key, state in list(self._restored.items()):
            part, is_engine, name = key.partition("/")
            engines += bool(is_engine)
            if engines <= self._max_runs or not is_engine:
                self._restored[key] = {part: {name: state} if is_engine else state}
                self._restore(key, scorer.restore)
        if self.through and opened.get("sequence") == self.through:
            self._restored[OPEN_WINDOWS] = opened["worlds"]
            self._restore(
                OPEN_WINDOWS, lambda worlds: scorer.restore_open(worlds, self._monotonic_ns())
            )
        self._restored = alerts

    def unsaved_part(self, content: Content, sequence: int) -> Content:
        """The part of a request that the restored states do not include: of a replayed one that
        waited for a quorum, what waited."""
        waited = self._held.pop(sequence, None) if self._held else None
        if waited is None:
            return content
        return only(content, lambda s: (s.run_id, s.group, s.attempt, s.world_size) in waited)

    def put_windows(self, windows: Sequence[WindowScores]) -> None:
        if self._history is None or not windows:
            return
        if self._spool is not None:
            self._windows += windows
        else:
            self._history.put(windows=windows)

    def tick(
        self,
        scorer: Scorer,
        store: RunStore | None = None,
        summaries: Callable[[], Sequence[Summary]] = tuple,
        ahead_s: float = 0.0,
        through: int = 0,
    ) -> None:
        """Save if it is due and something is new.

        Args:
            summaries: returns those of runs with news since its last call.
            ahead_s: offset of the wall clock from the collector's.
            through: sequence of the last request of the spool that was scored.
        """
        if self._history is None:
            return
        self._changes += scorer.drain_changes()
        if self._monotonic_ns() < self._due_at_ns:
            return
        fresh = summaries()
        has_rows = scorer.counts.observed != self._saved_rows or through != self.through
        is_over = store is not None and _hung_in(store) != self._saved_hung
        if self._changes or self._windows or fresh or has_rows or is_over:
            self.save(scorer, store, fresh, ahead_s, through)

    def save(
        self,
        scorer: Scorer,
        store: RunStore | None = None,
        summaries: Sequence[Summary] = (),
        ahead_s: float = 0.0,
        through: int = 0,
        *,
        is_last: bool = False,
    ) -> None:
        """Write the state of the scorer and the changes of verdicts that led to it together, with
        the state of hang detection and summaries. ``is_last``: all windows are closed, and what
        comes to the next process begins new ones."""
        if self._history is None:
            return
        began_at_ns = self._monotonic_ns()
        self._due_at_ns = began_at_ns + self._save_every_ns
        self._changes += scorer.drain_changes()
        self._saved_rows = scorer.counts.observed
        states = _parts(scorer.state())
        if store is not None:
            states[_HANGS] = store.hangs_state(ahead_s)
            states[_GOODPUT] = store.goodput_state()
            states[_HUNG] = store.hung_state(ahead_s)
            self._saved_hung = _hung_in(store)
        if self._maintenance is not None:
            states[MAINTENANCE] = self._maintenance
        if self._spool is not None:
            worlds = {} if is_last else scorer.open_state()
            states[OPEN_WINDOWS] = {"sequence": through, "worlds": worlds}
            waiting = [] if store is None else store.waiting_state(ahead_s)
            states[_WAITING] = {"sequence": through, "worlds": waiting}
            held = [sequence for world in waiting for sequence, _, _ in world["held"]]
            released = min((through, *(sequence - 1 for sequence in held)))
            states[SPOOL] = {"id": self._spool.id, "sequence": through, "released": released}
        if self._history.put(
            windows=self._windows,
            changes=self._changes,
            states=states,
            summaries=summaries,
            is_whole=self._spool is not None,
        ):
            self._changes, self._windows, self.through = [], [], through
        took_ns = self._monotonic_ns() - began_at_ns
        self._due_at_ns = max(self._due_at_ns, began_at_ns + _SHARE * took_ns)

    def _restore(self, key: str, restore: Callable[[Any], None]) -> None:
        state = self._restored.pop(key, None)
        if state is None:
            return
        assert self._history is not None
        try:
            restore(state)
        except Exception as error:  # noqa: BLE001 - a state of another version may fail in any way
            self._history.refuse(key, f"{type(error).__name__}: {error}")


def _hung_in(store: RunStore) -> list[tuple[str, str, float | None]]:
    """What is saved as hung: without a save the next process would know nothing of a run that was
    given up, and have again what was evicted."""
    known = lasting(store.runs.values())
    return [(run.run_id, world.group, run.given_up_at_s) for run, world in known]


def _parts(state: dict[str, Any]) -> dict[str, Any]:
    """One blob per verdict engine, so that unchanged ones are not rewritten, and per other part."""
    parts = {key: value for key, value in state.items() if key != _ENGINES}
    parts |= {f"{_ENGINES}/{name}": each for name, each in state.get(_ENGINES, {}).items()}
    return parts


_log = logging.getLogger(__name__)

MAX_S: Final = 5.0
"""Maximum time of reading, newest runs first; older ones stay in the history."""


class _Worker(Protocol):
    def backfill(self, view: WorldView, columns: Sequence[Column]) -> None: ...

    def end_backfill(self) -> None: ...


def start_backfill(
    history: PageHistory,
    worker: _Worker,
    keep_s: float,
    wall_s: Callable[[], float] = time.time,
) -> threading.Thread:
    """Read the timelines of recent runs into the worker, once, on a thread of its own.

    Args:
        keep_s: maximum age of the runs.
        wall_s: clock.
    """

    def run() -> None:
        try:
            _backfill(history, worker, since_s=wall_s() - keep_s)
        except StragglerError as error:  # the history reports it
            _log.debug("earlier timelines cannot be read: %s", error)
        except Exception:  # noqa: BLE001 - logged; the page works without them
            _log.exception("earlier timelines cannot be read")
        finally:
            worker.end_backfill()

    thread = threading.Thread(target=run, name="straggler-backfill", daemon=True)
    thread.start()
    return thread


def _backfill(history: PageHistory, worker: _Worker, *, since_s: float) -> None:
    until_s = time.monotonic() + MAX_S
    for run in history.runs():
        if run.last_seen_ns < since_s * 1e9 or time.monotonic() >= until_s:
            return
        for view in history.worlds(run.run_id):
            if view.table is not None:
                columns = history.newest(run.run_id, view.group, MAX_COLUMNS, until_s)
                worker.backfill(view, columns)


_GIVEN_UP: Final = "forgotten"


def new_summaries(runs: Mapping[str, Run], snapshot: Snapshot) -> list[Summary]:
    """Summaries of runs with news since the last call, and of hung runs, which may be silent. A run
    that monitoring has given up keeps its last summary. Cost: O(groups); the thread of the history
    does the rest."""
    summaries: list[Summary] = []
    for view in snapshot.runs.values():
        run = runs.get(view.run_id)
        progress = view.progress()
        is_new = run is None or run.shown.summarized != progress
        if run is not None:
            run.shown.summarized = progress
        for group in view.groups:
            state = view.hangs[group].state if group in view.hangs else ""
            if state != _GIVEN_UP and (is_new or state in HANGS):
                summaries.append(_summary(view, group))
    return summaries


def _summary(view: RunView, group: str) -> Summary:
    def make() -> dict[str, Any]:
        return summary_value(view.world(group))

    return Summary(run_id=view.run_id, job=view.jobs.get(group, ""), group=group, make=make)

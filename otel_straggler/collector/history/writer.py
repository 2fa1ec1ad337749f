"""What the scoring thread hands to the history, and when; and what it takes from it at first."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, Protocol

from otel_straggler.collector.api.decisions import Decisions
from otel_straggler.collector.api.maintenance import MaintenanceBook
from otel_straggler.collector.history.file import Summary
from otel_straggler.collector.history.history import History, HistoryCounts
from otel_straggler.collector.history.pages import PageHistory
from otel_straggler.collector.runs.store import Run, RunStore
from otel_straggler.collector.runs.timeline import MAX_COLUMNS
from otel_straggler.collector.settings import HistorySettings
from otel_straggler.collector.views.run_summary import summary_value
from otel_straggler.collector.views.run_view import RunView
from otel_straggler.collector.views.snapshot import Snapshot
from otel_straggler.collector.views.timeline import Column
from otel_straggler.detect.hangs.states import HANGS
from otel_straggler.detect.scores.scorer import Scorer
from otel_straggler.errors import StragglerError
from otel_straggler.model.scores import WindowScores
from otel_straggler.model.verdict import Verdict

_DAY_S: Final = 86_400.0
_MiB: Final = 1024 * 1024
_SHARE: Final = 20
"""Copying a state takes one part in so many of the scoring thread's time at most."""
_JUDGES: Final = "judges"
_DECISIONS: Final = "decisions"
_HANGS: Final = "hangs"
_ALERTS: Final = "alerts"
_MAINTENANCE: Final = "maintenance"


class HistoryWriter:
    """Stands between the scorer and the history; without a path nothing is kept, nor asked for.

    Args:
        settings: of the history.
        max_runs: so many judges are restored, those saved last.
        monotonic_ns: clock.
    """

    def __init__(
        self,
        settings: HistorySettings,
        max_runs: int,
        monotonic_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._history = _history(settings)
        self._save_every_ns = int(settings.save_every_seconds * 1e9)
        self._max_runs = max_runs
        self._monotonic_ns = monotonic_ns
        self._due_at_ns = monotonic_ns() + self._save_every_ns
        self._restored: dict[str, Any] = {}
        self._changes: list[Verdict] = []
        self._saved_rows = 0
        self._maintenance: dict[str, Any] | None = None

    def open(self) -> None:
        """Take the file and read what the last process left.

        Raises:
            UnavailableError, ConfigError: see :meth:`History.open`.
        """
        if self._history is not None:
            self._restored = self._history.open().states

    def close(self, timeout_s: float) -> None:
        """What waits is written, within the time."""
        if self._history is not None:
            self._history.close(timeout_s)

    def keep_decisions(self, state: dict[str, Any]) -> None:
        """What people have decided. From any thread; written at once."""
        if self._history is not None:
            self._history.put(states={_DECISIONS: state})

    def keep_alerts(self, state: dict[str, Any]) -> None:
        """What fires, and what was told of it. From any thread; written at once."""
        if self._history is not None:
            self._history.put(states={_ALERTS: state})

    def restore_alerts(self, take: Callable[[dict[str, Any]], None]) -> None:
        """Give the notifier what the last process left; before the scorer's :meth:`restore`."""
        state = self._restored.pop(_ALERTS, None)
        if state is not None:
            self._give(_ALERTS, lambda: take(state))

    def keep_maintenance(self, state: dict[str, Any]) -> None:
        """Which nodes are under maintenance. From any thread; written at once, and shown to be in
        use whenever something is saved: it may last longer than a history keeps what is old."""
        self._maintenance = state
        if self._history is not None:
            self._history.put(states={_MAINTENANCE: state})

    def counts(self) -> HistoryCounts | None:
        """None without a history."""
        return None if self._history is None else self._history.counts()

    # --- from the scoring thread ----------------------------------------------------------------

    def restore(
        self,
        scorer: Scorer,
        decisions: Decisions,
        *,
        store: RunStore | None = None,
        maintenance: MaintenanceBook | None = None,
    ) -> None:
        """Give everybody what the last process left. What is refused is said, counted and left
        out; the rest counts all the same."""
        decided = self._restored.pop(_DECISIONS, None)
        if decided is not None:
            self._give(_DECISIONS, lambda: decisions.restore(decided))
        learnt = self._restored.pop(_HANGS, None)
        if learnt is not None and store is not None:
            self._give(_HANGS, partial(store.restore_hangs, learnt))
        maintained = self._restored.pop(_MAINTENANCE, None)
        if maintained is not None and maintenance is not None:
            self._give(_MAINTENANCE, partial(maintenance.restore, maintained))
            self._maintenance = maintenance.state()
        judges = 0
        for key, state in self._restored.items():
            part, is_judge, name = key.partition("/")
            judges += bool(is_judge)
            if judges <= self._max_runs or not is_judge:
                given = {part: {name: state} if is_judge else state}
                self._give(key, partial(scorer.restore, given))
        self._restored = {}

    def take(self, windows: Sequence[WindowScores]) -> None:
        """Closed windows."""
        if self._history is not None and windows:
            self._history.put(windows=windows)

    def tick(
        self,
        scorer: Scorer,
        store: RunStore | None = None,
        summaries: Callable[[], Sequence[Summary]] = tuple,
        ahead_s: float = 0.0,
    ) -> None:
        """Save if it is time and there is anything new.

        Args:
            summaries: of the runs of which there is anything new since it was called last.
            ahead_s: what the wall clock shows beyond the collector's.
        """
        if self._history is None:
            return
        self._changes += scorer.drain_changes()
        if self._monotonic_ns() < self._due_at_ns:
            return
        fresh = summaries()
        if self._changes or fresh or scorer.counts.observed != self._saved_rows:
            self.save(scorer, store, fresh, ahead_s)

    def save(
        self,
        scorer: Scorer,
        store: RunStore | None = None,
        summaries: Sequence[Summary] = (),
        ahead_s: float = 0.0,
    ) -> None:
        """The scorer's state and the changes of verdicts that led to it, in one; with what the hang
        judges have learnt, and with summaries of runs."""
        if self._history is None:
            return
        began_at_ns = self._monotonic_ns()
        self._due_at_ns = began_at_ns + self._save_every_ns
        self._changes += scorer.drain_changes()
        self._saved_rows = scorer.counts.observed
        states = _parts(scorer.state())
        if store is not None:
            states[_HANGS] = store.hangs_state(ahead_s)
        if self._maintenance is not None:
            states[_MAINTENANCE] = self._maintenance
        self._history.put(changes=self._changes, states=states, summaries=summaries)
        self._changes = []
        took_ns = self._monotonic_ns() - began_at_ns
        self._due_at_ns = max(self._due_at_ns, began_at_ns + _SHARE * took_ns)

    def _give(self, key: str, give: Callable[[], None]) -> None:
        assert self._history is not None
        try:
            give()
        except Exception as error:  # noqa: BLE001 - a state of another version may fail in any way
            self._history.refuse(key, f"{type(error).__name__}: {error}")


def _history(settings: HistorySettings) -> History | None:
    if not settings.path:
        return None
    return History(
        settings.path,
        keep_s=settings.keep_days * _DAY_S,
        max_bytes=settings.max_mib * _MiB,
    )


def _parts(state: dict[str, Any]) -> dict[str, Any]:
    """A blob for each judge, so that those without news are not written again, and one for each
    other part."""
    parts = {key: value for key, value in state.items() if key != _JUDGES}
    parts |= {f"{_JUDGES}/{name}": judge for name, judge in state.get(_JUDGES, {}).items()}
    return parts


_log = logging.getLogger(__name__)

MAX_S: Final = 5.0
"""Reading goes on for so long, the newest first; what is older stays in the history."""


class Backfilled(Protocol):
    """Takes older windows, each world's oldest first."""

    def backfill(self, run_id: str, group: str, columns: Sequence[Column]) -> None: ...

    def end_backfill(self) -> None: ...


class Backfill:
    """One thread that reads, once, beside everything else.

    Args:
        history: where from.
        worker: where to.
        keep_s: runs that were seen within this time may go on.
        wall_s: clock.
    """

    def __init__(
        self,
        history: PageHistory,
        worker: Backfilled,
        keep_s: float,
        wall_s: Callable[[], float] = time.time,
    ) -> None:
        self._history = history
        self._worker = worker
        self._keep_s = keep_s
        self._wall_s = wall_s

    def start(self) -> None:
        threading.Thread(target=self._run, name="straggler-refill", daemon=True).start()

    def _run(self) -> None:
        try:
            self._read(time.monotonic() + MAX_S)
        except StragglerError as error:  # the history itself says so to people
            _log.debug("the timelines of before cannot be shown: %s", error)
        except Exception:  # noqa: BLE001 - logged; the page does without
            _log.exception("the timelines of before cannot be shown")
        finally:
            self._worker.end_backfill()

    def _read(self, until_s: float) -> None:
        since_ns = (self._wall_s() - self._keep_s) * 1e9
        for run in self._history.runs():
            if run.last_seen_ns < since_ns or time.monotonic() >= until_s:
                return
            for group in self._groups(run.run_id):
                columns = self._history.newest(run.run_id, group, MAX_COLUMNS, until_s)
                self._worker.backfill(run.run_id, group, columns)

    def _groups(self, run_id: str) -> tuple[str, ...]:
        worlds = self._history.worlds(run_id)
        return tuple(view.group for view in worlds if view.table is not None)


_GIVEN_UP: Final = "forgotten"


def new_summaries(runs: Mapping[str, Run], snapshot: Snapshot) -> list[Summary]:
    """Of the runs of which there is anything new since it was asked for last, or that hang: one
    that is silent is still followed. What monitoring has given up keeps what was seen before. Cost:
    O(groups); the rest is done on the thread of the history, when they are written."""
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
    make = partial(_value, view, group)
    return Summary(run_id=view.run_id, job=view.jobs.get(group, ""), group=group, make=make)


def _value(view: RunView, group: str) -> dict[str, Any]:
    return summary_value(view.world(group))

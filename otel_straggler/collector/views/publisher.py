"""Builds a snapshot at each evaluation: one view of every run. What fails for a run concerns it
alone: the rest of its view is as new as ever, and the part that failed as it was before."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from itertools import count
from typing import Final

from otel_straggler.alerts.rule import FleetStatus, RunStatus
from otel_straggler.collector.api.decisions import Decisions
from otel_straggler.collector.api.maintenance import MaintenanceBook
from otel_straggler.collector.runs.clock import CollectorClock
from otel_straggler.collector.runs.failures import RunGuard
from otel_straggler.collector.runs.liveness import WorldStatus
from otel_straggler.collector.runs.run import Run, World
from otel_straggler.collector.runs.store import RunStore
from otel_straggler.collector.settings import CollectorSettings
from otel_straggler.collector.views.alert_input import newest_scores, watched_worlds
from otel_straggler.collector.views.answer import answer_of, lone_processes
from otel_straggler.collector.views.answer_type import lower
from otel_straggler.collector.views.metrics_text import MetricsText, SeriesShares
from otel_straggler.collector.views.run_view import RunView, WindowView
from otel_straggler.collector.views.snapshot import Snapshot
from otel_straggler.detect.hangs.detector import HangStatus
from otel_straggler.detect.scores.scorer import Scorer
from otel_straggler.detect.verdicts.hardware import is_explainable, with_hardware
from otel_straggler.model.alert import Alert, Maintenance, Mode
from otel_straggler.model.rank import Source
from otel_straggler.model.verdict import RunVerdicts, with_idle
from otel_straggler.throttle import Throttle

_log = logging.getLogger(__name__)
_MAX_LOGGED: Final = 60

COSTLY_S: Final = 0.1
"""Processor time from which on a view is costly: of some thousand ranks."""
_COSTLY_SHARE: Final = 0.1
"""Maximum part of the time for costly views."""
_ALWAYS: Final = (
    "now_s",
    "ahead_s",
    "worlds",
    "hangs",
    "run_verdicts",
    "alerts",
    "maintenance",
    "mode",
    "takes_commands",
)
"""Fields of a view that are as new as ever if the others cannot be built."""


class Publisher:
    """Owned by one thread.

    Args:
        series_shares: the most series of each run, by what each would need and the share of all.
        has_sent: whether a trace was forwarded.

    Attributes:
        metrics: the text of /metrics.
        costly_s: processor time of costly views so far.
    """

    def __init__(
        self,
        settings: CollectorSettings,
        store: RunStore,
        scorer: Scorer,
        clock: CollectorClock,
        decisions: Decisions,
        maintenance: MaintenanceBook,
        guard: RunGuard,
        series_shares: SeriesShares = dict.fromkeys,
        has_sent: Callable[[bytes], bool] | None = None,
    ) -> None:
        self._store = store
        self._scorer = scorer
        self._clock = clock
        self._decisions = decisions
        self._maintenance = maintenance
        self._guard = guard
        self._mode: Mode = settings.mode
        self._alerts = settings.alerts
        self._takes_commands = settings.commands.enabled
        self._cluster = settings.metrics.cluster
        self._collector = ""
        self.metrics = MetricsText(settings.metrics, store, guard, series_shares, has_sent)
        self._versions = count(1)
        self._listed: tuple[object, ...] = ()
        self._list_version = 0
        self._costly = Throttle(_COSTLY_SHARE)
        self.costly_s = 0.0

    def sign(self, collector_id: str) -> None:
        self._collector = collector_id
        self.metrics.sign(collector_id)

    # --- views -------------------------------------------------------------------------------

    def evaluate(
        self, now_ns: int, alerts: Mapping[str, tuple[Alert, ...]], *, is_last: bool = False
    ) -> Snapshot:
        """Build a snapshot without the text of /metrics. Of runs whose view is costly, the one that
        has waited longest is viewed again, at a rate of its own, so that no run makes the others
        wait; ``is_last``: all of them."""
        self._drop_old(self._clock.at_s(now_ns))
        maintenance = tuple(self._maintenance.in_force())
        nodes = frozenset(each.node for each in maintenance)
        known = [run for run in self._store.runs.values() if run.is_known]
        known.sort(key=lambda run: run.first_window)
        waiting = () if is_last else self._waiting(known, now_ns)
        views = [
            run.shown.view
            if run.shown.view is not None and run.run_id in waiting
            else self._timed_view(run, now_ns, alerts.get(run.run_id, ()), maintenance)
            for run in known
        ]
        watched = FleetStatus(
            now_s=self._clock.at_s(now_ns) + self._clock.ahead_s,
            collector=self._collector,
            cluster=self._cluster,
            pages=self._mode == "page",
            runs=tuple(
                world
                for run, view in zip(known, views, strict=True)
                for world in self._watched(run, view, nodes)
            ),
            under_maintenance=nodes,
        )
        return Snapshot(
            runs={view.run_id: view for view in views},
            list_version=self._new_list_version(views),
            watched=watched,
            maintenance=maintenance,
        )

    def _waiting(self, runs: Iterable[Run], now_ns: int) -> frozenset[str]:
        """Runs that keep the view that they have."""
        costly = [run for run in runs if run.shown.view and run.shown.cost_s >= COSTLY_S]
        if costly and self._costly.wait_s(now_ns * 1e-9) == 0.0:
            costly.remove(min(costly, key=lambda run: run.shown.viewed_at_ns))
        return frozenset(run.run_id for run in costly)

    def _timed_view(
        self,
        run: Run,
        now_ns: int,
        alerts: tuple[Alert, ...],
        maintenance: tuple[Maintenance, ...],
    ) -> RunView:
        began_s, shown = time.thread_time(), run.shown
        shown.view = self._view(run, now_ns, alerts, maintenance)
        shown.viewed_at_ns, shown.cost_s = now_ns, time.thread_time() - began_s
        if shown.cost_s >= COSTLY_S:
            self._costly.spend(shown.cost_s)
            self.costly_s += shown.cost_s
        return shown.view

    def _drop_old(self, now_s: float) -> None:
        """Drop expired scores and metrics, and ranks that are no longer in their world."""
        for run in self._store.runs.values():
            has_changed = run.scores.expire(now_s)
            for group, world in run.worlds.items():
                world.passthrough.drop_old(now_s)
                status = world.liveness.status
                if status is not None:
                    has_changed |= run.scores.keep_only(group, status.attempt, status.ranks)
            if has_changed:
                run.shown.scores_have_changed()

    def _view(
        self,
        run: Run,
        now_ns: int,
        alerts: tuple[Alert, ...],
        maintenance: tuple[Maintenance, ...],
    ) -> RunView:
        """Liveness and hangs, in any case as new as they are, and all else."""
        shown = run.shown
        before = shown.view or RunView(run_id=run.run_id)
        always = self._always(run, self._clock.at_s(now_ns), before)
        always = replace(always, alerts=alerts, maintenance=maintenance)
        build = partial(self._whole_view, run, always, now_ns)
        view = self._guard.attempt(run.run_id, "", "view", build)
        if view is None:
            shown.newest_scores, shown.windows = None, ()
            fresh = {name: getattr(always, name) for name in _ALWAYS}
            view = replace(before, **fresh, _worlds={})
        view = replace(view, failures=tuple(run.failures.values()))
        content = view.content()
        if content != shown.content:
            shown.content, shown.version = content, next(self._versions)
        return replace(view, version=shown.version)

    def _always(self, run: Run, now_s: float, before: RunView) -> RunView:
        """What is shown of a run even if the rest of its view cannot be built."""
        worlds = {
            world.group: status
            for world in run.worlds.values()
            if (status := world.liveness.status) is not None
        }
        hangs = self._evaluate_hangs(run, worlds, now_s)  # first: a decision may be about a hang
        evaluate = partial(self._run_verdicts, run, worlds)
        run_verdicts = self._guard.attempt(run.run_id, "", "decisions", evaluate)
        return RunView(
            run_id=run.run_id,
            now_s=now_s + self._clock.ahead_s,
            ahead_s=self._clock.ahead_s,
            worlds=worlds,
            hangs=hangs,
            run_verdicts=before.run_verdicts if run_verdicts is None else run_verdicts,
            mode=self._mode,
            takes_commands=self._takes_commands,
        )

    def _whole_view(self, run: Run, always: RunView, now_ns: int) -> RunView:
        shown = run.shown
        if shown.newest_scores is None:
            shown.newest_scores = newest_scores(run.scores, self._alerts)
        windows = shown.window_views(run.scores.newest_windows(), WindowView)
        view = replace(
            always,
            jobs=_jobs(always.worlds, windows),
            windows=windows,
            scores=shown.newest_scores,
            clashes=self._clashes(run, now_ns),
            late_rows=self._scorer.late_rows(run.run_id),
            columns={group: world.timeline.columns for group, world in run.worlds.items()},
            checkpoints={
                world.group: world.checkpoints.last
                for world in run.worlds.values()
                if world.checkpoints.last is not None
            },
            profiles=run.profiles.pairs,
            before={
                group: world.before
                for group, world in run.worlds.items()
                if world.before is not None
            },
            gpus={
                group: usage
                for group, world in run.worlds.items()
                if (usage := world.passthrough.gpus.usage()) is not None
            },
            goodputs=run.goodputs(
                always.hangs,
                always.run_verdicts,
                self._clock.at_s(now_ns),
                self._clock.ahead_s,
                len(self._store.runs),
            ),
        )
        launches = {group: world.goodput.live.launches for group, world in run.worlds.items()}
        view = view.with_failures(launches)
        view = shown.settled(view, self._clock.at_s(now_ns))  # fails here, if it does
        if view.clashes and not shown.has_logged_clash:
            shown.has_logged_clash = True
            self._log_clash(view)
        return view

    def _watched(self, run: Run, view: RunView, nodes: frozenset[str]) -> tuple[RunStatus, ...]:
        """Input of the alerts of all groups; as it was before where it cannot be made."""

        def watch() -> tuple[RunStatus, ...]:
            return tuple(watched_worlds(view, run.worlds, nodes, self._alerts))

        watched = self._guard.attempt(run.run_id, "", "alerts", watch)
        if watched is not None:
            run.shown.watched = watched
            return watched
        before = run.shown.watched or (RunStatus(run_id=run.run_id),)
        return tuple(replace(each, is_failing=True) for each in before)

    def _log_clash(self, view: RunView) -> None:
        """Once for each run."""
        first = view.clashes[0]
        world = view.world(first.group)
        text = f"two processes claim rank {first.rank}; one of them is not scored."
        if lone_processes(world):
            text = lower(answer_of(world)["sentence"])
        _log.warning("run %r: %s", view.run_id[:_MAX_LOGGED], text)

    def _new_list_version(self, views: Iterable[RunView]) -> int:
        listed = tuple(view.listed() for view in views)
        if listed != self._listed:
            self._listed, self._list_version = listed, next(self._versions)
        return self._list_version

    def _evaluate_hangs(
        self, run: Run, worlds: Mapping[str, WorldStatus], now_s: float
    ) -> dict[str, HangStatus]:
        ahead_s, given_up_at_s = self._clock.ahead_s, run.given_up_at_s
        hangs: dict[str, HangStatus] = {}
        for group, status in worlds.items():
            evaluate = partial(_evaluated, run.worlds[group], status, now_s, ahead_s)
            hang = self._guard.attempt(run.run_id, group, "hangs", evaluate)
            if hang is not None and given_up_at_s is not None:
                hang = _forgotten(hang, given_up_at_s + ahead_s)
            if hang is not None:
                hangs[group] = hang
        return hangs

    def _run_verdicts(self, run: Run, worlds: Mapping[str, WorldStatus]) -> RunVerdicts:
        idle = {
            group: world.hangs.idle_gpu_s
            for group, world in run.worlds.items()
            if world.hangs.idle_gpu_s > 0.0
        }
        on_gpu = {group for group in idle if group in worlds and worlds[group].reports_gpu}
        run_verdicts = self._scorer.verdicts(run.run_id)
        known = {each.group for each in run_verdicts.worlds}
        before = [each for each in run.summaries_before() if each.group not in known]
        run_verdicts = replace(run_verdicts, worlds=(*run_verdicts.worlds, *before))
        run_verdicts = with_idle(run_verdicts, run.run_id, idle, on_gpu)
        if any(is_explainable(verdict) for verdict in run_verdicts.current):
            of_group = {group: world.passthrough.readings() for group, world in run.worlds.items()}
            run_verdicts = with_hardware(run_verdicts, of_group)
        written = [change for world in run.worlds.values() for change in world.checkpoints.changes]
        if written:
            changes = (*run_verdicts.changes, *written)
            run_verdicts = replace(run_verdicts, changes=changes)
        return self._decisions.applied(run_verdicts, run.run_id, run.hung())

    def _clashes(self, run: Run, now_ns: int) -> tuple[Source, ...]:
        now_s = self._clock.at_s(now_ns)
        result = [*self._scorer.clashes(run.run_id, now_ns)]
        for world in run.worlds.values():
            result += world.liveness.clashes(now_s)
        by_session = {(s.group, s.attempt, s.rank, s.session_id, s.node): s for s in result}
        return tuple(by_session.values())

    def needs_somebody(self, run: Run) -> bool:
        """True if a world of the run hangs and nobody has acknowledged it."""
        hung = run.hung()
        return bool(hung.keys() - self._decisions.silenced_hangs(run.run_id, hung))


def _evaluated(
    world: World, status: WorldStatus, now_s: float, ahead_s: float
) -> HangStatus | None:
    findings = world.collectives.findings(status, now_s, world.hangs.lost_after_s)
    return world.hangs.evaluate(status, now_s, ahead_s, findings)


def _forgotten(hang: HangStatus, since_s: float) -> HangStatus:
    """The status of a world that is no longer monitored: without ranks."""
    columns = ("ranks", "rank_states", "rank_since_s", "timeout_s")
    nothing = {name: getattr(hang, name)[:0] for name in columns}
    return replace(
        hang, state="forgotten", since_s=since_s, blame=None, hung_since_s=math.nan, **nothing
    )


def _jobs(worlds: Mapping[str, WorldStatus], windows: Iterable[WindowView]) -> dict[str, str]:
    jobs = {shown.window.group: shown.window.job for shown in windows}
    for group, world in worlds.items():
        jobs.update((group, rank.source.job) for rank in list(world.ranks.values())[:1])
    return jobs

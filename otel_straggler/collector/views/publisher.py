"""Builds a snapshot at each evaluation: one view of every run, and the text of /metrics."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from itertools import count
from typing import Final, TypeAlias

from otel_straggler import semconv
from otel_straggler.alerts.rule import FleetStatus
from otel_straggler.collector.api.decisions import Decisions
from otel_straggler.collector.api.maintenance import MaintenanceBook
from otel_straggler.collector.metrics.families import Families, constant_labels, labels
from otel_straggler.collector.metrics.folding import Stragglers
from otel_straggler.collector.metrics.passthrough_series import (
    checkpoints_of_run,
    passthrough_of_ranks,
    passthrough_of_run,
)
from otel_straggler.collector.metrics.series_choice import KINDS, ShownLife, choose
from otel_straggler.collector.metrics.series_shares import (
    keep_within_share,
    series_needed,
    share_of_each,
)
from otel_straggler.collector.metrics.status_series import (
    alert_families,
    collector_families,
    goodput_families,
    in_trouble,
    status_content,
    status_families,
)
from otel_straggler.collector.metrics.verdict_series import (
    RunLabels,
    heat_families,
    n_cells,
    straggling_ranks,
    verdict_families,
)
from otel_straggler.collector.runs.clock import CollectorClock
from otel_straggler.collector.runs.liveness import WorldStatus
from otel_straggler.collector.runs.run import Run
from otel_straggler.collector.runs.store import RunStore
from otel_straggler.collector.settings import CollectorSettings
from otel_straggler.collector.views.alert_input import newest_scores, watched_worlds
from otel_straggler.collector.views.answer import answer_of, lone_processes
from otel_straggler.collector.views.answer_type import lower
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

_PART_OF_CELLS: Final = 0.25
"""Part of a run's budget of series reserved for cells of workers: the matrix of a large run says
more than the scores of some hundred healthy ranks."""


COSTLY_S: Final = 0.1
"""Processor time from which on a view is costly: of some thousand ranks."""
_COSTLY_SHARE: Final = 0.1
"""Maximum part of the time for costly views."""
SeriesShares: TypeAlias = Callable[[Mapping[str, int], int], Mapping[str, int]]


class Publisher:
    """Owned by one thread.

    Args:
        series_shares: the most series of each run, by what each would need and the share of all.

    Attributes:
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
        mode: Mode,
        series_shares: SeriesShares = dict.fromkeys,
    ) -> None:
        self._store = store
        self._scorer = scorer
        self._clock = clock
        self._decisions = decisions
        self._maintenance = maintenance
        self._mode: Mode = mode
        self._takes_commands = settings.commands.enabled
        self._series_shares = series_shares
        self._budget = settings.metrics.series_budget
        self._cluster = settings.metrics.cluster
        self._collector = ""
        self._constant = constant_labels("")
        self._versions = count(1)
        self._listed: tuple[object, ...] = ()
        self._list_version = 0
        self._costly = Throttle(_COSTLY_SHARE)
        self.costly_s = 0.0

    def sign(self, collector_id: str) -> None:
        self._collector = collector_id
        self._constant = constant_labels(collector_id, self._cluster)

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
                for world in watched_worlds(view, run.worlds, nodes)
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
        now_s, shown = self._clock.at_s(now_ns), run.shown
        worlds = {
            world.group: status
            for world in run.worlds.values()
            if (status := world.liveness.status) is not None
        }
        hangs = self._evaluate_hangs(run, worlds, now_s)  # first: a decision may be about a hang
        if shown.newest_scores is None:
            shown.newest_scores = newest_scores(run.scores)
        windows = shown.window_views(run.scores.newest_windows(), WindowView)
        run_verdicts = self._run_verdicts(run, worlds)
        view = RunView(
            run_id=run.run_id,
            now_s=now_s + self._clock.ahead_s,
            ahead_s=self._clock.ahead_s,
            jobs=_jobs(worlds, windows),
            worlds=worlds,
            hangs=hangs,
            windows=windows,
            scores=shown.newest_scores,
            run_verdicts=run_verdicts,
            clashes=self._clashes(run, now_ns),
            late_rows=self._scorer.late_rows(run.run_id),
            columns={group: world.timeline.columns for group, world in run.worlds.items()},
            checkpoints={
                world.group: world.checkpoints.last
                for world in run.worlds.values()
                if world.checkpoints.last is not None
            },
            alerts=alerts,
            maintenance=maintenance,
            mode=self._mode,
            takes_commands=self._takes_commands,
            profiles=run.profiles.pairs,
            gpus={
                group: usage
                for group, world in run.worlds.items()
                if (usage := world.passthrough.gpus.usage()) is not None
            },
            goodputs=run.goodputs(
                hangs, run_verdicts, now_s, self._clock.ahead_s, len(self._store.runs)
            ),
        )
        content = view.content()
        if content != shown.content:
            shown.content, shown.version = content, next(self._versions)
        if view.clashes and not shown.has_logged_clash:
            shown.has_logged_clash = True
            self._log_clash(view)
        return replace(view, version=shown.version)

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
            world = run.worlds[group]
            findings = world.collectives.findings(status, now_s, world.hangs.lost_after_s)
            hang = world.hangs.evaluate(status, now_s, ahead_s, findings)
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
        run_verdicts = with_idle(self._scorer.verdicts(run.run_id), run.run_id, idle, on_gpu)
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

    # --- /metrics ----------------------------------------------------------------------------

    def metrics_text(self, snapshot: Snapshot) -> bytes:
        """Render /metrics of the newest snapshot, without runs that were evicted since."""
        watched = snapshot.watched
        page = collector_families(watched, snapshot.maintenance, self._constant)
        alerting: dict[str, Families] = {}
        for world in watched.runs:
            families = alerting.setdefault(world.run_id, Families())
            families.extend(alert_families(world, self._constant))
        known = [view for run_id, view in snapshot.runs.items() if run_id in self._store.runs]
        runs = [self._store.runs[view.run_id] for view in known]
        needs = {run.run_id: _series_needed(run) for run in runs}
        shares = self._series_shares(needs, share_of_each(tuple(needs.values()), self._budget))
        for run, view in zip(runs, known, strict=True):
            families = alerting.get(view.run_id, Families())
            page.extend(self._families(run, view, families, shares[run.run_id]))
        return page.render()

    def _families(self, run: Run, view: RunView, alerting: Families, budget: int) -> Families:
        """All series of a run: those that are never folded, then the rest within the budget."""
        straggling = straggling_ranks(view.run_verdicts)
        life = _shown_life(run, view, straggling, budget)
        content = (status_content(view), life)
        status = run.shown.series(
            "status", content, lambda: status_families(view, self._constant, life)
        )
        families = Families()
        families.extend(alerting)
        families.extend(status)
        named = RunLabels(run_id=view.run_id, jobs=view.jobs, constant=self._constant)
        passthrough = {group: world.passthrough for group, world in run.worlds.items()}
        families.extend(passthrough_of_run(passthrough, named, view.goodputs))
        families.extend(goodput_families(view, self._constant))
        families.extend(checkpoints_of_run(view.checkpoints, named))
        cells = int(budget * _PART_OF_CELLS)
        left = budget - len(families)
        families.extend(self._run_verdicts_families(run, view, named, left, cells, life))
        clashing = {(source.group, source.rank) for source in view.clashes}
        text = f"{labels(run_id=view.run_id)},{self._constant}"
        families.add(semconv.RUN_IDENTITY_CLASHES, text, len(clashing))
        left = budget - len(families)
        families.extend(passthrough_of_ranks(passthrough, view.worlds, named, left, straggling))
        run.shown.series_needed = series_needed(families)
        keep_within_share(families, budget, view.run_id, self._constant)
        return families

    def _run_verdicts_families(
        self, run: Run, view: RunView, named: RunLabels, budget: int, cells: int, life: ShownLife
    ) -> Families:
        """Verdicts, then scores, then workers, each within the rest of the budget; a part of it is
        reserved for workers."""
        run_verdicts = view.run_verdicts

        def make() -> Families:
            families = verdict_families(run_verdicts, run.scores.sources(), named)
            for_cells = min(n_cells(run_verdicts.worlds) + 1, cells)
            left = budget - len(families) - for_cells
            if not math.isinf(run.first_window):
                families.extend(self._score_families(run, view, left, life))
            left = max(budget - len(families), for_cells)
            families.extend(heat_families(run_verdicts.worlds, named, left))
            return families

        jobs = tuple(view.jobs.items())
        made_for = run_verdicts, jobs, budget, cells, life, view.ahead_s
        return run.shown.series("verdicts", made_for, make)

    def _score_families(self, run: Run, view: RunView, budget: int, life: ShownLife) -> Families:
        shown = budget, straggling_ranks(view.run_verdicts), life, view.ahead_s

        def make() -> Families:
            return run.scores.families(self._constant, max(budget, 0), *shown[1:])

        return run.shown.series("scores", shown, make)


def _series_needed(run: Run) -> int:
    """At least those of its ranks: a run may be new."""
    statuses = (world.liveness.status for world in run.worlds.values())
    ranks = sum(len(status.ranks) for status in statuses if status is not None)
    return max(run.shown.series_needed, ranks * len(KINDS))


def _shown_life(run: Run, view: RunView, straggling: Stragglers, budget: int) -> ShownLife:
    alive = [(group, rank) for group, world in view.worlds.items() for rank in world.ranks]
    return choose([*alive, *run.scores.ranks()], in_trouble(view, straggling), budget)


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

"""What the collector shows: runs with their scores and signs of life, as immutable snapshots."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from otel_straggler import semconv
from otel_straggler.alerts.rule import FleetStatus
from otel_straggler.collector.alert_series import collector_families, run_families
from otel_straggler.collector.beside_scores import BesideScores
from otel_straggler.collector.board_report import (
    AlertsOf,
    ReportSnapshot,
    ShownRun,
    ShownWindow,
)
from otel_straggler.collector.live_series import LiveState, in_trouble, live_families, live_state
from otel_straggler.collector.liveness import Liveness, World
from otel_straggler.collector.newest_scores import NewestScores, newest_scores
from otel_straggler.collector.watching import RunSeen
from otel_straggler.model.alert import Maintenance
from otel_straggler.model.rank import Source
from otel_straggler.model.scores import WindowScores
from otel_straggler.model.verdict import RunVerdicts
from otel_straggler.publish.prometheus import Families, constant_labels, labels
from otel_straggler.publish.score_series import RunScores, Stragglers
from otel_straggler.publish.shown_life import ShownLife, choose
from otel_straggler.publish.verdict_series import (
    RunLabels,
    heat_families,
    n_cells,
    straggling_ranks,
    verdict_families,
)
from otel_straggler.score.hangs.detector import HangStatus

_PART_OF_CELLS = 0.25
"""Of a run's budget of series, that scores leave to the cells of workers: one matrix says more of a
large run than the scores of some hundred healthy ranks."""

_MadeFor: TypeAlias = tuple[RunVerdicts, Mapping[str, str], int, ShownLife]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What scrapes and pages read; the parts never change, but for the signs of life within
    ``seen``, which the scoring thread goes on writing. ``page`` may be older than the rest."""

    page: bytes = b""
    report: ReportSnapshot = field(default_factory=lambda: ReportSnapshot({}))
    runs: int = 0
    watched: FleetStatus = field(default_factory=lambda: FleetStatus(now_s=0.0, collector=""))
    seen: tuple[RunSeen, ...] = ()
    maintenance: tuple[Maintenance, ...] = ()


class Board:
    """Collects what is to be shown. One thread owns it.

    Args:
        keep_s: how long a rank's last scores stay.
        series_budget: series per run.
        alerts: gives those that fire about a run.
        beside: what is shown beside scores and signs of life.
    """

    def __init__(
        self,
        *,
        keep_s: float,
        series_budget: int,
        alerts: AlertsOf = lambda _: (),
        beside: BesideScores | None = None,
    ) -> None:
        self._alerts = alerts
        self._beside = beside or BesideScores()
        self._constant_labels = constant_labels("")
        self._keep_s = keep_s
        self._budget = series_budget
        self._runs: dict[str, RunScores] = {}
        self._shown: dict[int, ShownWindow] = {}
        self._rendered: dict[str, tuple[tuple[int, Stragglers, ShownLife], Families]] = {}
        self._judged_lines: dict[str, tuple[_MadeFor, Families]] = {}
        self._live_lines: dict[str, tuple[tuple[LiveState, ShownLife], Families]] = {}
        self._newest_scores: dict[str, dict[str, NewestScores]] = {}

    def sign(self, collector_id: str, cluster: str = "") -> None:
        """Set the labels ``collector`` and, if there is one, ``cluster`` of every series."""
        self._constant_labels = constant_labels(collector_id, cluster)

    def take(self, window: WindowScores, now_s: float) -> None:
        scores = self._runs.get(window.run_id)
        if scores is None:
            scores = self._runs[window.run_id] = RunScores(window.run_id, keep_s=self._keep_s)
        scores.take(window, now_s)
        self._have_changed(window.run_id)

    def follow(self, liveness: Liveness, now_s: float) -> None:
        """Forget scores that nobody renews, and ranks that are no longer in their world."""
        for run_id, scores in self._runs.items():
            changed = scores.expire(now_s)
            for group, world in liveness.worlds(run_id).items():
                changed |= scores.keep_only(group, world.attempt, world.ranks)
            if changed:
                self._have_changed(run_id)

    def forget(self, run_ids: Iterable[str]) -> None:
        for run_id in run_ids:
            self._runs.pop(run_id, None)
            self._live_lines.pop(run_id, None)
            self._have_changed(run_id)

    def forget_group(self, run_id: str, group: str) -> None:
        scores = self._runs.get(run_id)
        if scores is not None:
            scores.forget_group(group)
        self._live_lines.pop(run_id, None)
        self._have_changed(run_id)

    def _have_changed(self, run_id: str) -> None:
        """The scores of a run."""
        self._rendered.pop(run_id, None)
        self._judged_lines.pop(run_id, None)
        self._newest_scores.pop(run_id, None)

    def snapshot(
        self,
        liveness: Liveness,
        clashes: dict[str, tuple[Source, ...]],
        late_rows: dict[str, int],
        judged: Callable[[str], RunVerdicts],
        found: Callable[[str], Mapping[str, HangStatus]],
        watch: Callable[[Iterable[RunSeen]], FleetStatus],
        maintenance: Iterable[Maintenance] = (),
    ) -> Snapshot:
        """Everything as it stands, but for the text of /metrics: see :meth:`page`.

        Args:
            judged: gives layer 2 of a run.
            found: gives who is stuck or lost in it, by group.
            watch: gives what alerts look at.
            maintenance: what is in force.
        """
        maintenance = tuple(maintenance)
        shown: dict[str, ShownRun] = {}
        seen: list[RunSeen] = []
        for run_id in dict.fromkeys((*self._runs, *liveness.runs())):
            hangs = found(run_id)  # before the verdicts: a decision may be about a hang
            shown[run_id] = run = ShownRun(
                windows=self._newest(run_id),
                judged=judged(run_id),
                clashes=clashes.get(run_id, ()),
                late_rows=late_rows.get(run_id, 0),
                found=hangs,
            )
            seen.append(self._seen(run_id, run, liveness.worlds(run_id)))
        watched = watch(seen)
        report = ReportSnapshot(shown, watched.runs, self._alerts)
        return Snapshot(b"", report, len(shown), watched, tuple(seen), maintenance)

    def page(self, snapshot: Snapshot) -> bytes:
        """The text of /metrics, of a snapshot that was made just now."""
        watched = snapshot.watched
        page = collector_families(watched, snapshot.maintenance, self._constant_labels)
        alerting = _by_run(watched, self._constant_labels)
        for each in snapshot.seen:
            page.extend(self._families(each, alerting.get(each.run_id, Families())))
        return page.render()

    def _seen(self, run_id: str, run: ShownRun, worlds: Mapping[str, World]) -> RunSeen:
        return RunSeen(
            run_id=run_id,
            jobs=_jobs(worlds, run),
            worlds=worlds,
            found=run.found,
            scores=self._scores_of(run_id),
            judged=run.judged,
            clashes=run.clashes,
            windows=tuple(shown.window for shown in run.windows),
        )

    def _scores_of(self, run_id: str) -> Mapping[str, NewestScores]:
        """What alerts look at; kept until scores change."""
        scores = self._runs.get(run_id)
        if scores is None:
            return {}
        known = self._newest_scores.get(run_id)
        if known is None:
            known = self._newest_scores[run_id] = newest_scores(scores)
        return known

    def _families(self, seen: RunSeen, alerting: Families) -> Families:
        """All series of a run: what is never folded, and the rest within the budget."""
        straggling = straggling_ranks(seen.judged)
        life = self._shown_life(seen, straggling)
        families = Families()
        families.extend(self._live_families(seen, life))
        families.extend(alerting)
        named = RunLabels(run_id=seen.run_id, jobs=seen.jobs, constant=self._constant_labels)
        families.extend(self._beside.of_run(named))
        left = self._budget - len(families)
        families.extend(self._judged_families(seen.judged, named, left, life))
        self._add_clashes(families, seen)
        left = self._budget - len(families)
        families.extend(self._beside.of_ranks(named, seen.worlds, left, straggling))
        return families

    def _live_families(self, seen: RunSeen, life: ShownLife) -> Families:
        """Kept while nothing is heard of the run and nobody's state changes."""
        made_for = (live_state(seen.worlds, seen.found), life)
        known = self._live_lines.get(seen.run_id)
        if known is None or known[0] != made_for:
            families = live_families(
                seen.run_id, seen.worlds, self._constant_labels, seen.found, life
            )
            known = self._live_lines[seen.run_id] = (made_for, families)
        return known[1]

    def _shown_life(self, seen: RunSeen, straggling: Stragglers) -> ShownLife:
        alive = [(group, rank) for group, world in seen.worlds.items() for rank in world.ranks]
        scores = self._runs.get(seen.run_id)
        ranks = [*alive, *(scores.ranks() if scores else ())]
        return choose(ranks, in_trouble(seen.found, straggling), self._budget)

    def _add_clashes(self, page: Families, seen: RunSeen) -> None:
        ranks = {(source.group, source.rank) for source in seen.clashes}
        text = f"{labels(run_id=seen.run_id)},{self._constant_labels}"
        page.add(semconv.RUN_IDENTITY_CLASHES, text, len(ranks))

    def _judged_families(
        self, judged: RunVerdicts, run: RunLabels, budget: int, life: ShownLife
    ) -> Families:
        """Verdicts, then scores, then workers; kept until one of them changes."""
        made_for = (judged, run.jobs, budget, life)
        known = self._judged_lines.get(run.run_id)
        if known is None or known[0] != made_for:
            families = self._made_of_verdicts(judged, run, budget, life)
            known = self._judged_lines[run.run_id] = (made_for, families)
        return known[1]

    def _made_of_verdicts(
        self, judged: RunVerdicts, run: RunLabels, budget: int, life: ShownLife
    ) -> Families:
        """Each within what is left of the budget, of which a part is kept for workers."""
        scores = self._runs.get(run.run_id)
        families = verdict_families(judged, scores.sources() if scores else (), run)
        straggling = straggling_ranks(judged)
        for_cells = min(n_cells(judged.worlds) + 1, int(self._budget * _PART_OF_CELLS))
        left = budget - len(families) - for_cells
        families.extend(self._score_families(run.run_id, left, straggling, life))
        left = max(budget - len(families), for_cells)
        families.extend(heat_families(judged.worlds, run, left))
        return families

    def _score_families(
        self, run_id: str, budget: int, straggling: Stragglers, life: ShownLife
    ) -> Families:
        scores = self._runs.get(run_id)
        if scores is None:
            return Families()
        made_for = (budget, straggling, life)
        known = self._rendered.get(run_id)
        if known is None or known[0] != made_for:
            families = scores.families(self._constant_labels, max(budget, 0), straggling, life)
            known = self._rendered[run_id] = (made_for, families)
        return known[1]

    def _newest(self, run_id: str) -> tuple[ShownWindow, ...]:
        """The newest window of every group; their JSON is kept from snapshot to snapshot."""
        scores = self._runs.get(run_id)
        if scores is None:
            return ()
        return tuple(
            self._shown.setdefault(id(window), ShownWindow(window))
            for window in scores.newest_windows()
        )

    def drop_unshown(self) -> None:
        """Let go of windows that no snapshot will show again."""
        newest = {id(w) for scores in self._runs.values() for w in scores.newest_windows()}
        for key in [key for key in self._shown if key not in newest]:
            del self._shown[key]


def _by_run(watched: FleetStatus, constant_labels: str) -> dict[str, Families]:
    """The series that alerts read, by run."""
    found: dict[str, Families] = {}
    for run in watched.runs:
        found.setdefault(run.run_id, Families()).extend(run_families(run, constant_labels))
    return found


def _jobs(worlds: Mapping[str, World], run: ShownRun) -> dict[str, str]:
    """Job name by group, from signs of life or else from scores."""
    jobs = {shown.window.group: shown.window.job for shown in run.windows}
    for group, world in worlds.items():
        jobs.update((group, life.source.job) for life in list(world.ranks.values())[:1])
    return jobs

"""What the collector shows: runs with their scores and signs of life, as immutable snapshots."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from otel_straggler import semconv
from otel_straggler.alerts.watched import Watched, WatchedRun
from otel_straggler.collector.alert_series import collector_families, run_families
from otel_straggler.collector.beside_scores import BesideScores
from otel_straggler.collector.live_series import in_trouble, live_families
from otel_straggler.collector.liveness import Liveness, World
from otel_straggler.collector.newest_scores import NewestScores, newest_scores
from otel_straggler.collector.watching import RunSeen
from otel_straggler.model.alert import Alert
from otel_straggler.model.decision import hang_subject
from otel_straggler.model.maintenance import Maintenance
from otel_straggler.model.rank import Source
from otel_straggler.model.scores import WindowScores
from otel_straggler.model.verdict import RunVerdicts, Verdict
from otel_straggler.publish.alert_json import shown_alert
from otel_straggler.publish.hang_json import hang_json
from otel_straggler.publish.prometheus import Families, constant_labels, labels
from otel_straggler.publish.report_json import (
    Json,
    RunReport,
    dump_report,
    of_one_rank,
    report_json,
    window_json,
)
from otel_straggler.publish.score_series import RunScores, Stragglers
from otel_straggler.publish.shown_life import ShownLife, choose
from otel_straggler.publish.verdict_json import judged_part
from otel_straggler.publish.verdict_series import (
    RunLabels,
    heat_families,
    n_cells,
    straggling_ranks,
    verdict_families,
)
from otel_straggler.score.hangs.judge import Found

AlertsOf = Callable[[str], Iterable[Alert]]
"""Run id to the alerts that fire about it."""
_PART_OF_CELLS = 0.2
"""Of a run's budget of series, that scores leave to the cells of workers: one matrix says more of a
large run than the scores of some hundred healthy ranks."""


class ShownWindow:
    """A closed window and, once somebody has asked, its JSON."""

    def __init__(self, window: WindowScores) -> None:
        self.window = window
        self._json: Json | None = None

    @property
    def json(self) -> Json:
        if self._json is None:
            self._json = window_json(self.window)
        return self._json


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportQuery:
    """Which part of the report is wanted; None = all."""

    run_id: str | None = None
    group: str | None = None
    rank: int | None = None

    @property
    def is_for_all(self) -> bool:
        return self == ALL


ALL = ReportQuery()


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownRun:
    """One run of the report."""

    windows: tuple[ShownWindow, ...] = ()
    judged: RunVerdicts = field(default_factory=RunVerdicts)
    clashes: tuple[Source, ...] = ()
    late_rows: int = 0
    found: Mapping[str, Found] = field(default_factory=dict)

    def windows_of(self, group: str | None) -> list[ShownWindow]:
        """Those of one group, or all."""
        return [shown for shown in self.windows if group in (None, shown.window.group)]


class ReportSnapshot:
    """The report at one moment. Its JSON is made when first asked for, then kept: the windows
    of a large run change more often than anybody looks."""

    def __init__(
        self,
        runs: dict[str, ShownRun],
        watched: Iterable[WatchedRun] = (),
        alerts: AlertsOf = lambda _: (),
    ) -> None:
        self._runs = runs
        self._alerts = alerts
        self._watched = {(run.run_id, run.group): run for run in watched}
        self._lock = threading.Lock()
        self._body: bytes | None = None

    @property
    def body(self) -> bytes:
        with self._lock:
            if self._body is None:
                self._body = dump_report(self._json()).encode()
            return self._body

    def verdicts_of(self, run_id: str) -> tuple[Verdict, ...]:
        """The newest verdict of every subject of a run; none of a run that is not known."""
        run = self._runs.get(run_id)
        return () if run is None else run.judged.current

    def hangs_of(self, run_id: str) -> Mapping[str, Found]:
        """Who is stuck or lost in a run, by group; none of a run that is not known."""
        run = self._runs.get(run_id)
        return {} if run is None else run.found

    def part(self, query: ReportQuery) -> bytes:
        """What a query asks for. Cost: O(size of the answer), once the windows have their JSON."""
        if query.is_for_all:
            return self.body
        with self._lock:
            return dump_report(self._json(query)).encode()

    def _json(self, query: ReportQuery = ALL) -> Json:
        return report_json(
            {
                run_id: RunReport(
                    windows=[_part_of(shown, query) for shown in run.windows_of(query.group)],
                    judged=_judged_part(run, query),
                    clashes=run.clashes,
                    counts={"late": run.late_rows},
                    hangs=[
                        hang_json(
                            group,
                            found,
                            is_acknowledged=hang_subject(group) in run.judged.silenced,
                        )
                        | self._alerting(run_id, group)
                        for group, found in run.found.items()
                        if query.group in (None, group)
                    ],
                    alerts=[
                        shown_alert(alert)
                        for alert in self._alerts(run_id)
                        if _is_asked_for(alert, query)
                    ],
                )
                for run_id, run in self._runs.items()
                if query.run_id in (None, run_id)
            }
        )

    def _alerting(self, run_id: str, group: str) -> Json:
        run = self._watched.get((run_id, group))
        return {} if run is None else {"hung": run.is_hung, "pages": run.pages}


def _is_asked_for(alert: Alert, query: ReportQuery) -> bool:
    """All but what is about another group or another rank."""
    group, rank = alert.labels.get("group", ""), alert.labels.get("rank")
    return query.group in (None, group) and (query.rank is None or rank in (None, str(query.rank)))


def _part_of(shown: ShownWindow, query: ReportQuery) -> Json:
    if query.rank is None:
        return shown.json
    group = shown.window.group
    return of_one_rank(shown.json, f"{group}/{query.rank}" if group else str(query.rank))


def _judged_part(run: ShownRun, query: ReportQuery) -> RunVerdicts:
    if query.group is None and query.rank is None:
        return run.judged
    nodes = {
        source.node
        for shown in run.windows_of(query.group)
        for source in shown.window.sources
        if source.rank == query.rank
    }
    return judged_part(
        run.judged, group=query.group, rank=query.rank, is_its_node=nodes.__contains__
    )


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What scrapes and pages read; the parts never change, but for the signs of life within
    ``seen``, which the scoring thread goes on writing."""

    page: bytes = b""
    report: ReportSnapshot = field(default_factory=lambda: ReportSnapshot({}))
    runs: int = 0
    watched: Watched = field(default_factory=lambda: Watched(now_s=0.0, collector=""))
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
            self._have_changed(run_id)

    def _have_changed(self, run_id: str) -> None:
        """The scores of a run."""
        self._rendered.pop(run_id, None)
        self._newest_scores.pop(run_id, None)

    def snapshot(
        self,
        liveness: Liveness,
        clashes: dict[str, tuple[Source, ...]],
        late_rows: dict[str, int],
        judged: Callable[[str], RunVerdicts],
        found: Callable[[str], Mapping[str, Found]],
        watch: Callable[[Iterable[RunSeen]], Watched],
        maintenance: Iterable[Maintenance] = (),
    ) -> Snapshot:
        """Everything as it stands.

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
        page = collector_families(watched, maintenance, self._constant_labels)
        alerting = _by_run(watched, self._constant_labels)
        for each in seen:
            page.extend(self._families(each, alerting.get(each.run_id, Families())))
        report = ReportSnapshot(shown, watched.runs, self._alerts)
        return Snapshot(page.render(), report, len(shown), watched, tuple(seen), maintenance)

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
        families = live_families(seen.run_id, seen.worlds, self._constant_labels, seen.found, life)
        families.extend(alerting)
        named = RunLabels(run_id=seen.run_id, jobs=seen.jobs, constant=self._constant_labels)
        families.extend(self._beside.of_run(named))
        left = self._budget - len(families)
        families.extend(self._judged_families(seen.judged, named, left, life))
        self._add_clashes(families, seen)
        left = self._budget - len(families)
        families.extend(self._beside.of_ranks(named, seen.worlds, left, straggling))
        return families

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
        """Verdicts, then scores, then workers, each within what is left of the budget, of which a
        part is kept for workers."""
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


def _by_run(watched: Watched, constant_labels: str) -> dict[str, Families]:
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

"""The text of /metrics, run by run, within the budget of series."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Final, TypeAlias

from otel_straggler import semconv
from otel_straggler.alerts.rule import OVER
from otel_straggler.collector.metrics.exemplars import exemplar_of
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
from otel_straggler.collector.runs.failures import RunGuard
from otel_straggler.collector.runs.run import Run
from otel_straggler.collector.runs.store import RunStore
from otel_straggler.collector.settings import MetricsSettings
from otel_straggler.collector.views.run_view import RunView
from otel_straggler.collector.views.snapshot import Snapshot
from otel_straggler.model.verdict import RunVerdicts

_PART_OF_CELLS: Final = 0.25
"""Part of a run's budget of series reserved for cells of workers: the matrix of a large run says
more than the scores of some hundred healthy ranks."""
SeriesShares: TypeAlias = Callable[[Mapping[str, int], int], Mapping[str, int]]


class MetricsText:
    """Owned by one thread.

    Args:
        has_sent: whether a trace was forwarded, so that exemplars may name it; None: none is.
        series_shares: the most series of each run, by what each would need and the share of all.
    """

    def __init__(
        self,
        settings: MetricsSettings,
        store: RunStore,
        guard: RunGuard,
        series_shares: SeriesShares = dict.fromkeys,
        has_sent: Callable[[bytes], bool] | None = None,
    ) -> None:
        self._store, self._guard = store, guard
        self._has_sent = has_sent
        self._series_shares = series_shares
        self._budget = settings.series_budget
        self._cluster = settings.cluster
        self._constant = constant_labels("")

    def sign(self, collector_id: str) -> None:
        self._constant = constant_labels(collector_id, self._cluster)

    def text(self, snapshot: Snapshot) -> bytes:
        """Of the newest snapshot, without runs that were evicted since."""
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
            make = partial(self._families, run, view, families, shares[run.run_id])
            made = self._guard.attempt(run.run_id, "", "series", make)
            if made is None:
                run.shown.drop_series()
            page.extend(families if made is None else made)
        return page.render()

    def _families(self, run: Run, view: RunView, alerting: Families, budget: int) -> Families:
        """All series of a run: those that are never folded, then the rest within the budget."""
        straggling = straggling_ranks(_of_live_groups(view))
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
        self._add_exemplars(families, view, named)
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
        run_verdicts = _of_live_groups(view)

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

    def _add_exemplars(self, families: Families, view: RunView, named: RunLabels) -> None:
        if self._has_sent is None:
            return
        for shown in view.windows:
            if exemplar := exemplar_of(shown.window, self._has_sent):
                families.attach(semconv.RUN_GPU_TIME_LOST, named.of(shown.window.group), exemplar)

    def _score_families(self, run: Run, view: RunView, budget: int, life: ShownLife) -> Families:
        shown = budget, straggling_ranks(_of_live_groups(view)), life, view.ahead_s

        def make() -> Families:
            return run.scores.families(self._constant, max(budget, 0), *shown[1:])

        return run.shown.series("scores", shown, make)


def _series_needed(run: Run) -> int:
    """At least those of its ranks: a run may be new."""
    statuses = (world.liveness.status for world in run.worlds.values())
    ranks = sum(len(status.ranks) for status in statuses if status is not None)
    return max(run.shown.series_needed, ranks * len(KINDS))


def _of_live_groups(view: RunView) -> RunVerdicts:
    """Verdicts end with their run: what stood at its end stays in its report. The same object while
    no group is over, as of a series that has not changed."""
    over = {group for group, hang in view.hangs.items() if hang.state in OVER}
    run_verdicts = view.run_verdicts
    if not any(verdict.group in over for verdict in run_verdicts.changes):
        return run_verdicts
    changes = tuple(v for v in run_verdicts.changes if v.group not in over)
    return replace(run_verdicts, changes=changes)


def _shown_life(run: Run, view: RunView, straggling: Stragglers, budget: int) -> ShownLife:
    alive = [(group, rank) for group, world in view.worlds.items() for rank in world.ranks]
    return choose([*alive, *run.scores.ranks()], in_trouble(view, straggling), budget)

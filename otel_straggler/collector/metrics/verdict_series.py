"""Verdicts as series: stragglers and causes, the loss of the run, waits. Only standing verdicts
(suspect, confirmed, flapping) are shown; the report has the others."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from otel_straggler import semconv
from otel_straggler.collector.metrics.families import Families, labels
from otel_straggler.collector.metrics.series_choice import QUANTILES, add_quantiles_of
from otel_straggler.collector.views.verdict_json import MAX_VERDICTS, standing
from otel_straggler.model.rank import Source
from otel_straggler.model.verdict import CALLED_SLOW, RunVerdicts, Verdict, WorldSummary


def straggling_ranks(run_verdicts: RunVerdicts) -> frozenset[tuple[str, int]]:
    result = ((v.group, v.rank) for v in run_verdicts.current if _is_called_slow(v, "rank"))
    return frozenset((group, rank) for group, rank in result if rank is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunLabels:
    """Labels of a run's series: job names by group, and text that ends every line."""

    run_id: str
    jobs: Mapping[str, str]
    constant: str

    def of(self, group: str, **further: object) -> str:
        job = self.jobs.get(group, "")
        text = labels(run_id=self.run_id, job_name=job, group=group, **further)
        return f"{text},{self.constant}"


def verdict_families(
    run_verdicts: RunVerdicts, sources: Iterable[Source], run: RunLabels
) -> Families:
    """Series that are never folded: verdicts, nodes, worlds, and waits."""
    families = Families()
    stands = _that_stay(standing(run_verdicts.current))
    for verdict in stands[:MAX_VERDICTS]:
        _add_verdict(
            families, verdict, run, is_silenced=verdict.subject_id in run_verdicts.silenced
        )
    _add_folded(families, semconv.VERDICT_INFO, len(stands) - MAX_VERDICTS, run)
    _add_hosts(families, run_verdicts, sources, run)
    for world in run_verdicts.worlds:
        _add_world(families, world, run)
        _add_waits(families, world, run)
    for group in run.jobs.keys() - {world.group for world in run_verdicts.worlds}:
        families.add(semconv.RUN_GPU_TIME_LOST, run.of(group), 0.0)
    return families


def _that_stay(stands: list[Verdict]) -> list[Verdict]:
    """Of more than can be shown the costliest would be others in each window, and an alert needs a
    minute of the same ones: those that notify people first, then by name."""
    if len(stands) <= MAX_VERDICTS:
        return stands
    return sorted(stands, key=lambda verdict: (not verdict.pages, verdict.subject_id))


def n_cells(worlds: Sequence[WorldSummary]) -> int:
    return sum(math.isfinite(slowdown) for world in worlds for _, _, slowdown in world.heat)


def heat_families(worlds: Sequence[WorldSummary], run: RunLabels, budget: int) -> Families:
    """Cells of workers, slowest first; quantiles replace those beyond the budget."""
    families = Families()
    cells = [
        (slowdown, stage, data, world.group)
        for world in worlds
        for stage, data, slowdown in world.heat
        if math.isfinite(slowdown)
    ]
    room = budget - 1
    if len(cells) > room:
        room = max(0, room - len(QUANTILES) * len(worlds))
        cells.sort(reverse=True)
        _add_quantiles(families, worlds, run)
    for slowdown, stage, data, group in cells[:room]:
        text = run.of(group, data_rank=data, pipeline_stage=stage)
        families.add(semconv.WORKER_SLOWDOWN, text, slowdown)
    _add_folded(families, semconv.WORKER_SLOWDOWN, len(cells) - room, run)
    return families


def _add_quantiles(families: Families, worlds: Sequence[WorldSummary], run: RunLabels) -> None:
    over = semconv.OVER_RANKS[semconv.WORKER_SLOWDOWN.name]
    for world in worlds:
        slowdowns = np.array([slowdown for _, _, slowdown in world.heat], np.float64)
        add_quantiles_of(families, over, run.of(world.group), slowdowns)


def _add_folded(families: Families, metric: semconv.Metric, count: int, run: RunLabels) -> None:
    text = labels(run_id=run.run_id, family=metric.prometheus_name)
    families.add(semconv.COLLECTOR_SERIES_FOLDED, f"{text},{run.constant}", max(0, count))


# --- verdicts ----------------------------------------------------------------------------------


def _is_called_slow(verdict: Verdict, scope: str) -> bool:
    return verdict.scope == scope and verdict.state in CALLED_SLOW


def _add_verdict(
    families: Families, verdict: Verdict, run: RunLabels, *, is_silenced: bool
) -> None:
    subject = {
        "subject_id": verdict.subject_id,
        "scope": verdict.scope,
        "rank": "" if verdict.rank is None else verdict.rank,
        "node": verdict.node,
        "role": verdict.role,
        "section": verdict.section,
    }
    why = {"cause": verdict.cause, "state": verdict.state, "evidence": verdict.evidence}
    families.add(semconv.VERDICT_INFO, run.of(verdict.group, **subject, **why), 1)
    if verdict.state not in CALLED_SLOW:
        return
    text = run.of(verdict.group, **subject)
    gpus = verdict.gpu_seconds_lost_per_hour / 3600.0
    _add_known(families, semconv.VERDICT_SLOWDOWN, text, verdict.slowdown)
    _add_known(families, semconv.VERDICT_LOSS, text, gpus)
    families.add(semconv.VERDICT_PAGES, text, int(verdict.pages))
    if verdict.since_ns:
        families.add(semconv.VERDICT_SINCE, text, verdict.since_ns // 10**9)
    families.add(semconv.VERDICT_SILENCED, text, int(is_silenced))


def _add_hosts(
    families: Families, run_verdicts: RunVerdicts, sources: Iterable[Source], run: RunLabels
) -> None:
    called = {(v.group, v.node) for v in run_verdicts.current if _is_called_slow(v, "host")}
    nodes = dict.fromkeys((source.group, source.node) for source in sources if source.node)
    for group, node in {**nodes, **dict.fromkeys(called)}:
        text = run.of(group, node=node)
        families.add(semconv.HOST_STRAGGLING, text, int((group, node) in called))


# --- worlds ------------------------------------------------------------------------------------


def _add_world(families: Families, world: WorldSummary, run: RunLabels) -> None:
    for metric, value in (
        (semconv.RUN_SLOWDOWN, world.slowdown),
        (semconv.RUN_WASTE, world.waste),
        (semconv.RUN_M_W, world.m_w),
        (semconv.RUN_M_S, world.m_s),
        (semconv.RUN_STEP_TIME, world.step_s),
        (semconv.RUN_SLOWEST_STEP, world.slowest_step_s),
        (semconv.RUN_RESOLVABLE, world.resolvable_slowdown),
        (semconv.RUN_GPU_TIME_LOST, world.gpu_seconds_lost),
    ):
        _add_known(families, metric, run.of(world.group), value)
    for cost in world.ledger:
        text = run.of(world.group, section=cost.section)
        _add_known(families, semconv.SECTION_EXPOSED, text, cost.exposed_s)


def _add_waits(families: Families, world: WorldSummary, run: RunLabels) -> None:
    for waits in world.waits:
        text = run.of(world.group, rank=waits.rank, node=waits.node, role=waits.role)
        _add_known(families, semconv.CAUSED_WAIT, text, waits.caused_s)
        _add_known(families, semconv.SUFFERED_WAIT, text, waits.suffered_s)


def _add_known(families: Families, metric: semconv.Metric, text: str, value: float) -> None:
    if math.isfinite(value):
        families.add(metric, text, value)

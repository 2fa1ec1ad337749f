"""What is shown beside scores and signs of life: sensors, kernels, checkpoints, goodput."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from otel_straggler import semconv
from otel_straggler.collector.kernel_totals import KernelTotals
from otel_straggler.collector.liveness import World
from otel_straggler.collector.told_numbers import ToldNumbers
from otel_straggler.collector.told_series import goodput_families, kernel_families, sensor_families
from otel_straggler.model.observation import ObservationBatch
from otel_straggler.model.rank import Source
from otel_straggler.publish.prometheus import Families
from otel_straggler.publish.score_series import Stragglers
from otel_straggler.publish.verdict_series import RunLabels
from otel_straggler.wire.metric_rules import DecodedMetrics

_APART_S = 5.0
"""Without steps, checkpoints that end so close to each other are one."""


class BesideScores:
    """Owned by the worker's thread; time is an argument."""

    def __init__(self) -> None:
        self._told = ToldNumbers()
        self._kernels = KernelTotals()
        self._checkpoints = Checkpoints()

    def take(self, metrics: DecodedMetrics, now_s: float) -> None:
        self._told.take(metrics.told, now_s)
        if metrics.kernel_times is not None:
            self._kernels.take(metrics.kernel_times)

    def note(self, batch: ObservationBatch) -> None:
        """Look for checkpoints among section runs."""
        self._checkpoints.note(batch)

    def forget(self, run_ids: Iterable[str]) -> None:
        gone = tuple(run_ids)
        for each in (self._told, self._kernels, self._checkpoints):
            each.forget(gone)

    def forget_group(self, run_id: str, group: str) -> None:
        for each in (self._told, self._kernels, self._checkpoints):
            each.forget_group(run_id, group)

    def drop_old(self, now_s: float) -> None:
        self._told.drop_old(now_s)

    def of_run(self, run: RunLabels) -> Families:
        """What is never folded."""
        families = goodput_families(self._told.goodput(run.run_id), run.constant)
        for group, ended_at_s in self._checkpoints.of_run(run.run_id).items():
            families.add(semconv.RUN_CHECKPOINT, run.of(group), ended_at_s)
        return families

    def of_ranks(
        self, run: RunLabels, worlds: Mapping[str, World], budget: int, straggling: Stragglers
    ) -> Families:
        """Sensors, then kernels, of ranks of the newest attempt, within a budget of series."""

        def is_there(source: Source) -> bool:
            world = worlds.get(source.group)
            return world is None or (world.attempt == source.attempt and source.rank in world.ranks)

        sensors = [r for r in self._told.hardware(run.run_id) if is_there(r.source)]
        families = sensor_families(sensors, budget, straggling, run.run_id, run.constant)
        kernels = [r for r in self._kernels.of_run(run.run_id) if is_there(r.source)]
        left = budget - len(families)
        families.extend(kernel_families(kernels, left, straggling, run.run_id, run.constant))
        return families


class Checkpoints:
    """When the newest checkpoint of each world ended, by the rank that told it first: ranks end it
    at slightly different times, and each time would be a mark of its own on a page."""

    def __init__(self) -> None:
        self._newest: dict[str, dict[str, tuple[int, int, float]]] = {}

    def note(self, batch: ObservationBatch) -> None:
        """Cost: nothing where no section is a checkpoint."""
        kinds = np.array([section.kind == "checkpoint" for section in batch.sections], bool)
        if not kinds.any():
            return
        rows = np.flatnonzero(kinds[batch.section])
        ends_s = (batch.start_ns[rows] * 1e-9 + batch.duration_s[rows]).tolist()
        codes, steps = batch.source[rows].tolist(), batch.step[rows].tolist()
        for code, step, end_s in zip(codes, steps, ends_s, strict=True):
            self._take(batch.sources[code], step, end_s)

    def of_run(self, run_id: str) -> dict[str, float]:
        """By group, seconds since 1970."""
        found = self._newest.get(run_id, {})
        return {group: end_s for group, (_, _, end_s) in found.items()}

    def forget(self, run_ids: Iterable[str]) -> None:
        for run_id in run_ids:
            self._newest.pop(run_id, None)

    def forget_group(self, run_id: str, group: str) -> None:
        self._newest.get(run_id, {}).pop(group, None)

    def _take(self, source: Source, step: int, end_s: float) -> None:
        groups = self._newest.setdefault(source.run_id, {})
        attempt, newest, ended_s = groups.get(source.group, (-1, -1, 0.0))
        if (source.attempt, step) > (attempt, newest) or (
            step < 0 and source.attempt == attempt and end_s > ended_s + _APART_S
        ):
            groups[source.group] = source.attempt, step, end_s

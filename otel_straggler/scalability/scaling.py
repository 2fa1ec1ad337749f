"""Speedup and efficiency of runs that differ in their size."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from otel_straggler.scalability.projection import Projection, project
from otel_straggler.scalability.runs import Key, ScalingRun
from otel_straggler.scalability.timeline import TimeShares

EPOCH, SAMPLES, TOKENS, STEP = "epoch time", "samples/s", "tokens/s", "step time"
"""What a speedup rests on."""


@dataclass(frozen=True, slots=True)
class Statistic:
    """A mean over runs; ``deviation``: standard deviation between them, NaN of a single run."""

    mean: float = math.nan
    deviation: float = math.nan

    @property
    def is_known(self) -> bool:
        return not math.isnan(self.mean)

    @classmethod
    def of(cls, values: Sequence[float]) -> Statistic:
        known = [value for value in values if not math.isnan(value)]
        if not known:
            return cls()
        deviation = float(np.std(known, ddof=1)) if len(known) > 1 else math.nan
        return cls(float(np.mean(known)), deviation)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingPoint:
    """All runs of a strategy and size.

    Attributes:
        epoch_s: mean of all epochs of all runs, as itwinai has it.
        speedup: time of the smallest size / time of this one; efficiency: of the ideal speedup.
        basis: what these rest on; empty where nothing was measured.
    """

    key: Key
    runs: tuple[str, ...]
    epochs: int
    epoch_s: Statistic
    step_s: Statistic
    samples_per_s: Statistic
    tokens_per_s: Statistic
    utilization: Statistic
    power_w: Statistic
    energy_wh: Statistic
    computation: Statistic
    time: TimeShares | None
    speedup: Statistic = field(default_factory=Statistic)
    efficiency: float = math.nan
    basis: str = ""


@dataclass(frozen=True, slots=True)
class ScalingReport:
    """Points by strategy, unit and size; projections of the strategies that have two sizes."""

    points: tuple[ScalingPoint, ...]
    projections: dict[tuple[str, str], Projection]


def scaling_report(runs: Sequence[ScalingRun]) -> ScalingReport:
    """Compare runs. Cost: O(runs + epochs)."""
    by_key: dict[Key, list[ScalingRun]] = {}
    for run in runs:
        by_key.setdefault(run.key, []).append(run)
    lines: dict[tuple[str, str], list[Key]] = {}
    for key in sorted(by_key):
        lines.setdefault((key.strategy, key.unit), []).append(key)
    points: list[ScalingPoint] = []
    projections: dict[tuple[str, str], Projection] = {}
    for line, keys in lines.items():
        basis, times = _times(by_key, keys)
        points += (_point(key, by_key[key], basis, times, keys[0]) for key in keys)
        each = [(key.size, time_s) for key in keys for time_s in times.get(key, [])]
        result = project([size for size, _ in each], [time_s for _, time_s in each])
        if result is not None:
            projections[line] = result
    return ScalingReport(tuple(points), projections)


_BASES: dict[str, Callable[[ScalingRun], float]] = {
    EPOCH: lambda run: _mean(run.epochs_s),
    SAMPLES: lambda run: 1.0 / run.samples_per_s,
    TOKENS: lambda run: 1.0 / run.tokens_per_s,
    STEP: lambda run: run.step_s,
}
"""Time of a run for an amount of work that is the same for all sizes, the best one first; the last
one only if the batch of all ranks together is the same."""


def _times(
    by_key: dict[Key, list[ScalingRun]], keys: Sequence[Key]
) -> tuple[str, dict[Key, list[float]]]:
    """Times of all runs by the first basis that every size has, else by that most of them have."""
    best: tuple[str, dict[Key, list[float]]] = "", {}
    for basis, time_of in _BASES.items():
        times = {key: _positive([time_of(run) for run in by_key[key]]) for key in keys}
        times = {key: values for key, values in times.items() if values}
        if len(times) > len(best[1]):
            best = basis, times
    return best


def _point(
    key: Key,
    runs: Sequence[ScalingRun],
    basis: str,
    times: dict[Key, list[float]],
    first: Key,
) -> ScalingPoint:
    def of(value: Callable[[ScalingRun], float]) -> Statistic:
        return Statistic.of([value(run) for run in runs])

    known = [run.time for run in runs if run.time is not None]
    speedup = _speedup(times, first, key)
    return ScalingPoint(
        key=key,
        runs=tuple(dict.fromkeys(run.name for run in runs)),
        epochs=sum(len(run.epochs_s) for run in runs),
        epoch_s=_epoch_time(runs),
        step_s=of(lambda run: run.step_s),
        samples_per_s=of(lambda run: run.samples_per_s),
        tokens_per_s=of(lambda run: run.tokens_per_s),
        utilization=of(lambda run: run.utilization),
        power_w=of(lambda run: run.power_w),
        energy_wh=of(lambda run: run.energy_wh),
        computation=of(lambda run: run.computation),
        time=sum(known[1:], known[0]) if known else None,
        speedup=speedup,
        efficiency=speedup.mean * first.size / key.size,
        basis=basis if speedup.is_known else "",
    )


def _epoch_time(runs: Sequence[ScalingRun]) -> Statistic:
    """The mean of all epochs, and how much runs differ."""
    each = _positive([epoch_s for run in runs for epoch_s in run.epochs_s])
    return Statistic(_mean(each), Statistic.of([_mean(run.epochs_s) for run in runs]).deviation)


def _speedup(times: dict[Key, list[float]], first: Key, key: Key) -> Statistic:
    """Against the smallest size; its deviation is that of the times at ``key``."""
    if first not in times or key not in times:
        return Statistic()
    time = Statistic.of(times[key])
    mean = _mean(times[first]) / time.mean
    return Statistic(mean, mean * time.deviation / time.mean)


def _positive(values: Sequence[float]) -> list[float]:
    return [value for value in values if 0.0 < value < math.inf]


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values)) if values else math.nan

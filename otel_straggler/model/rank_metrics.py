"""Metrics that ranks send: heartbeats, section histograms, and pass-through metrics."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import numpy as np

from otel_straggler.model.observation import Floats, Ints, Section
from otel_straggler.model.rank import Source
from otel_straggler.semconv import Metric, Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """One metrics request of one rank. ``None`` or empty: it did not carry the value.

    Attributes:
        sent_at_s, progress_at_s: the sender's wall clock now, and when it last progressed.
        step: last step begun.
        open_section, open_time_s: the innermost open section and its age; "step" between sections
            of an open step, with the time since the last one ended.
        phase: declared phase.
        finished_at_s, outcome: set once the rank has ended.
        dropped: records lost so far in this session, by reason.
        folded: section runs sent in folded spans so far, by section.
        gpu_tier, gpu_reason: how the rank is timed on its GPU, and why not better.
        page: whether the run may page people.
        team: whose run it is.
        is_ending: SIGTERM was received, and the rank's own handler decides what follows.
        pid: of its process, in its own PID namespace; 0 if not reported.
    """

    source: Source
    sent_at_s: float | None = None
    progress_at_s: float | None = None
    step: int | None = None
    open_section: str = ""
    open_time_s: float | None = None
    phase: str = ""
    finished_at_s: float | None = None
    outcome: Outcome | None = None
    dropped: dict[str, int] = field(default_factory=dict)
    folded: dict[str, int] = field(default_factory=dict)
    gpu_tier: str = ""
    gpu_reason: str = ""
    page: bool | None = None
    team: str = ""
    is_ending: bool = False
    pid: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuUsage:
    """What the sensors of a run's GPUs reported since its collector started; NaN is unknown.

    Attributes:
        utilization: 0 to 1, mean of all readings.
        power_w: of all GPUs together; energy_wh: by their counters, else the integral of the power.
    """

    gpus: int = 0
    utilization: float = math.nan
    power_w: float = math.nan
    energy_wh: float = math.nan


@dataclass(frozen=True, slots=True)
class PassthroughMetric:
    """One data point of a metric of ``semconv.PASSTHROUGH_METRICS``: values of its label attributes
    in order, and a finite value >= 0."""

    source: Source
    metric: Metric
    values: tuple[str, ...]
    value: float


Edges: TypeAlias = tuple[Floats, Floats, Ints]
"""Lower and upper edges in seconds, and counts, of filled buckets, ascending."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Buckets:
    """Counts of times by length: explicit or exponential buckets.

    Attributes:
        counts: (n,) runs per bucket.
        bounds: (n - 1,) explicit upper bounds of all buckets but the last, in ``unit_s``.
        scale: of exponential buckets, where bucket i ends at 2 ** ((i + 1) / 2 ** scale); None for
            explicit ones.
        first: index of the first exponential bucket.
        zero, zero_bound: runs at or below a bound that passes for 0 in exponential buckets.
        sum: of all times, None if unknown.
        unit_s: seconds per unit of bounds and sum.
    """

    counts: Ints
    bounds: tuple[float, ...] = ()
    scale: int | None = None
    first: int = 0
    zero: int = 0
    zero_bound: float = 0.0
    sum: float | None = None
    unit_s: float = 1.0

    def __len__(self) -> int:
        """Runs counted."""
        return int(self.counts.sum()) + self.zero

    @property
    def sum_s(self) -> float | None:
        return None if self.sum is None else self.sum * self.unit_s

    def minus(self, older: Buckets) -> Buckets | None:
        """Counts since ``older``; None if it is not an earlier state, possibly of a finer scale."""
        if (self.scale is None) != (older.scale is None) or self.unit_s != older.unit_s:
            return None
        before = self._older_counts(older)
        if before is None:
            return None
        counts, zero = self.counts - before, self.zero - older.zero
        if zero < 0 or (counts < 0).any():
            return None
        known = self.sum is not None and older.sum is not None
        total = self.sum - older.sum if known else None  # type: ignore[operator]
        return replace(self, counts=counts, zero=zero, sum=total)

    def _older_counts(self, older: Buckets) -> Ints | None:
        """Counts of ``older`` in these buckets; None if they do not fit."""
        if self.scale is None or older.scale is None:
            return older.counts if self.bounds == older.bounds else None
        finer = older.scale - self.scale
        filled = np.flatnonzero(older.counts)
        index = ((filled + older.first) >> finer) - self.first if finer >= 0 else None
        if index is None or ((index < 0) | (index >= len(self.counts))).any():
            return None
        return np.bincount(
            index, weights=older.counts[filled].astype(float), minlength=len(self.counts)
        ).astype(np.int64)

    def edges(self) -> Edges:
        """Filled buckets; the last explicit one ends at infinity."""
        lower, upper = self._all_edges()
        counts = self.counts
        if self.scale is not None and self.zero:
            lower, upper = np.append(0.0, lower), np.append(self.zero_bound, upper)
            counts = np.append(self.zero, counts)
        filled = counts > 0
        edges_s = np.maximum(lower[filled], 0.0), np.maximum(upper[filled], 0.0)
        return edges_s[0] * self.unit_s, edges_s[1] * self.unit_s, counts[filled]

    def _all_edges(self) -> tuple[Floats, Floats]:
        if self.scale is None:
            bounds = np.array([0.0, *self.bounds, np.inf])
            return bounds[:-1], bounds[1:]
        index = np.arange(self.first, self.first + len(self.counts) + 1)
        bounds = np.exp2(index * 2.0**-self.scale)
        return bounds[:-1], bounds[1:]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SectionTimes:
    """Times of one rank in one section, over an interval.

    Attributes:
        start_ns, end_ns: on the sender's clock; start is 0 if unknown.
        is_cumulative: counts are since ``start_ns``, and later points contain them.
        min_s, max_s: bounds of the times; None if unknown.
    """

    source: Source
    section: Section
    start_ns: int
    end_ns: int
    is_cumulative: bool
    buckets: Buckets
    min_s: float | None = None
    max_s: float | None = None

"""Rules for data points, shared by both ways of reading metrics requests."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np

from otel_straggler import semconv
from otel_straggler.model.kernels import KernelCell, KernelTimes, KernelTimesBuilder
from otel_straggler.model.launch_event import LaunchEvent
from otel_straggler.model.names import clean_name
from otel_straggler.model.observation import Kernel, Section, kernel_class_of
from otel_straggler.model.rank import Source
from otel_straggler.model.rank_metrics import (
    Buckets,
    Heartbeat,
    PassthroughMetric,
    SectionTimes,
)
from otel_straggler.otlp.identity import (
    BAD_RANK,
    NO_RANK,
    RESOURCE_TOO_LARGE,
    Aliases,
    Value,
    Values,
    as_bool,
)
from otel_straggler.otlp.span_rules import section_of
from otel_straggler.semconv import Outcome

USED, SECTION_TIMES, UNKNOWN, MALFORMED = "used", "section_times", "unknown", "malformed"
KERNEL_TIMES, NOT_DELTA = "kernel_times", "not_delta"
USES = (
    *(USED, SECTION_TIMES, UNKNOWN, NO_RANK, BAD_RANK, MALFORMED, KERNEL_TIMES, NOT_DELTA),
    RESOURCE_TOO_LARGE,
)
"""Outcomes of a point."""
_REJECTED = frozenset({BAD_RANK, MALFORMED, NOT_DELTA, RESOURCE_TOO_LARGE})

_MAX_S = 2.0**63 / 1e9
_MAX_STEP = 2.0**62
_DELTA, _CUMULATIVE = 1, 2
NUMBERS = {
    semconv.HEARTBEAT.name: _MAX_S,
    semconv.PROGRESS.name: _MAX_S,
    semconv.PROGRESS_STEP.name: _MAX_STEP,
    semconv.SECTION_OPEN.name: _MAX_S,
    semconv.RANK_FINISHED.name: _MAX_S,
}
"""Metrics that make a heartbeat, in the order in which C++ gives them, and their largest values."""
COUNTS = {
    semconv.RECORDS_DROPPED.name: (semconv.REASON, 100),
    semconv.RECORDS_FOLDED.name: (semconv.SECTION, 200),
}
"""Metrics that count by an attribute: the attribute, and how many counts are kept."""
MAX_VALUES = {**NUMBERS, **dict.fromkeys(COUNTS, _MAX_STEP)}
HEARTBEAT_METRICS = frozenset((*MAX_VALUES, semconv.RANK_INFO.name))
_PASSTHROUGH: Final = {metric.name: metric for metric in semconv.PASSTHROUGH_METRICS}
DATA_OF = {
    **dict.fromkeys((*HEARTBEAT_METRICS, *_PASSTHROUGH), ("gauge", "sum")),
    semconv.SECTION_DURATION.name: ("histogram", "exponential_histogram"),
    semconv.KERNEL_DURATION.name: ("exponential_histogram",),
}
"""Kinds of data in which a metric may come."""
TEXTS = (semconv.SECTION, semconv.PHASE, semconv.OUTCOME)
"""Attributes of a number's point that are texts of the heartbeat, in C++'s order, too."""


class RankDescription(NamedTuple):
    """A rank's description of itself, apart from its identity; see :class:`Heartbeat`."""

    gpu_tier: str
    gpu_reason: str
    page: bool | None
    team: str
    is_ending: bool
    pid: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodedMetrics:
    """One metrics request: heartbeats, times of sections and kernels, metrics that pass through,
    events of launchers (from a request of log records), and data points by use: ``used`` points
    make heartbeats or pass through, ``unknown`` ones are metrics of others (or no numbers),
    ``no_rank`` ones of ours do not name a sender, ``not_delta`` are kernel histograms that are not
    deltas."""

    heartbeats: tuple[Heartbeat, ...]
    section_times: tuple[SectionTimes, ...] = ()
    kernel_times: KernelTimes | None = None
    passthrough: tuple[PassthroughMetric, ...] = ()
    launches: tuple[LaunchEvent, ...] = ()
    points: dict[str, int]

    @property
    def rejected(self) -> dict[str, int]:
        return {use: count for use, count in self.points.items() if use in _REJECTED and count}

    def run_ids(self) -> set[str]:
        parts = (self.heartbeats, self.section_times, self.passthrough)
        kernels = () if self.kernel_times is None else self.kernel_times.sources
        senders = (one.source for part in parts for one in part)
        of_ranks = {source.run_id for source in (*senders, *kernels)}
        return of_ranks | {event.run_id for event in self.launches}


def outcome_of(finished_at_s: float | None, outcome: str) -> Outcome | None:
    """How a process has ended; None if it has not."""
    known: Outcome = outcome if outcome in semconv.OUTCOMES else "unknown"
    return None if finished_at_s is None else known


def describe_rank(description: Values, resource: Values) -> RankDescription:
    tier = description.get(semconv.GPU_TIMING_TIER)
    reason = description.get(semconv.GPU_TIMING_REASON) if tier in semconv.GPU_TIERS else None
    page = as_bool(description.get(semconv.RUN_PAGE))
    team = description.get(semconv.TEAM) or resource.get(semconv.TEAM)
    return RankDescription(
        gpu_tier=str(tier) if tier in semconv.GPU_TIERS else "",
        gpu_reason=as_text(reason) if isinstance(reason, str) else "",
        page=as_bool(resource.get(semconv.RUN_PAGE)) if page is None else page,
        team=as_text(str(team)) if team else "",
        is_ending=bool(as_bool(description.get(semconv.RANK_ENDING))),
        pid=_as_pid(resource.get(semconv.PROCESS_PID)),
    )


def _as_pid(value: Value) -> int:
    return value if type(value) is int and 0 < value <= _MAX_PID else 0


def as_text(value: str) -> str:
    return clean_name(value)


def count_name(name: Value) -> str:
    return clean_name(str(name or "unknown"))


_MAX_NUMBER: Final = 2.0**63
_MAX_PID: Final = 2**22
"""The largest that Linux gives."""
_PASSTHROUGH_NAMES: Final = tuple(name.encode() for name in _PASSTHROUGH)


def may_have_passthrough(body: bytes) -> bool:
    """False if no such point is in a request. Cost: a dozen searches, each about 1 GB/s."""
    return any(name in body for name in _PASSTHROUGH_NAMES)


def passthrough_metric(
    metric: Any, number: float | None, attributes: Mapping[str, Value], source: Source
) -> PassthroughMetric | None:
    """One data point; None if it makes no sense, or is a change rather than a running total."""
    known = _PASSTHROUGH[metric.name]
    if number is None or not 0.0 <= number <= _MAX_NUMBER:
        return None
    if metric.HasField("sum") and metric.sum.aggregation_temporality != _CUMULATIVE:
        return None
    values = tuple(as_text(str(attributes.get(key, ""))) for key in known.labels or ())
    return PassthroughMetric(source, known, values, number)


UNITS_S = {"": 1.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
"""Seconds per unit in which section times may come."""

_NO_VALUE = 1
_MAX_BUCKETS = 4_096
_MAX_RUNS = 2**53
_MAX_EXPONENT = 62
_MAX_VALUE = 2.0**_MAX_EXPONENT
_SCALES = range(-10, 21)


def section_times(
    metric: Any,
    which: str,
    point: Any,
    source: Source,
    attributes: dict[str, Value],
    aliases: Aliases,
) -> SectionTimes | None:
    """Read one data point; None if it makes no sense."""
    temporality = getattr(metric, which).aggregation_temporality
    section = section_named(attributes, aliases)
    unit_s = UNITS_S.get(metric.unit)
    if section is None or unit_s is None or temporality not in (_DELTA, _CUMULATIVE):
        return None
    if not has_interval(point):
        return None
    is_explicit = which == "histogram"
    buckets = _explicit(point, unit_s) if is_explicit else exponential_buckets(point, unit_s)
    if buckets is None or len(buckets) != point.count:
        return None
    return SectionTimes(
        source=source,
        section=section,
        start_ns=point.start_time_unix_nano,
        end_ns=point.time_unix_nano,
        is_cumulative=temporality == _CUMULATIVE,
        buckets=buckets,
        min_s=optional_time(point, "min", unit_s),
        max_s=optional_time(point, "max", unit_s),
    )


def has_interval(point: Any) -> bool:
    """True if the times of a point make sense, and it has a value."""
    start_ns, end_ns = point.start_time_unix_nano, point.time_unix_nano
    return 0 < end_ns < 2**63 and start_ns <= end_ns and not point.flags & _NO_VALUE


def section_named(attributes: Mapping[str, Value], aliases: Aliases) -> Section | None:
    """The section that the attributes of a point name; None if they name none."""
    name = next((attributes[key] for key in aliases.section if attributes.get(key)), None)
    if name is None:
        return None
    kind, phase = attributes.get(semconv.SECTION_KIND), attributes.get(semconv.PHASE)
    return section_of(str(name), kind, phase)


def _explicit(point: Any, unit_s: float) -> Buckets | None:
    bounds, counts = tuple(point.explicit_bounds), list(point.bucket_counts)
    if not bounds and not counts:
        counts = [point.count]  # a histogram may have no buckets at all
    ascending = all(math.isfinite(b) for b in bounds) and sorted(set(bounds)) == list(bounds)
    if not ascending or len(counts) != len(bounds) + 1 or not _can_be_counted(counts):
        return None
    return Buckets(counts=np.array(counts, np.int64), bounds=bounds, sum=_sum(point), unit_s=unit_s)


def exponential_buckets(point: Any, unit_s: float = 1.0) -> Buckets | None:
    """The buckets of a point of an exponential histogram; None if they make no sense."""
    counts = list(point.positive.bucket_counts)
    first, scale = point.positive.offset, point.scale
    if scale not in _SCALES or any(point.negative.bucket_counts):
        return None
    if (
        not _can_be_counted([*counts, point.zero_count])
        or not 0 <= point.zero_threshold < _MAX_VALUE
    ):
        return None
    while counts and not counts[-1]:
        counts.pop()
    if (first + len(counts)) * 2.0**-scale > _MAX_EXPONENT:
        return None
    return Buckets(
        counts=np.array(counts, np.int64),
        scale=scale,
        first=first,
        zero=point.zero_count,
        zero_bound=point.zero_threshold,
        sum=_sum(point),
        unit_s=unit_s,
    )


def _can_be_counted(counts: list[int]) -> bool:
    return len(counts) <= _MAX_BUCKETS and sum(counts) < _MAX_RUNS


def _sum(point: Any) -> float | None:
    known = point.HasField("sum") and 0.0 <= point.sum < _MAX_VALUE
    return point.sum if known else None


def optional_time(point: Any, name: str, unit_s: float = 1.0) -> float | None:
    """``min`` or ``max``, which older senders do not know."""
    if not point.HasField(name):
        return None
    value: float = getattr(point, name)
    return value * unit_s if 0.0 <= value < _MAX_VALUE else None


UNITS = ("", "s")
"""Others cannot be put into the same buckets without loss."""
MAX_KERNEL_NAME = 4_096
"""Characters of a kernel's name; longer ones are malformed."""


def add_kernel_times(
    metric: Any,
    point: Any,
    source: Source,
    attributes: dict[str, Value],
    aliases: Aliases,
    to: KernelTimesBuilder,
) -> str:
    """Add one data point; the answer is what became of it."""
    if metric.exponential_histogram.aggregation_temporality != _DELTA:
        return NOT_DELTA
    cell = cell_named(attributes, aliases)
    if cell is None or metric.unit not in UNITS or not has_interval(point):
        return MALFORMED
    buckets = exponential_buckets(point)
    if buckets is None or len(buckets) != point.count or buckets.sum is None:
        return MALFORMED
    if point.count:
        to.add(
            source,
            cell,
            start_ns=point.start_time_unix_nano,
            end_ns=point.time_unix_nano,
            count=point.count,
            sum_s=buckets.sum,
            min_s=optional_time(point, "min"),
            max_s=optional_time(point, "max"),
            scale=buckets.scale or 0,
            first=buckets.first,
            runs=buckets.counts,
        )
    return KERNEL_TIMES


def cell_named(attributes: Mapping[str, Value], aliases: Aliases) -> KernelCell | None:
    """The kernel and section that the attributes of a point name; None if they name no kernel."""
    name = attributes.get(semconv.KERNEL)
    if not isinstance(name, str) or not 0 < len(name) <= MAX_KERNEL_NAME:
        return None
    named = attributes.get(semconv.KERNEL_CLASS)
    known = next((c for c in semconv.KERNEL_CLASSES if c == named), kernel_class_of(name))
    section = section_named(attributes, aliases)
    kernel = Kernel(clean_name(name, MAX_KERNEL_NAME), known)
    return KernelCell("" if section is None else section.name, kernel)

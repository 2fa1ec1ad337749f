"""Data points of ``straggler.section.duration`` -> :class:`SectionTimes`.

Explicit and exponential histograms, delta and cumulative, in seconds or a part of them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from otel_straggler import semconv
from otel_straggler.model.observation import Section
from otel_straggler.model.rank import Source
from otel_straggler.model.section_times import Buckets, SectionTimes
from otel_straggler.wire.identity import Aliases, Value
from otel_straggler.wire.span_keys import section_of

UNITS_S = {"": 1.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
"""Seconds per unit in which section times may come."""

_DELTA, _CUMULATIVE = 1, 2
_NO_VALUE = 1
_MOST_BUCKETS = 4_096
_MOST_RUNS = 2**53
_LARGEST_EXPONENT = 62
_LONGEST = 2.0**_LARGEST_EXPONENT
_SCALES = range(-10, 21)


def section_times(
    metric: Any, which: str, point: Any, source: Source, found: dict[str, Value], aliases: Aliases
) -> SectionTimes | None:
    """Read one data point; None if it makes no sense.

    Args:
        metric: the message ``Metric``.
        which: ``histogram`` or ``exponential_histogram``.
        point: one of its points.
        source: who sent it.
        found: the attributes of the point.
        aliases: says which attribute names the section.
    """
    temporality = getattr(metric, which).aggregation_temporality
    section = section_named(found, aliases)
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
        min_s=time_told(point, "min", unit_s),
        max_s=time_told(point, "max", unit_s),
    )


def has_interval(point: Any) -> bool:
    """Whether the times of a point make sense, and it has a value."""
    start_ns, end_ns = point.start_time_unix_nano, point.time_unix_nano
    return 0 < end_ns < 2**63 and start_ns <= end_ns and not point.flags & _NO_VALUE


def section_named(found: Mapping[str, Value], aliases: Aliases) -> Section | None:
    """The section that the attributes of a point name; None if they name none."""
    name = next((found[key] for key in aliases.section if found.get(key)), None)
    if name is None:
        return None
    return section_of(str(name), found.get(semconv.SECTION_KIND), found.get(semconv.PHASE))


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
    if not _can_be_counted([*counts, point.zero_count]) or not 0 <= point.zero_threshold < _LONGEST:
        return None
    while counts and not counts[-1]:
        counts.pop()
    if (first + len(counts)) * 2.0**-scale > _LARGEST_EXPONENT:
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
    return len(counts) <= _MOST_BUCKETS and sum(counts) < _MOST_RUNS


def _sum(point: Any) -> float | None:
    known = point.HasField("sum") and 0.0 <= point.sum < _LONGEST
    return point.sum if known else None


def time_told(point: Any, name: str, unit_s: float = 1.0) -> float | None:
    """``min`` or ``max``, which older senders do not know."""
    if not point.HasField(name):
        return None
    value: float = getattr(point, name)
    return value * unit_s if 0.0 <= value < _LONGEST else None

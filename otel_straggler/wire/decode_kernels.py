"""Data points of ``straggler.kernel.duration`` -> :class:`KernelTimes`: exponential histograms,
delta, in seconds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from otel_straggler import semconv
from otel_straggler.model.kernel_times import KernelCell, KernelTimesBuilder
from otel_straggler.model.observation import Kernel, kernel_class_of
from otel_straggler.model.rank import Source
from otel_straggler.wire.decode_histograms import (
    exponential_buckets,
    has_interval,
    section_named,
    time_told,
)
from otel_straggler.wire.identity import Aliases, Value
from otel_straggler.wire.metric_rules import KERNEL_TIMES, MALFORMED, NOT_DELTA

UNITS = ("", "s")
"""Others cannot be put into the same buckets without loss."""
MOST_NAME = 4_096
"""Characters of a kernel's name; longer ones are malformed."""
_DELTA = 1


def take_kernel_times(
    metric: Any,
    point: Any,
    source: Source,
    found: dict[str, Value],
    aliases: Aliases,
    to: KernelTimesBuilder,
) -> str:
    """Add one data point; the answer is what became of it.

    Args:
        metric: the message ``Metric``, with an exponential histogram.
        point: one of its points.
        source: who sent it.
        found: the attributes of the point.
        aliases: says which attribute names the section.
        to: where it is added.
    """
    if metric.exponential_histogram.aggregation_temporality != _DELTA:
        return NOT_DELTA
    cell = cell_named(found, aliases)
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
            min_s=time_told(point, "min"),
            max_s=time_told(point, "max"),
            scale=buckets.scale or 0,
            first=buckets.first,
            runs=buckets.counts,
        )
    return KERNEL_TIMES


def cell_named(found: Mapping[str, Value], aliases: Aliases) -> KernelCell | None:
    """The kernel and section that the attributes of a point name; None if they name no kernel."""
    name = found.get(semconv.KERNEL)
    if not isinstance(name, str) or not 0 < len(name) <= MOST_NAME:
        return None
    told = found.get(semconv.KERNEL_CLASS)
    known = next((c for c in semconv.KERNEL_CLASSES if c == told), kernel_class_of(name))
    section = section_named(found, aliases)
    kernel = Kernel(name, known)
    return KernelCell("" if section is None else section.name, kernel)

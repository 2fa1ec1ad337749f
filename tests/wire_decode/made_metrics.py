"""Metrics requests for tests: what ranks send, what others send, and what makes no sense."""

from __future__ import annotations

import math
import random
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric

from otel_straggler import semconv

HAS_METADATA = "metadata" in Metric.DESCRIPTOR.fields_by_name
"""Older parsers know no such field of a metric."""

GAUGES = (
    semconv.HEARTBEAT,
    semconv.PROGRESS,
    semconv.PROGRESS_STEP,
    semconv.SECTION_OPEN,
    semconv.RANK_FINISHED,
    semconv.RANK_INFO,
)
COUNTERS = (semconv.RECORDS_DROPPED, semconv.RECORDS_FOLDED)
TEXTS = ("forward", "größe", "eval", "finished", "failed", "", "cupti", "x" * 300, "é" * 257)
KEYS = (
    semconv.SECTION,
    semconv.SECTION_KIND,
    semconv.PHASE,
    semconv.OUTCOME,
    semconv.REASON,
    semconv.KERNEL,
    semconv.KERNEL_CLASS,
    semconv.GPU_TIMING_TIER,
    semconv.GPU_TIMING_REASON,
    "rank",
    "training.rank",
    "training.world_size",
    "training.run.id",
    "training.role",
    "straggler.session.id",
    "gpu.uuid",
    "loss",
)
NUMBERS = (0, 1, 5, -1, 2**31, 2**53 + 1, 2**62, 2**62 + 1, 2**63 - 1, 9_223_372_036)
REALS = (0.0, -0.0, 0.5, 1.7e9, -1.0, math.nan, math.inf, 9_223_372_036.854776, 2.0**62, 1e300)


def any_request(rng: random.Random) -> ExportMetricsServiceRequest:
    """Several resources, scopes, metrics and points; most of them make sense."""
    message = ExportMetricsServiceRequest()
    for number in range(rng.choice([1, 1, 2, 3])):
        of_resource = message.resource_metrics.add(schema_url="https://example")
        attributes = of_resource.resource.attributes
        attributes.add(key="service.name").value.string_value = "job"
        if rng.random() < 0.8:
            attributes.add(key="training.rank").value.int_value = number % 2
        for _ in range(rng.choice([1, 1, 2])):
            metrics = of_resource.scope_metrics.add()
            metrics.scope.name = rng.choice([semconv.SCOPE_NAME, "other"])
            for _ in range(rng.randrange(9)):
                _add_metric(rng, metrics.metrics.add())
    return message


def _add_metric(rng: random.Random, metric: Any) -> None:
    metric.description = rng.choice(["", "what it is"])
    metric.unit = rng.choice(["s", "s", "ms", "ns", "", "By"])
    if rng.random() < 0.1 and HAS_METADATA:
        metric.metadata.add(key="meta").value.string_value = "data"
    kind = rng.choice(["gauge", "gauge", "sum", "histogram", "exponential", "summary", "nothing"])
    usual: dict[str, tuple[semconv.Metric, ...]] = {"gauge": GAUGES, "sum": COUNTERS}
    names = usual.get(kind, (semconv.SECTION_DURATION,))
    if kind == "exponential":
        names = (semconv.SECTION_DURATION, semconv.KERNEL_DURATION)
    if rng.random() < 0.1:
        names = (*GAUGES, *COUNTERS, semconv.SECTION_DURATION, semconv.KERNEL_DURATION)
    metric.name = rng.choice(names).name if rng.random() < 0.9 else "others"
    for _ in range(rng.choice([1, 1, 2, 4])):
        _add_point(rng, metric, kind)


def _add_point(rng: random.Random, metric: Any, kind: str) -> None:
    if kind in ("gauge", "sum"):
        _add_number(rng, getattr(metric, kind).data_points.add())
    elif kind == "summary":
        point = metric.summary.data_points.add(count=1, sum=0.5)
        point.quantile_values.add(quantile=0.5, value=0.5)
    elif kind == "histogram":
        metric.histogram.aggregation_temporality = rng.choice([0, 1, 1, 2, 2])
        _add_explicit(rng, metric.histogram.data_points.add())
    elif kind == "exponential":
        metric.exponential_histogram.aggregation_temporality = rng.choice([0, 1, 1, 2, 2])
        _add_exponential(rng, metric.exponential_histogram.data_points.add())


def _add_number(rng: random.Random, point: Any) -> None:
    point.time_unix_nano = 10**18
    which = rng.random()
    if which < 0.45:
        point.as_int = rng.choice(NUMBERS)
    elif which < 0.95:
        point.as_double = rng.choice(REALS)
    if rng.random() < 0.1:
        point.exemplars.add(as_double=1.0).filtered_attributes.add(key="a").value.int_value = 1
    _add_attributes(rng, point, rng.randrange(4))


def _add_attributes(rng: random.Random, point: Any, maximum: int) -> None:
    for _ in range(maximum):
        pair = point.attributes.add(key=rng.choice(KEYS))
        if rng.random() < 0.7:
            pair.value.string_value = rng.choice(TEXTS)
        else:
            _set_odd_value(rng, pair.value)


def _set_odd_value(rng: random.Random, value: Any) -> None:
    kind = rng.randrange(6)
    if kind == 0:
        value.int_value = rng.choice([0, 1, 7, -3])
    elif kind == 1:
        value.double_value = rng.choice(REALS)
    elif kind == 2:
        value.bool_value = rng.random() < 0.5
    elif kind == 3:
        value.array_value.values.add().string_value = "in a list"
    elif kind == 4:
        value.bytes_value = b"\xff"


def _add_explicit(rng: random.Random, point: Any) -> None:
    buckets = rng.choice([0, 1, 3, 3, 3, 60])
    counts = [rng.choice([0, 1, 5, 300]) for _ in range(buckets + 1)]
    if buckets or rng.random() < 0.5:
        point.bucket_counts.extend(counts)
        point.explicit_bounds.extend(0.25 * (i + 1) for i in range(buckets))
    _add_what_both_have(rng, point, sum(counts))
    _spoil(rng, point, point.bucket_counts)
    if rng.random() < 0.1:
        point.explicit_bounds.append(rng.choice(REALS))


def _add_exponential(rng: random.Random, point: Any) -> None:
    counts = [rng.choice([0, 1, 5, 300]) for _ in range(rng.choice([0, 1, 5, 5, 60]))]
    point.scale = rng.choice([-11, -10, 0, 3, 20, 21])
    point.positive.offset = rng.choice([-9, 0, 3, -(2**31), 2**31 - 1, 60, 62])
    point.positive.bucket_counts.extend(counts)
    point.zero_count = rng.choice([0, 0, 3])
    point.zero_threshold = rng.choice([0.0, 0.0, 1e-6, *REALS])
    if rng.random() < 0.3:
        point.negative.bucket_counts.extend(rng.choice([[0, 0], [1]]))
    _add_what_both_have(rng, point, sum(counts) + point.zero_count)
    _spoil(rng, point, point.positive.bucket_counts)


def _add_what_both_have(rng: random.Random, point: Any, count: int) -> None:
    point.start_time_unix_nano = rng.choice([0, 10**18])
    point.time_unix_nano = 10**18 + 10**9
    point.count = count
    if rng.random() < 0.7:
        point.sum = 0.25 * count
    for name in ("min", "max"):
        if rng.random() < 0.3:
            setattr(point, name, rng.choice(REALS))
    if rng.random() < 0.9:
        point.attributes.add(key=semconv.SECTION).value.string_value = rng.choice(TEXTS)
    if rng.random() < 0.8:
        name = rng.choice(["gemm", "ncclDevKernel_AllReduce", "Memcpy", "<other>", "k" * 4_097, ""])
        point.attributes.add(key=semconv.KERNEL).value.string_value = name
        reported = rng.choice([*semconv.KERNEL_CLASSES, "", "odd"])
        point.attributes.add(key=semconv.KERNEL_CLASS).value.string_value = reported
    _add_attributes(rng, point, rng.choice([0, 0, 0, 2]))


def _spoil(rng: random.Random, point: Any, counts: Any) -> None:
    """Make what makes sense make none, now and then."""
    spoil = rng.randrange(60)
    if spoil == 0:
        point.count += 1
    elif spoil == 1:
        counts.append(1)
    elif spoil == 2:
        point.time_unix_nano = rng.choice([0, 1, 2**63, 2**64 - 1])
    elif spoil == 3:
        point.flags = rng.choice([1, 2, 3])
    elif spoil == 4:
        counts.extend([2**53 - 1, 1])
        point.count = 2**53
    elif spoil == 5:
        counts.append(2**64 - 1)
        point.count = 2**64 - 1
    elif spoil == 6:
        point.sum = rng.choice(REALS)

"""Heartbeats, section and kernel histograms to OTLP protobuf: few, so upb's classes do."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, InstrumentationScope, KeyValue
from opentelemetry.proto.metrics.v1 import metrics_pb2 as pb
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from otel_straggler import semconv
from otel_straggler._version import __version__
from otel_straggler.model.kernels import KernelCounts
from otel_straggler.model.rank_metrics import Heartbeat
from otel_straggler.semconv import AttributeValue

Attributes = Mapping[str, AttributeValue]
_NS = 1_000_000_000
_SCOPE = InstrumentationScope(name=semconv.SCOPE_NAME, version=__version__)


@dataclass(frozen=True, slots=True, kw_only=True)
class SectionHistogram:
    """Cumulative times of one section. ``bounds_s``: of all buckets but the last."""

    section: str
    kind: str
    bounds_s: Sequence[float]
    counts: Sequence[int]
    sum_s: float


def encode_heartbeat(
    beat: Heartbeat, *, resource: Attributes, info: Attributes, started_at_s: float
) -> bytes:
    """One heartbeat as a request. ``started_at_s``: since when drops and folded executions are
    counted."""
    now_ns, started_ns = int((beat.sent_at_s or 0.0) * _NS), int(started_at_s * _NS)
    metrics = [
        *_state(beat, now_ns),
        *_counter(semconv.RECORDS_DROPPED, semconv.REASON, beat.dropped, now_ns, started_ns),
        *_counter(semconv.RECORDS_FOLDED, semconv.SECTION, beat.folded, now_ns, started_ns),
        _gauge(semconv.RANK_INFO, now_ns, 1, info),
    ]
    return encode_metrics_request(metrics, resource)


def heartbeat_texts() -> tuple[bytes, ...]:
    """Texts that heartbeat.hpp writes, in the order of its ``HeartbeatWord``."""
    metrics = (
        semconv.HEARTBEAT,
        semconv.PROGRESS,
        semconv.PROGRESS_STEP,
        semconv.SECTION_OPEN,
        semconv.RANK_FINISHED,
        semconv.RECORDS_DROPPED,
        semconv.RECORDS_FOLDED,
        semconv.RANK_INFO,
    )
    texts = (semconv.SCHEMA_URL, semconv.SECTION, semconv.PHASE, semconv.OUTCOME, semconv.REASON)
    return (
        *(metric_message(metric).SerializeToString() for metric in metrics),
        _SCOPE.SerializeToString(),
        *(str(text).encode() for text in texts),
    )


def encode_point_attributes(attributes: Attributes) -> bytes:
    """Attributes as fields of the message ``NumberDataPoint``."""
    point: bytes = pb.NumberDataPoint(attributes=key_values(attributes)).SerializeToString()
    return point


def encode_histograms(
    histograms: Sequence[SectionHistogram],
    *,
    resource: Attributes,
    started_at_s: float,
    now_s: float,
) -> bytes:
    """A request with ``straggler.section.duration``."""
    points = [_histogram_point(h, int(started_at_s * _NS), int(now_s * _NS)) for h in histograms]
    data = pb.Histogram(
        data_points=points, aggregation_temporality=pb.AGGREGATION_TEMPORALITY_CUMULATIVE
    )
    return encode_metrics_request(
        [metric_message(semconv.SECTION_DURATION, histogram=data)], resource
    )


def encode_numbers(
    numbers: Iterable[tuple[semconv.Metric, Attributes, float]],
    *,
    resource: Attributes,
    now_s: float,
    started_at_s: float,
) -> bytes:
    """A request of gauges and running totals, which are counted since ``started_at_s``."""
    points: dict[semconv.Metric, list[pb.NumberDataPoint]] = {}
    for metric, attributes, value in numbers:
        point = pb.NumberDataPoint(
            attributes=key_values(attributes), time_unix_nano=int(now_s * _NS), as_double=value
        )
        if metric.kind == "counter":
            point.start_time_unix_nano = int(started_at_s * _NS)
        points.setdefault(metric, []).append(point)
    metrics = [
        metric_message(metric, sum=_running_total(of_metric))
        if metric.kind == "counter"
        else metric_message(metric, gauge=pb.Gauge(data_points=of_metric))
        for metric, of_metric in points.items()
    ]
    return encode_metrics_request(metrics, resource)


def _running_total(points: Sequence[pb.NumberDataPoint]) -> pb.Sum:
    return pb.Sum(
        data_points=points,
        aggregation_temporality=pb.AGGREGATION_TEMPORALITY_CUMULATIVE,
        is_monotonic=True,
    )


def _state(beat: Heartbeat, now_ns: int) -> Iterator[pb.Metric]:
    phase: Attributes = {semconv.PHASE: beat.phase} if beat.phase else {}
    section = {semconv.SECTION: beat.open_section, **phase}
    outcome: Attributes = {semconv.OUTCOME: beat.outcome or "unknown"}
    for metric, value, attributes in (
        (semconv.HEARTBEAT, beat.sent_at_s, {}),
        (semconv.PROGRESS, beat.progress_at_s, phase),
        (semconv.PROGRESS_STEP, beat.step, {}),
        (semconv.SECTION_OPEN, beat.open_time_s, section),
        (semconv.RANK_FINISHED, beat.finished_at_s, outcome),
    ):
        if value is not None:
            yield _gauge(metric, now_ns, value, attributes)


def _counter(
    metric: semconv.Metric, by: str, counts: Mapping[str, int], now_ns: int, start_ns: int
) -> list[pb.Metric]:
    if not counts:
        return []
    points = [
        pb.NumberDataPoint(
            attributes=key_values({by: name}),
            start_time_unix_nano=start_ns,
            time_unix_nano=now_ns,
            as_int=count,
        )
        for name, count in sorted(counts.items())
    ]
    return [metric_message(metric, sum=_running_total(points))]


def _histogram_point(h: SectionHistogram, start_ns: int, now_ns: int) -> pb.HistogramDataPoint:
    return pb.HistogramDataPoint(
        attributes=key_values({semconv.SECTION: h.section, semconv.SECTION_KIND: h.kind}),
        start_time_unix_nano=start_ns,
        time_unix_nano=now_ns,
        count=sum(h.counts),
        sum=h.sum_s,
        bucket_counts=h.counts,
        explicit_bounds=h.bounds_s,
    )


def _gauge(metric: semconv.Metric, now_ns: int, value: float, attributes: Attributes) -> pb.Metric:
    point = pb.NumberDataPoint(attributes=key_values(attributes), time_unix_nano=now_ns)
    if isinstance(value, int):
        point.as_int = value
    else:
        point.as_double = value
    return metric_message(metric, gauge=pb.Gauge(data_points=[point]))


def metric_message(metric: semconv.Metric, **data: Any) -> pb.Metric:
    return pb.Metric(name=metric.name, unit=metric.unit, description=metric.meaning, **data)


def encode_metrics_request(metrics: Sequence[pb.Metric], resource: Attributes) -> bytes:
    scope_metrics = pb.ScopeMetrics(scope=_SCOPE, metrics=metrics, schema_url=semconv.SCHEMA_URL)
    resource_metrics = pb.ResourceMetrics(
        resource=Resource(attributes=key_values(resource)),
        scope_metrics=[scope_metrics],
        schema_url=semconv.SCHEMA_URL,
    )
    request = ExportMetricsServiceRequest(resource_metrics=[resource_metrics])
    encoded: bytes = request.SerializeToString()
    return encoded


def key_values(attributes: Attributes) -> list[KeyValue]:
    return [KeyValue(key=str(k), value=_any_value(v)) for k, v in attributes.items()]


def _any_value(value: AttributeValue) -> AnyValue:
    if isinstance(value, bool):
        return AnyValue(bool_value=value)
    if isinstance(value, int):
        return AnyValue(int_value=value)
    if isinstance(value, float):
        return AnyValue(double_value=value)
    return AnyValue(string_value=value.encode("utf-8", "replace").decode())


MAX_SENT_KERNEL_NAME = 1_024
"""Characters of a kernel's name on the wire; templates make names of any length."""


def encode_kernel_times(
    kernels: Sequence[KernelCounts], *, resource: Attributes, start_ns: int, end_ns: int
) -> bytes:
    """A request with ``straggler.kernel.duration`` of an interval (wall clock). Cost: about 20 µs a
    kernel."""
    data = pb.ExponentialHistogram(
        data_points=[_point(kernel, start_ns, end_ns) for kernel in kernels],
        aggregation_temporality=pb.AGGREGATION_TEMPORALITY_DELTA,
    )
    metric = metric_message(semconv.KERNEL_DURATION, exponential_histogram=data)
    return encode_metrics_request([metric], resource)


def _point(kernel: KernelCounts, start_ns: int, end_ns: int) -> pb.ExponentialHistogramDataPoint:
    cell = kernel.cell
    attributes: dict[str, str] = {
        semconv.KERNEL: name_on_wire(cell.kernel.name),
        semconv.KERNEL_CLASS: cell.kernel.kernel_class,
    }
    if cell.section:
        attributes[semconv.SECTION] = cell.section
    first, runs = kernel.trimmed()
    return pb.ExponentialHistogramDataPoint(
        attributes=key_values(attributes),
        start_time_unix_nano=start_ns,
        time_unix_nano=end_ns,
        count=kernel.count,
        sum=kernel.sum_ns * 1e-9,
        min=kernel.min_ns * 1e-9,
        max=kernel.max_ns * 1e-9,
        scale=kernel.scale,
        zero_count=kernel.count - int(runs.sum()),
        positive=pb.ExponentialHistogramDataPoint.Buckets(
            offset=first, bucket_counts=runs.tolist()
        ),
    )


def name_on_wire(name: str) -> str:
    """The name, or as much of it as may be sent and a number that makes it unique.

    >>> name_on_wire("gemm")
    'gemm'
    >>> len(name_on_wire("x" * 5_000)), name_on_wire("x" * 5_000) == name_on_wire("x" * 5_001)
    (1024, False)
    """
    if len(name) <= MAX_SENT_KERNEL_NAME:
        return name
    digest = blake2b(name.encode("utf-8", "replace"), digest_size=8).hexdigest()
    return f"{name[: MAX_SENT_KERNEL_NAME - 18]}..{digest}"

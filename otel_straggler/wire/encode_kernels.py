"""Kernel histograms to OTLP protobuf: some dozens every ten seconds."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

from opentelemetry.proto.metrics.v1 import metrics_pb2 as pb

from otel_straggler import semconv
from otel_straggler.model.kernel_counts import KernelCounts
from otel_straggler.wire.encode_metrics import (
    Attributes,
    encode_metrics_request,
    key_values,
    metric_message,
)

MOST_NAME = 1_024
"""Characters of a kernel's name on the wire; templates make names of any length."""
_NS = 1e-9


def encode_kernel_times(
    kernels: Sequence[KernelCounts], *, resource: Attributes, start_ns: int, end_ns: int
) -> bytes:
    """The message ``ExportMetricsServiceRequest`` with ``straggler.kernel.duration``.

    Args:
        kernels: what was counted of each, in the interval.
        resource: identity.
        start_ns, end_ns: the interval, wall clock.

    Cost: about 20 µs a kernel.
    """
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
        sum=kernel.sum_ns * _NS,
        min=kernel.min_ns * _NS,
        max=kernel.max_ns * _NS,
        scale=kernel.scale,
        zero_count=kernel.count - int(runs.sum()),
        positive=pb.ExponentialHistogramDataPoint.Buckets(
            offset=first, bucket_counts=runs.tolist()
        ),
    )


def name_on_wire(name: str) -> str:
    """The name, or as much of it as may be sent and a number that tells it apart.

    >>> name_on_wire("gemm")
    'gemm'
    >>> len(name_on_wire("x" * 5_000)), name_on_wire("x" * 5_000) == name_on_wire("x" * 5_001)
    (1024, False)
    """
    if len(name) <= MOST_NAME:
        return name
    digest = blake2b(name.encode("utf-8", "replace"), digest_size=8).hexdigest()
    return f"{name[: MOST_NAME - 18]}..{digest}"

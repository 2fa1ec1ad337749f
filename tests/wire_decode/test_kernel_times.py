"""Kernel histograms over the wire: sums exactly, medians to half a per cent."""

from __future__ import annotations

import dataclasses
import statistics
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from google.protobuf.json_format import MessageToJson
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)

from otel_straggler import semconv
from otel_straggler.detect.scores.kernels import group_histograms
from otel_straggler.model.kernels import (
    KernelCounts,
    KernelTally,
    KernelTimes,
    join_kernel_times,
    longest_kernels,
    times_of_counts,
)
from otel_straggler.model.rank import Source
from otel_straggler.native import NATIVE
from otel_straggler.otlp.decode_metrics import MetricDecoder
from otel_straggler.otlp.encode_metrics import encode_kernel_times
from otel_straggler.otlp.metric_rules import DecodedMetrics

from ..kernels_made import cell, taken, tally

WHO = Source(run_id="r", rank=3, session_id="s", node="n")
RESOURCE = {
    "training.run.id": "r",
    "training.rank": 3,
    "straggler.session.id": "s",
    "host.name": "n",
}
START_NS, END_NS = 1_790_000_000_000_000_000, 1_790_000_010_000_000_000


@pytest.fixture(params=["native", "python"])
def decoder(request: pytest.FixtureRequest) -> MetricDecoder:
    """Both ways of reading."""
    if request.param == "native" and NATIVE is None:
        pytest.skip("no extension module; it would show that C++ reads the same histograms")
    extension: ModuleType | None = NATIVE if request.param == "native" else None
    return MetricDecoder(extension=extension)


def encoded(kernels: list[KernelCounts]) -> bytes:
    return encode_kernel_times(kernels, resource=RESOURCE, start_ns=START_NS, end_ns=END_NS)


def medians(times: KernelTimes) -> dict[tuple[str, str], float]:
    """By kernel and section."""
    result = group_histograms(times, times.cell.astype(np.int64), len(times.cells))
    return {
        (each.kernel.name, each.section): median
        for each, median in zip(times.cells, result.median_s.tolist(), strict=True)
    }


alike = st.integers(1, 10**10).flatmap(
    lambda base: st.lists(st.integers(base, base * 3), min_size=1, max_size=60)
)


@given(alike, st.booleans())
def test_the_median_is_within_half_a_per_cent(times_ns: list[int], is_native: bool) -> None:
    """From one nanosecond to ten seconds, for even and odd counts; sum, count, bounds exactly."""
    decoder = MetricDecoder(extension=NATIVE if is_native else None)
    result = decoder.decode(encoded(tally(("gemm", "forward", times_ns)).take())).kernel_times
    assert result is not None
    assert medians(result)["gemm", "forward"] == pytest.approx(
        statistics.median(times_ns) * 1e-9, rel=0.003
    )
    assert result.sources == (WHO,)
    assert result.count.tolist() == [len(times_ns)]
    assert result.scale.tolist() == [7]
    assert result.sum_s.tolist() == [pytest.approx(sum(times_ns) * 1e-9, rel=1e-12)]
    assert (result.min_s[0], result.max_s[0]) == (min(times_ns) * 1e-9, max(times_ns) * 1e-9)


@given(st.lists(st.lists(st.integers(0, 10**9), min_size=1, max_size=30), min_size=1, max_size=5))
def test_intervals_add_up_to_all_that_was_seen(parts: list[list[int]]) -> None:
    """Buckets of any width; what took no time counts as well."""
    seen = [t for part in parts for t in part]
    added = KernelTally()
    for part in parts:
        added.add([(cell("gemm"), taken("gemm", 0, part))])
    (whole,) = added.take()
    assert (whole.count, whole.sum_ns) == (len(seen), sum(seen))
    assert (whole.min_ns, whole.max_ns) == (min(seen), max(seen))
    split = [
        times_of_counts(tally(("gemm", "forward", part)).take(), WHO, at, at + 1)
        for at, part in enumerate(parts)
    ]
    for times in (times_of_counts([whole], WHO, 0, 1), join_kernel_times(split)):
        median_s = medians(times)["gemm", "forward"]
        true_s = max(statistics.median(seen), 1) * 1e-9
        coarsest = times.scale[times.sizes > 0].min(initial=7)
        error = 0.003 * 2.0 ** (7 - int(coarsest))
        assert median_s == pytest.approx(true_s, rel=error, abs=1e-9)
        assert times.count.sum() == len(seen)


def test_all_of_a_point_is_read(decoder: MetricDecoder) -> None:
    """Names, class, section and interval; a kernel outside of sections has none."""
    kernels = tally(
        ("gemm", "forward", [1_000] * 3), ("ncclDevKernel_Sum", "", [2_000]), ("gemm", "", [0, 5])
    )
    decoded = decoder.decode(encoded(kernels.take()))
    result = decoded.kernel_times
    assert result is not None
    assert {result.cells[code] for code in result.cell} == {
        cell("gemm"),
        cell("ncclDevKernel_Sum", ""),
        cell("gemm", ""),
    }
    assert (result.start_ns.tolist(), result.end_ns.tolist()) == ([START_NS] * 3, [END_NS] * 3)
    assert decoded.points["kernel_times"] == 3
    assert decoded.rejected == {}
    assert decoded.heartbeats == ()


def test_json_says_the_same(decoder: MetricDecoder) -> None:
    """For whoever keeps telemetry in files."""
    body = encoded(tally(("gemm", "forward", [1_000, 2_000, 9_000])).take())
    in_json = MessageToJson(
        ExportMetricsServiceRequest.FromString(body), use_integers_for_enums=True
    ).encode()
    one, other = decoder.decode(body).kernel_times, decoder.decode_json(in_json).kernel_times
    assert one is not None
    assert other is not None
    for field in dataclasses.fields(one):
        assert list(getattr(one, field.name)) == list(getattr(other, field.name))


def spoilt(decoder: MetricDecoder, **changes: Any) -> DecodedMetrics:
    """One point with some fields changed; ``metric__`` and ``data__`` change what is around it."""
    message = ExportMetricsServiceRequest.FromString(
        encoded(tally(("gemm", "forward", [1_000, 2_000])).take())
    )
    metric = message.resource_metrics[0].scope_metrics[0].metrics[0]
    (point,) = metric.exponential_histogram.data_points
    for name, value in changes.items():
        where, _, field = name.rpartition("__")
        target = {"metric": metric, "data": metric.exponential_histogram, "": point}[where]
        if field == "attributes":
            del target.attributes[:]
            for key, text in value.items():
                target.attributes.add(key=key).value.string_value = text
        elif value is None:
            target.ClearField(field)
        else:
            setattr(target, field, value)
    return decoder.decode(message.SerializeToString())


@pytest.mark.parametrize(
    "changes",
    [
        {"count": 3},
        {"time_unix_nano": 0},
        {"time_unix_nano": 2**63},
        {"start_time_unix_nano": END_NS + 1},
        {"flags": 1},
        {"scale": 21},
        {"zero_count": 1},
        {"sum": None},
        {"sum": float("nan")},
        {"sum": -1.0},
        {"metric__unit": "ms"},
        {"attributes": {}},
        {"attributes": {semconv.KERNEL: ""}},
        {"attributes": {semconv.KERNEL: "k" * 4_097}},
    ],
    ids=str,
)
def test_a_point_that_makes_no_sense_is_counted(
    decoder: MetricDecoder, changes: dict[str, Any]
) -> None:
    """And rejected, as OTLP says; nothing of it is scored."""
    decoded = spoilt(decoder, **changes)
    assert decoded.kernel_times is None
    assert decoded.rejected == {"malformed": 1}


def test_totals_over_all_time_are_not_taken_for_an_interval(decoder: MetricDecoder) -> None:
    """A backend that makes deltas cumulative is told so by a reason of its own."""
    assert spoilt(decoder, data__aggregation_temporality=2).rejected == {"not_delta": 1}


def test_an_unknown_class_goes_by_the_name(decoder: MetricDecoder) -> None:
    """A newer sender, or none of ours."""
    for name, kernel_class in (("gemm", "compute"), ("ncclKernel_x", "nccl")):
        reported = {semconv.KERNEL: name, semconv.KERNEL_CLASS: "warp_drive"}
        result = spoilt(decoder, attributes=reported).kernel_times
        assert result is not None
        assert result.cells[0].kernel.kernel_class == kernel_class


# --- the longest -----------------------------------------------------------------------------


def test_what_little_time_is_spent_in_is_put_together() -> None:
    """By section and class; counts and sums stay exact, and a kernel keeps all its sections."""
    kernels = tally(
        ("a", "forward", [900]),
        ("a", "backward", [100]),
        ("b", "forward", [800, 100]),
        ("c", "forward", [10, 20]),
        ("d", "forward", [5]),
        ("ncclDevKernel_e", "forward", [1]),
        ("<other>", "forward", [3]),
    ).take()
    total = sum(k.sum_ns for k in kernels)
    kept = longest_kernels(kernels, 3)
    assert {(k.cell.kernel.name, k.cell.section, k.sum_ns) for k in kept} == {
        ("a", "forward", 900),
        ("a", "backward", 100),
        ("b", "forward", 900),
        ("<other>", "forward", 38),
        ("<other>", "forward", 1),
    }
    assert {k.cell.kernel.kernel_class for k in kept} == {"compute", "nccl"}
    assert sum(k.sum_ns for k in kept) == total
    assert sum(k.count for k in kept) == 9


def test_more_cells_than_there_is_room_for_share_one() -> None:
    """Memory is bounded, and no kernel is forgotten."""
    bounded = KernelTally(max_cells=3)
    for number in range(10):
        bounded.add([(cell(f"k{number}"), taken(f"k{number}", 0, [7]))])
    result = {k.cell.kernel.name: k.sum_ns for k in bounded.take()}
    assert result == {"k0": 7, "k1": 7, "k2": 7, "<other>": 49}

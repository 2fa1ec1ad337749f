"""What decoders remember of resources is bounded in bytes, whatever is sent."""

from __future__ import annotations

from typing import Any

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from otel_straggler import semconv
from otel_straggler.native import NATIVE
from otel_straggler.otlp import decoder, identity
from otel_straggler.otlp.decode_metrics import MetricDecoder
from otel_straggler.otlp.decode_spans import SpanDecoder
from otel_straggler.otlp.identity import MAX_RESOURCE_BYTES, Aliases, Resources

EXTENSIONS = [None] if NATIVE is None else [None, NATIVE]
either_way = pytest.mark.parametrize(
    "extension", EXTENSIONS, ids=lambda module: "protobuf" if module is None else "native"
)


def describe(resource: Any, rank: int, padding: str) -> None:
    resource.attributes.add(key=semconv.RANK).value.int_value = rank
    resource.attributes.add(key=semconv.RUN_ID).value.string_value = "run"
    resource.attributes.add(key="note").value.string_value = padding


def spans(rank: int, padding: str, run_on_span: str = "") -> bytes:
    request = ExportTraceServiceRequest()
    resource_spans = request.resource_spans.add()
    describe(resource_spans.resource, rank, padding)
    span = resource_spans.scope_spans.add().spans.add(
        trace_id=b"t" * 16, span_id=b"s" * 8, name="forward",
        start_time_unix_nano=10**18, end_time_unix_nano=10**18 + 10**8,
    )  # fmt: skip
    if run_on_span:
        span.attributes.add(key=semconv.RUN_ID).value.string_value = run_on_span
    encoded: bytes = request.SerializeToString()
    return encoded


def heartbeat(rank: int, padding: str) -> bytes:
    request = ExportMetricsServiceRequest()
    resource_metrics = request.resource_metrics.add()
    describe(resource_metrics.resource, rank, padding)
    metric = resource_metrics.scope_metrics.add().metrics.add(name=semconv.HEARTBEAT.name)
    metric.gauge.data_points.add(as_double=1.7e9)
    encoded: bytes = request.SerializeToString()
    return encoded


def padded(size: int) -> str:
    """So much that the resource of ``spans`` has ``size`` bytes."""
    like = ExportTraceServiceRequest.FromString(spans(0, "x" * 60_000))
    return "x" * (60_000 + size - like.resource_spans[0].resource.ByteSize())


@either_way
def test_a_resource_over_the_limit_is_rejected_and_not_remembered(extension: Any) -> None:
    resources = Resources(Aliases())
    for size, is_read in ((MAX_RESOURCE_BYTES, True), (MAX_RESOURCE_BYTES + 1, False)):
        body = spans(0, padded(size))
        of_spans = SpanDecoder(extension=extension, resources=resources).decode(body)
        of_beats = MetricDecoder(extension=extension, resources=resources).decode(
            heartbeat(0, padded(size))
        )
        rejected = {} if is_read else {"resource_too_large": 1}
        assert (of_spans.rejected, of_beats.rejected) == (rejected, rejected)
        assert (len(of_spans.batch), len(of_beats.heartbeats)) == (is_read, is_read)
    assert resources.remembered_bytes < 10_000


@either_way
def test_a_run_named_on_the_span_does_not_save_a_resource_over_the_limit(extension: Any) -> None:
    decoded = SpanDecoder(extension=extension).decode(
        spans(0, padded(MAX_RESOURCE_BYTES + 1), run_on_span="other")
    )
    assert decoded.rejected == {"resource_too_large": 1}


@either_way
def test_many_large_resources_take_no_more_than_the_bound(extension: Any) -> None:
    resources = Resources(Aliases(), max_bytes=100_000)
    decode = SpanDecoder(extension=extension, resources=resources).decode
    beats = MetricDecoder(extension=extension, resources=resources).decode
    peak = 0
    for number in range(200):
        assert decode(spans(number, "x" * 50_000)).batch.sources[0].rank == number
        assert beats(heartbeat(number, "x" * 50_000)).heartbeats[0].source.rank == number
        peak = max(peak, resources.remembered_bytes)
    assert peak < 110_000


@either_way
def test_spans_that_name_ever_new_senders_take_no_more_than_the_bound(
    extension: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(identity, "_MAX_VARIANTS_BYTES", 100_000)
    resources = Resources(Aliases())
    decode = SpanDecoder(extension=extension, resources=resources).decode
    for number in range(200):
        run = f"{number} " + "r" * 5_000
        assert decode(spans(0, "", run_on_span=run)).batch.sources[0].run_id == run[:256]
    assert resources.remembered_bytes < 110_000


@pytest.mark.skipif(NATIVE is None, reason="the extension module is not built")
def test_the_names_of_codes_take_no_more_than_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoder, "_MAX_TABLE_BYTES", 20_000)
    spans_of = SpanDecoder(extension=NATIVE)
    for number in range(200):
        assert spans_of.decode(spans(number, "x")).batch.sources[0].rank == number
        assert spans_of._cases is not None
        assert len(spans_of._cases.sources.names) < 100

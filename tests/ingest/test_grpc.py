"""OTLP over gRPC: the same service, the same limits, gRPC's words."""

from __future__ import annotations

import gzip
import logging
from collections.abc import Callable, Iterator
from typing import Any

import grpc
import pytest
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

from otel_straggler.collector.ingest.grpc import GrpcServer
from otel_straggler.collector.ingest.intake import Answer

from .conftest import CLIENT_S, Sink

SERVICES = {
    "traces": "/opentelemetry.proto.collector.trace.v1.TraceService/Export",
    "metrics": "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export",
    "logs": "/opentelemetry.proto.collector.logs.v1.LogsService/Export",
}
Export = Callable[..., Any]


@pytest.fixture
def port(sink: Sink) -> Iterator[int]:
    server = GrpcServer(sink, max_bytes=100_000)
    yield server.start("127.0.0.1", 0)[1]
    server.stop(1.0)
    server.stop(1.0)


@pytest.fixture
def export(port: int) -> Iterator[Export]:
    """Call a method with raw bytes; returns (answer, call)."""
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:

        def call(body: bytes, method: str = SERVICES["traces"], **kwargs: Any) -> Any:
            return channel.unary_unary(method).with_call(body, timeout=CLIENT_S, **kwargs)

        yield call


def refused(export: Export, *args: Any, **kwargs: Any) -> Any:
    with pytest.raises(grpc.RpcError) as error:
        export(*args, **kwargs)
    return error.value


@pytest.mark.parametrize("compression", [grpc.Compression.NoCompression, grpc.Compression.Gzip])
def test_the_sdk_exporter_delivers_spans(port: int, sink: Sink, compression: Any) -> None:
    exporter = OTLPSpanExporter(f"127.0.0.1:{port}", insecure=True, compression=compression)
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    provider.get_tracer("test").start_span("forward", attributes={"pad": "x" * 1000}).end()
    provider.shutdown()
    (request,) = sink.requests
    resource_spans = ExportTraceServiceRequest.FromString(request.body).resource_spans
    assert resource_spans[0].scope_spans[0].spans[0].name == "forward"
    is_gzip = compression is grpc.Compression.Gzip
    assert request.content_encoding == ("gzip" if is_gzip else "")
    assert request.body == (gzip.decompress(request.raw_body) if is_gzip else request.raw_body)


@pytest.mark.parametrize("signal", list(SERVICES))
def test_every_signal_is_served(export: Export, sink: Sink, signal: str) -> None:
    body, call = export(b"abc", SERVICES[signal])
    assert body == b""
    assert ("otel-straggler-scorer", "1") in call.initial_metadata()
    assert [(r.signal, r.body) for r in sink.requests] == [(signal, b"abc")]


def test_an_unknown_method_is_unimplemented(export: Export) -> None:
    assert refused(export, b"", "/no.Such/Export").code() is grpc.StatusCode.UNIMPLEMENTED


def test_a_partial_success_says_how_many_and_why(export: Export, sink: Sink) -> None:
    sink.answer = Answer(status="ok", rejected=3, message="no rank")
    partial = ExportTraceServiceResponse.FromString(export(b"x")[0]).partial_success
    assert (partial.rejected_spans, partial.error_message) == (3, "no rank")


def test_a_malformed_request_is_an_invalid_argument(export: Export, sink: Sink) -> None:
    sink.answer = Answer(status="malformed", message="field 3")
    error = refused(export, b"x")
    assert (error.code(), error.details()) == (grpc.StatusCode.INVALID_ARGUMENT, "field 3")


@pytest.mark.parametrize(
    ("status", "code"),
    [
        ("busy", grpc.StatusCode.UNAVAILABLE),
        ("stopping", grpc.StatusCode.UNAVAILABLE),
        ("limited", grpc.StatusCode.RESOURCE_EXHAUSTED),
    ],
)
def test_a_service_that_takes_nothing_now_says_when_to_retry(
    export: Export, sink: Sink, status: Any, code: grpc.StatusCode
) -> None:
    sink.answer = Answer(status=status, message="later", retry_after_s=7)
    error = refused(export, b"x")
    assert error.code() is code
    details = Status.FromString(dict(error.trailing_metadata())["grpc-status-details-bin"])
    retry = RetryInfo()
    assert details.details[0].Unpack(retry)
    assert (details.message, retry.retry_delay.seconds) == ("later", 7)


def test_a_busy_service_is_not_handed_the_request(export: Export, sink: Sink) -> None:
    sink.busy = True
    assert refused(export, b"x").code() is grpc.StatusCode.UNAVAILABLE
    assert sink.requests == []


@pytest.mark.parametrize("compression", [grpc.Compression.NoCompression, grpc.Compression.Gzip])
def test_a_message_over_the_limit_is_refused_for_good(
    export: Export, sink: Sink, compression: Any
) -> None:
    """RESOURCE_EXHAUSTED without RetryInfo: sending it again cannot help."""
    error = refused(export, bytes(100_001), compression=compression)
    assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert "google.rpc.retryinfo-bin" not in dict(error.trailing_metadata() or ())
    assert sink.requests == []


def test_damaged_gzip_is_an_invalid_argument(export: Export) -> None:
    error = refused(export, gzip.compress(b"abc")[:-1])
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT


def test_a_bug_in_the_service_costs_one_request(
    export: Export, sink: Sink, caplog: pytest.LogCaptureFixture
) -> None:
    sink.error = RuntimeError("bug")
    assert refused(export, b"x").code() is grpc.StatusCode.INTERNAL
    sink.error = None
    assert export(b"x")[0] == b""
    assert [r.levelno for r in caplog.records] == [logging.ERROR]
    caplog.clear()


def test_a_taken_port_is_an_os_error(port: int, sink: Sink) -> None:
    """The collector turns it into a sentence that names the flag."""
    with pytest.raises(OSError, match="in use"):
        GrpcServer(sink, max_bytes=1000).start("127.0.0.1", port)

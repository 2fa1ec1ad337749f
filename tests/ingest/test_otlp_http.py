"""What OTLP over HTTP answers: types, codings, sizes, partial successes, refusals."""

from __future__ import annotations

import gzip
import json
import logging
import tracemalloc
import zlib
from functools import partial
from typing import Any

import pytest
from google.rpc.status_pb2 import Status
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

from otel_straggler.collector.ingest.intake import Answer

from .conftest import Receiver, Sink, StartReceiver, chunked, post

zipped = partial(gzip.compress, mtime=0)  # the same bytes whenever tests are collected


@pytest.mark.parametrize("compression", [Compression.NoCompression, Compression.Gzip])
def test_the_sdk_exporter_delivers_spans(
    receiver: Receiver, sink: Sink, compression: Compression
) -> None:
    exporter = OTLPSpanExporter(
        f"http://127.0.0.1:{receiver.port}/v1/traces", compression=compression
    )
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    for name in ("forward", "backward"):
        provider.get_tracer("test").start_span(name).end()
    provider.shutdown()
    spans = [
        span.name
        for request in sink.requests
        for resource in ExportTraceServiceRequest.FromString(request.body).resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    ]
    assert spans == ["forward", "backward"]
    assert {r.content_encoding for r in sink.requests} == (
        {"gzip"} if compression is Compression.Gzip else {""}
    )


@pytest.mark.parametrize(
    ("signal", "response_type", "rejected"),
    [
        ("traces", ExportTraceServiceResponse, "rejected_spans"),
        ("metrics", ExportMetricsServiceResponse, "rejected_data_points"),
        ("logs", ExportLogsServiceResponse, "rejected_log_records"),
    ],
)
def test_a_partial_success_says_how_many_and_why(
    receiver: Receiver, sink: Sink, signal: str, response_type: Any, rejected: str
) -> None:
    sink.answer = Answer(status="ok", rejected=3, message="no rank")
    (reply,) = receiver.send(post(b"x", path=f"/v1/{signal}"))
    partial = response_type.FromString(reply.body).partial_success
    assert (getattr(partial, rejected), partial.error_message) == (3, "no rank")
    (reply,) = receiver.send(post(b"{}", path=f"/v1/{signal}", content_type="json"))
    first, *others = rejected.split("_")
    camel = first + "".join(part.title() for part in others)
    assert json.loads(reply.body) == {"partialSuccess": {camel: "3", "errorMessage": "no rank"}}
    assert receiver.app.answers == {(signal, 200): 2}


@pytest.mark.parametrize(
    ("answer", "status", "code", "retry_after"),
    [
        (Answer(status="malformed", message="field 3"), 400, 3, None),
        (Answer(status="busy", message="field 3", retry_after_s=7), 503, 14, "7"),
        (Answer(status="stopping", message="field 3"), 503, 14, "1"),
        (Answer(status="limited", message="field 3", retry_after_s=9), 429, 8, "9"),
    ],
)
@pytest.mark.parametrize("content_type", ["x-protobuf", "json"])
def test_a_refusal_is_a_status_in_the_type_of_the_request(
    receiver: Receiver,
    sink: Sink,
    answer: Answer,
    status: int,
    code: int,
    retry_after: str | None,
    content_type: str,
) -> None:
    sink.answer = answer
    (reply,) = receiver.send(post(b"x", content_type=content_type))
    assert reply.status == status
    assert reply.headers["content-type"] == f"application/{content_type}"
    assert reply.headers.get("retry-after") == retry_after
    if content_type == "json":
        assert json.loads(reply.body) == {"code": code, "message": "field 3"}
    else:
        assert Status.FromString(reply.body) == Status(code=code, message="field 3")


def test_a_busy_service_refuses_before_it_reads_the_body(receiver: Receiver, sink: Sink) -> None:
    sink.busy = True
    first, second = receiver.send(post(b"x") + post(b"y"))
    assert (first.status, first.headers["retry-after"], second.status) == (503, "1", 503)
    assert sink.requests == []


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (post(b"x", path="/v1/profiles"), 404),
        (post(b"x", path="/v1/traces/"), 404),
        (post(b"x").replace(b"POST", b"PUT"), 405),
        (b"OPTIONS /v1/traces HTTP/1.1\r\nHost: a\r\n\r\n", 405),
        (post(b"x", content_type="xml"), 415),
        (post(b"x").replace(b"Content-Type", b"X-Type"), 415),
        (post(b"x", "Content-Encoding: br"), 415),
        (post(b"x", "Content-Encoding: gzip, gzip"), 415),
        (post(b"plain", "Content-Encoding: gzip"), 400),
        (post(zipped(b"abc")[:-1], "Content-Encoding: gzip"), 400),
        (post(zipped(b"abc") + b"rubbish", "Content-Encoding: gzip"), 400),
        (post(zlib.compress(b"abc"), "Content-Encoding: gzip"), 400),
        (post(zipped(b"") * 2000, "Content-Encoding: gzip"), 400),
    ],
)
def test_what_is_no_otlp_is_refused_and_the_connection_lives_on(
    receiver: Receiver, sink: Sink, request_bytes: bytes, status: int
) -> None:
    replies = receiver.send(request_bytes + post(b"next"))
    assert [reply.status for reply in replies] == [status, 200]
    assert replies[0].headers["otel-straggler-scorer"] == "1"
    assert [request.body for request in sink.requests] == [b"next"]
    assert ("traces", 200) in receiver.app.answers


@pytest.mark.parametrize(
    ("body", "encoding"),
    [
        (b"abc", "identity"),
        (zipped(b"abc"), "gzip"),
        (zipped(b"abc"), "GZIP"),
        (zipped(b"abc"), "x-gzip"),
        (zipped(b"a") + zipped(b"") + zipped(b"bc"), "gzip"),
        (zipped(b"abc") + b"\0" * 7, "gzip"),
        (zipped(b"ab") + b"\0" * 7 + zipped(b"c"), "gzip"),
    ],
)
@pytest.mark.parametrize("is_split", [False, True])
def test_gzip_of_any_shape_is_inflated_and_kept_as_it_came(
    receiver: Receiver, sink: Sink, body: bytes, encoding: str, is_split: bool
) -> None:
    chunks = b"".join(b"1\r\n" + body[i : i + 1] + b"\r\n" for i in range(len(body)))
    request = (
        chunked(chunks + b"0\r\n\r\n", f"Content-Encoding: {encoding}")
        if is_split
        else post(body, f"Content-Encoding: {encoding}")
    )
    assert [reply.status for reply in receiver.send(request)] == [200]
    assert [(r.body, r.raw_body) for r in sink.requests] == [(b"abc", body)]


def test_a_gzip_bomb_is_refused_in_bounded_memory(start: StartReceiver, sink: Sink) -> None:
    """A gigabyte in a megabyte: no more than the limit is ever inflated."""
    deflater = zlib.compressobj(9, zlib.DEFLATED, 31)
    zeros = bytes(1 << 20)
    bomb = b"".join(deflater.compress(zeros) for _ in range(1024)) + deflater.flush()
    receiver = start(body_bytes=4 << 20)
    tracemalloc.start()
    try:
        (reply,) = receiver.send(post(bomb, "Content-Encoding: gzip"), half_close=False)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert reply.status == 413
    assert peak < 32 << 20
    assert receiver.server.bodies.held_bytes == 0
    assert sink.requests == []


@pytest.mark.parametrize(
    "request_bytes",
    [
        post(b"x" * 1001),
        chunked(b"3e9\r\n" + b"x" * 1001 + b"\r\n0\r\n\r\n"),
        post(zipped(b"x" * 1001), "Content-Encoding: gzip"),
        post(b"", "Expect: 100-continue").replace(b"Length: 0", b"Length: 1001"),
    ],
)
def test_a_body_over_the_limit_is_refused(start: StartReceiver, request_bytes: bytes) -> None:
    receiver = start(body_bytes=1000)
    assert [r.status for r in receiver.send(request_bytes, half_close=False)] == [413]
    assert [r.status for r in receiver.send(post(b"x" * 1000))] == [200]


def test_a_bug_in_the_service_costs_one_request(
    receiver: Receiver, sink: Sink, caplog: pytest.LogCaptureFixture
) -> None:
    sink.error = RuntimeError("bug")
    (reply,) = receiver.send(post(b"x"))
    assert (reply.status, Status.FromString(reply.body).code) == (500, 13)
    sink.error = None
    assert [r.status for r in receiver.send(post(b"x"))] == [200]
    assert [r.levelno for r in caplog.records] == [logging.ERROR]
    caplog.clear()

"""What comes in is counted, scored once, and answered as OTLP says."""

from __future__ import annotations

import gzip
import json
import threading
from collections.abc import Callable
from typing import Any

import grpc
import pytest
from google.protobuf.json_format import MessageToDict
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import (
    OTLPSpanExporter as GrpcSpanExporter,
)
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter

from otel_straggler import semconv

EXPORTERS: dict[str, Callable[[Any], SpanExporter]] = {
    "http": lambda a: OTLPSpanExporter(f"http://{a['otlp_http']}/v1/traces"),
    "http, gzip": lambda a: OTLPSpanExporter(
        f"http://{a['otlp_http']}/v1/traces", compression=Compression.Gzip
    ),
    "grpc": lambda a: GrpcSpanExporter(a["otlp_grpc"], insecure=True),
    "grpc, gzip": lambda a: GrpcSpanExporter(
        a["otlp_grpc"], insecure=True, compression=grpc.Compression.Gzip
    ),
}


@pytest.mark.parametrize("exporter", EXPORTERS)
def test_spans_of_the_python_sdk_are_scored_under_their_names(
    live: Any, kit: Any, exporter: str
) -> None:
    """Spans of any SDK count, where span or resource has a rank."""
    resource = Resource.create({"service.name": "job", "rank": 0, "world_size": 1})
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(EXPORTERS[exporter](live.addresses)))
    tracer = provider.get_tracer("somebody.else")
    for step in range(8):
        with tracer.start_as_current_span("fwd", attributes={"iteration": step}):
            pass
    provider.shutdown()

    report = kit.eventually(lambda: live.windows("job"))
    assert live.spans() == {"scored": 8}
    assert report[0]["section_relative_scores"] == {"fwd": {"0": 1.0}}


def test_json_and_protobuf_mean_the_same(live: Any, kit: Any) -> None:
    """OTLP-JSON: hex ids, integers as strings; the answer is JSON too."""
    live.post(kit.spans_of(kit.rank(0), range(8)))
    message = ExportTraceServiceRequest.FromString(kit.spans_of(kit.rank(1), range(8)))
    answer = live.post(as_otlp_json(message), content_type="application/json; charset=utf-8")

    assert (answer.status, answer.json()) == (200, {})
    assert answer.headers["content-type"] == "application/json"
    window = kit.eventually(live.windows)[0]
    assert window["section_relative_scores"] == {"forward": {"0": 1.0, "1": 1.0}}


def test_a_request_delivered_twice_is_scored_once(live: Any, kit: Any) -> None:
    """OTLP may deliver twice; seq says that it is the same run."""
    body = kit.spans_of(kit.rank(0, 1), range(4))
    for _ in range(3):
        assert live.post(body).status == 200
    live.post(kit.spans_of(kit.rank(0, 1), [4]))
    kit.eventually(lambda: live.value(semconv.COLLECTOR_ROWS, fate="scored") == 4)
    assert live.value(semconv.COLLECTOR_ROWS, fate="duplicate") == 8
    assert live.spans() == {"scored": 13}


@pytest.mark.parametrize("zipped", [False, True])
def test_nothing_acknowledged_is_lost_or_counted_twice(start: Any, kit: Any, zipped: bool) -> None:
    """Eight senders at once: spans sent = spans counted = rows scored."""
    live = start(scoring__grace_seconds=60.0)
    senders, requests, steps = 8, 20, 4

    def send(number: int) -> None:
        source = kit.rank(number, senders)
        for r in range(requests):
            body = kit.spans_of(source, range(r * steps, (r + 1) * steps), {"a": 0.1, "b": 0.2})
            statuses.append(live.post(body, zipped=zipped).status)

    statuses: list[int] = []
    threads = [threading.Thread(target=send, args=(n,)) for n in range(senders)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    sent = senders * requests * steps * 2
    assert statuses == [200] * (senders * requests)
    assert live.spans() == {"scored": sent}
    live.collector._servers.stop_receiving(5.0)
    live.collector._intake.close()
    live.collector._worker.stop()
    assert live.value(semconv.COLLECTOR_ROWS, fate="scored") == sent
    assert live.value(semconv.COLLECTOR_ROWS, fate="late") == 0
    assert live.value(semconv.COLLECTOR_QUEUE) == 0
    live.collector._servers.stop()
    live.is_stopped = True


def test_bad_spans_are_rejected_by_reason_and_the_others_taken(live: Any, kit: Any) -> None:
    """A partial success names what was wrong; spans without a rank are no error."""
    request = ExportTraceServiceRequest.FromString(kit.spans_of(kit.rank(0, 1), range(8)))
    spans = request.resource_spans[0].scope_spans[0].spans
    spans[1].trace_id = b"short"
    spans[2].end_time_unix_nano = spans[2].start_time_unix_nano
    spans[3].attributes.add(key="rank").value.int_value = -1
    spans[4].start_time_unix_nano = 0
    spans[5].status.code = 2
    stranger = request.resource_spans.add().scope_spans.add().spans.add()
    stranger.CopyFrom(spans[0])

    answer = live.post(request.SerializeToString())
    partial = ExportTraceServiceResponse.FromString(answer.body).partial_success
    assert answer.status == 200
    assert partial.rejected_spans == 4
    for reason in ("bad_id", "duration_not_positive", "bad_rank", "bad_time"):
        assert f"{reason}: 1" in partial.error_message
    assert live.spans() == {
        "scored": 3, "no_rank": 1, "error_status": 1,
        "bad_id": 1, "duration_not_positive": 1, "bad_rank": 1, "bad_time": 1,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        (b"\xff\xff\xff", "application/x-protobuf"),
        (b"{", "application/json"),
        (b"[]", "application/json"),
        (b'{"resourceSpans": 3}', "application/json"),
        (b'{"resourceSpans":' * 2000, "application/json"),
        (b'{"resourceSpans":[{"scopeSpans":[{"spans":[{"kind":"SERVER"}]}]}]}', "application/json"),
        (b"\xff{}", "application/json"),
    ],
)
def test_a_body_that_is_not_otlp_is_answered_400_with_a_status(
    live: Any, body: bytes, content_type: str
) -> None:
    """Senders must not send it again."""
    answer = live.post(body, content_type=content_type)
    assert answer.status == 400
    assert answer.headers["content-type"] == content_type
    assert answer.headers[semconv.SCORER_HEADER] == "1"
    if content_type == "application/json":
        assert answer.json()["code"] == 3
    else:
        assert answer.body.startswith(b"\x08\x03\x12")


def test_truncated_bodies_are_never_taken_in_part(live: Any, kit: Any) -> None:
    """Every cut of a request is refused, or is itself a complete request."""
    body = kit.spans_of(kit.rank(0, 1), [0])
    for cut in range(1, len(body)):
        assert live.post(body[:cut]).status == 400
    assert live.spans() == {}


def test_unknown_fields_of_newer_senders_are_ignored(live: Any, kit: Any) -> None:
    """A field that this version does not know changes nothing."""
    body = kit.spans_of(kit.rank(0, 1), range(4)) + b"\xc2\x3e\x03new"
    assert live.post(body).status == 200
    document = json.loads(
        as_otlp_json(ExportTraceServiceRequest.FromString(kit.spans_of(kit.rank(0, 1), [4])))
    )
    document["fromTheFuture"] = {"x": [1]}
    document["resourceSpans"][0]["scopeSpans"][0]["spans"][0]["mood"] = "good"
    assert live.post(json.dumps(document).encode(), content_type="application/json").status == 200
    assert live.spans() == {"scored": 5}


@pytest.mark.parametrize("signal", ["traces", "metrics", "logs"])
@pytest.mark.parametrize("zipped", [False, True])
def test_an_empty_request_is_a_success(live: Any, signal: str, zipped: bool) -> None:
    """OTLP says so."""
    answer = live.post(b"", signal, zipped=zipped)
    assert (answer.status, answer.body) == (200, b"")


def test_logs_are_accepted_and_counted(live: Any) -> None:
    """They mean nothing to scores."""
    assert live.post(b"anything", "logs").status == 200
    assert live.value(semconv.COLLECTOR_REQUESTS, signal="logs", answer="ok") == 1


def test_a_bomb_is_refused_while_it_inflates(start: Any, kit: Any) -> None:
    """The limit holds after decompression, over HTTP and over gRPC."""
    live = start(receivers__max_body_bytes=100_000)
    bomb = gzip.compress(bytes(50_000_000))
    answer = kit.ask(
        live.addresses["otlp_http"],
        "POST",
        "/v1/traces",
        bomb,
        {"Content-Type": "application/x-protobuf", "Content-Encoding": "gzip"},
    )
    assert answer.status == 413
    assert answer.body.startswith(b"\x08\x08")
    with grpc.insecure_channel(live.addresses["otlp_grpc"]) as channel:
        call = channel.unary_unary("/opentelemetry.proto.collector.trace.v1.TraceService/Export")
        with pytest.raises(grpc.RpcError) as refused:
            call(bytes(50_000_000), compression=grpc.Compression.Gzip, timeout=30)
        assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        with pytest.raises(grpc.RpcError) as refused:
            call(bytes(200_000), timeout=30)
        assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        with pytest.raises(grpc.RpcError) as refused:
            call(b"\xff\xff", timeout=30)
        assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert call(b"", timeout=30) == b""


def test_metrics_and_logs_come_in_over_grpc_too(live: Any, kit: Any) -> None:
    """All three services; the answer says that this is a scorer."""
    body = kit.beat_of(kit.rank(0), sent_at_s=1_790_000_000.0, step=7)
    prefix = "/opentelemetry.proto.collector"
    with grpc.insecure_channel(live.addresses["otlp_grpc"]) as channel:
        export = channel.unary_unary(f"{prefix}.metrics.v1.MetricsService/Export")
        _, call = export.with_call(body, timeout=30)
        headers = dict(call.initial_metadata())
        assert headers[semconv.SCORER_HEADER] == semconv.WIRE_VERSION
        channel.unary_unary(f"{prefix}.logs.v1.LogsService/Export")(b"x", timeout=30)
        with pytest.raises(grpc.RpcError) as refused:
            channel.unary_unary(f"{prefix}.profiles.v1.ProfilesService/Export")(b"", timeout=30)
        assert refused.value.code() is grpc.StatusCode.UNIMPLEMENTED
    assert kit.eventually(lambda: live.value(semconv.RANK_STEP)) == 7


def test_when_too_much_waits_senders_are_told_to_come_back(start: Any, kit: Any) -> None:
    """503 with Retry-After (UNAVAILABLE over gRPC); nothing of the request is kept."""
    live = start()
    admission = live.collector._admission
    size = 256 * 1024 * 1024
    assert admission.reserve(size)
    body = kit.spans_of(kit.rank(0, 1), [0])
    answer = live.post(body)
    assert answer.status == 503
    assert int(answer.headers["retry-after"]) >= 1
    assert live.get("/readyz").status == 503
    assert live.get("/healthz").status == 200
    with grpc.insecure_channel(live.addresses["otlp_grpc"]) as channel:
        call = channel.unary_unary("/opentelemetry.proto.collector.trace.v1.TraceService/Export")
        with pytest.raises(grpc.RpcError) as refused:
            call(body, timeout=30)
        assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
    admission.release(size)
    assert live.post(body).status == 200
    assert live.get("/readyz").status == 200
    assert live.spans() == {"scored": 1}


def as_otlp_json(message: Any) -> bytes:
    """OTLP-JSON: protobuf's JSON, but with hex ids."""
    import base64

    document = MessageToDict(message, use_integers_for_enums=True)
    for resource_spans in document["resourceSpans"]:
        for scope_spans in resource_spans["scopeSpans"]:
            for span in scope_spans["spans"]:
                for key in ("traceId", "spanId", "parentSpanId"):
                    if key in span:
                        span[key] = base64.b64decode(span[key]).hex().upper()
    return json.dumps(document).encode()

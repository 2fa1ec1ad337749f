"""The queue on the way out: order, patience, and what is given up."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from otel_straggler.client.sender import Drops, SpanSender
from otel_straggler.otlp.clients.client import client_for
from otel_straggler.testing import CapturedRequests, FakeClock

from .sinks import GrpcSink, HttpSink

MakeSender = Callable[..., SpanSender]


@pytest.fixture(params=["http/protobuf", "grpc"])
def protocol(request: pytest.FixtureRequest) -> str:
    """Every test here holds for both transports."""
    return str(request.param)


@pytest.fixture
def drops() -> Drops:
    return Drops()


@pytest.fixture
def make_sender(sink: HttpSink | GrpcSink, clock: FakeClock, drops: Drops) -> MakeSender:
    def make(budget_bytes: int = 1_000_000, **endpoint: object) -> SpanSender:
        to = sink.endpoint("traces", **endpoint)
        return SpanSender(
            to,
            client_for(to, "traces"),
            budget_bytes=budget_bytes,
            drops=drops,
            monotonic_s=clock.monotonic_s,
            on_answer=lambda _: None,
            rng=lambda: 1.0,
        )

    return make


def bodies(sink: CapturedRequests) -> list[bytes]:
    return [r.body for r in sink.requests if r.answered == 200]


def test_requests_keep_their_order_over_an_outage(
    make_sender: MakeSender, sink: CapturedRequests, clock: FakeClock, drops: Drops
) -> None:
    """Nothing is lost and nothing overtakes."""
    sender = make_sender()
    sink.behaviour.next_statuses = [200, 503, 429, 502, 504]
    for n in range(4):
        sender.put(b"%d" % n, 1)
    for _ in range(6):
        sender.send(clock.monotonic_s() + 1.0)
        clock.advance(60.0)
    assert bodies(sink) == [b"0", b"1", b"2", b"3"]
    assert drops.counts() == {}


def test_waits_grow_and_are_kept(
    make_sender: MakeSender, sink: CapturedRequests, clock: FakeClock
) -> None:
    """1, 2, 4 seconds: nothing is tried before its time."""
    sender = make_sender()
    sink.behaviour.status = 503
    sender.put(b"x", 1)
    tried_at_s = []
    for _ in range(80):
        before = len(sink.requests)
        sender.send(clock.monotonic_s() + 0.1)
        if len(sink.requests) > before:
            tried_at_s.append(clock.monotonic_s() - 1_000.0)
        clock.advance(0.1)
    assert tried_at_s == pytest.approx([0.0, 1.0, 3.0, 7.0], abs=0.15)


def test_retry_after_is_honoured(
    make_sender: MakeSender, sink: CapturedRequests, clock: FakeClock
) -> None:
    """A server that asks for more patience gets it."""
    sender = make_sender()
    sink.behaviour.next_statuses = [503]
    sink.behaviour.headers = {"Retry-After": "17"}
    sender.put(b"x", 1)
    sender.send(clock.monotonic_s() + 1.0)
    assert sender.not_before_s == clock.monotonic_s() + 17.0


def test_a_lost_connection_is_retried_on_a_fresh_one(
    make_sender: MakeSender, sink: CapturedRequests, clock: FakeClock, drops: Drops
) -> None:
    """The server closed without an answer; the request is not lost."""
    sender = make_sender()
    sender.put(b"x", 1)
    sink.behaviour.drops_connections = True
    sender.send(clock.monotonic_s() + 1.0)
    sink.behaviour.drops_connections = False
    clock.advance(5.0)
    sender.send(clock.monotonic_s() + 1.0)
    assert bodies(sink) == [b"x"]
    assert drops.counts() == {}


@pytest.mark.parametrize("status", [400, 401, 404, 413, 500, 301])
def test_a_refused_request_is_dropped_and_counted(
    make_sender: MakeSender, sink: CapturedRequests, clock: FakeClock, drops: Drops, status: int
) -> None:
    """What would be refused again is not sent again; no redirect is followed."""
    sender = make_sender()
    sink.behaviour.next_statuses = [status]
    sink.behaviour.headers = {"Location": sink.url + "/elsewhere"}
    sender.put(b"bad", 7)
    sender.put(b"good", 1)
    sender.send(clock.monotonic_s() + 1.0)
    assert bodies(sink) == [b"good"]
    assert drops.counts() == {"rejected": 7}


def test_partly_rejected_spans_are_counted_and_not_sent_again(
    make_sender: MakeSender, sink: CapturedRequests, clock: FakeClock, drops: Drops
) -> None:
    """As OTLP's specification asks."""
    answer = ExportTraceServiceResponse()
    answer.partial_success.rejected_spans = 3
    sink.behaviour.body = answer.SerializeToString()
    sender = make_sender()
    sender.put(b"x", 10)
    sender.send(clock.monotonic_s() + 1.0)
    assert drops.counts() == {"rejected": 3}
    assert sender.queued_requests == 0


def test_a_full_queue_gives_up_its_oldest(
    make_sender: MakeSender, sink: CapturedRequests, clock: FakeClock, drops: Drops
) -> None:
    """Losses are counted in spans."""
    sender = make_sender(budget_bytes=25)
    for n in range(5):
        sender.put(b"%d" % n * 10, n + 1)
    sender.send(clock.monotonic_s() + 1.0)
    assert bodies(sink) == [b"3" * 10, b"4" * 10]
    assert drops.counts() == {"queue_full": 1 + 2 + 3}


def test_bodies_are_compressed_if_asked(
    make_sender: MakeSender, sink: HttpSink | GrpcSink, clock: FakeClock
) -> None:
    """The budget counts what really waits: gRPC compresses as it sends."""
    sender = make_sender(
        budget_bytes=10_000 if sink.protocol == "grpc" else 200, compression="gzip"
    )
    sender.put(b"a" * 10_000, 1)
    sender.send(clock.monotonic_s() + 1.0)
    assert bodies(sink) == [b"a" * 10_000]
    assert sink.requests[0].headers["content-encoding"] == "gzip"


def test_an_outage_is_logged_once(
    make_sender: MakeSender,
    sink: CapturedRequests,
    clock: FakeClock,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A training log is not for the collector's troubles."""
    sender = make_sender()
    sink.behaviour.status = 503
    sender.put(b"x", 1)
    for _ in range(10):
        sender.send(clock.monotonic_s() + 1.0)
        clock.advance(60.0)
    assert len(caplog.records) == 1
    assert "kept and retried" in caplog.records[0].getMessage()

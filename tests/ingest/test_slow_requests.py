"""Requests that cost far more than their bytes are refused, or keep nobody else waiting."""

from __future__ import annotations

import asyncio
import gzip
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from otel_straggler.collector.ingest.http_bodies import OffLoop
from otel_straggler.collector.ingest.intake import PROTOBUF, ByteBudget, Intake, Request
from otel_straggler.errors import InputError
from otel_straggler.native import NATIVE
from otel_straggler.otlp import decode_json, decoder
from otel_straggler.otlp.decode_spans import SpanDecoder
from otel_straggler.otlp.decoder import SlowError

from .conftest import CLIENT_S, Receiver, Sink, StartReceiver, post, read_until

MIB = 1024 * 1024
EMPTY_OBJECTS = b'{"resourceSpans":[' + b",".join([b"{}"] * 1_000) + b"]}"
needs_native = pytest.mark.skipif(NATIVE is None, reason="the extension module is not built")


def empty_messages(count: int, resource_bytes: int = 70_000) -> bytes:
    """A request that C++ leaves to protobuf's parser, for the size of one resource."""
    request = ExportTraceServiceRequest()
    attribute = request.resource_spans.add().resource.attributes.add(key="note")
    attribute.value.string_value = "x" * resource_bytes
    encoded: bytes = request.SerializeToString()
    return b"\x0a\x00" * count + encoded


@pytest.mark.parametrize("content_type", ["json", "json; charset=utf-8"])
def test_json_has_a_smaller_limit_than_protobuf(
    start: StartReceiver, sink: Sink, content_type: str
) -> None:
    receiver = start(body_bytes=4000, json_bytes=1000)
    for kind, size, status in (
        (content_type, 1000, 200),
        (content_type, 1001, 413),
        ("x-protobuf", 4000, 200),
        ("x-protobuf", 4001, 413),
    ):
        bodies = (
            post(b"x" * size, content_type=kind),
            post(gzip.compress(b"x" * size), "Content-Encoding: gzip", content_type=kind),
        )
        statuses = [receiver.send(body)[0].status for body in bodies]
        assert statuses == [status, status]
    assert len(sink.requests) == 4


def test_json_of_very_many_values_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    SpanDecoder().decode_json(EMPTY_OBJECTS)
    monkeypatch.setattr(decode_json, "MAX_VALUES", 1_000)
    with pytest.raises(InputError, match="more than 1000 values"):
        SpanDecoder().decode_json(EMPTY_OBJECTS)


@needs_native
def test_protobuf_of_very_many_messages_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoder, "MAX_FIELDS", 1_000)
    SpanDecoder().decode(b"\x0a\x00" * 100_000)  # C++ makes nothing of them
    SpanDecoder().decode(empty_messages(990))
    with pytest.raises(InputError, match="more than 1000 messages and texts"):
        SpanDecoder().decode(empty_messages(1_000))


@needs_native
def test_messages_are_counted_at_every_depth_of_a_request() -> None:
    assert NATIVE is not None
    request = ExportTraceServiceRequest()
    spans = request.resource_spans.add().scope_spans.add().spans
    for _ in range(10):
        for _ in range(10):
            spans.add().attributes.add(key="k").value.array_value.values.add().string_value = "v"
    n_fields = 2 + 100 * 7
    assert NATIVE.count_fields(request.SerializeToString(), 10**6) == n_fields
    assert NATIVE.count_fields(request.SerializeToString(), 50) == 50
    assert NATIVE.count_fields(b"\xff" * 100, 50) == 0


def test_what_is_slow_to_decode_is_left_to_a_thread() -> None:
    budget = ByteBudget(MIB)
    intake = Intake(lambda *_: None, lambda *_: None, budget)
    large = empty_messages(0)
    for content_type, body in (("application/json", b" " * 70_000 + b"{}"), (PROTOBUF, large)):
        request = Request(
            signal="traces", content_type=content_type, body=body, raw_body=body,
            content_encoding="",
        )  # fmt: skip
        if content_type == PROTOBUF and NATIVE is None:
            continue
        with pytest.raises(SlowError):
            intake.handle(request, 64 * 1024)
        assert (budget.waiting_bytes, intake.counts().answers) == (0, {})


class Held(Sink):
    """Says that every request is slow, and holds the thread that decodes it."""

    def __init__(self) -> None:
        super().__init__()
        self.opened = threading.Event()
        self.came_in = threading.Semaphore(0)

    def handle(self, request: Request, max_slow_bytes: int | None = None) -> Any:
        if request.body.startswith(b"slow"):
            if max_slow_bytes is not None:
                raise SlowError
            self.came_in.release()
            assert self.opened.wait(CLIENT_S)
        return super().handle(request)


@pytest.fixture
def sink() -> Iterator[Sink]:
    held = Held()
    yield held
    held.opened.set()


def test_a_heartbeat_and_a_large_body_pass_slow_requests(receiver: Receiver, sink: Held) -> None:
    slow = [receiver.connect() for _ in range(3)]
    for client in slow:
        client.sendall(post(b"slow", content_type="json"))
    assert sink.came_in.acquire(timeout=CLIENT_S)
    for body in (b"heartbeat", b"l" * 2 * MIB):
        assert [reply.status for reply in receiver.send(post(body))] == [200]
    assert [len(request.body) for request in sink.requests] == [9, 2 * MIB]
    assert not sink.came_in.acquire(blocking=False)  # the others wait for the first
    sink.opened.set()
    for client in slow:
        with client:
            assert read_until(client, b"{}").startswith(b"HTTP/1.1 200")


def test_slow_work_leaves_a_thread_to_the_rest() -> None:
    async def work() -> list[str]:
        done: list[str] = []
        gate = threading.Event()
        off_loop = OffLoop(max_threads=2)
        slow = [
            off_loop.run(lambda: (gate.wait(CLIENT_S), done.append("slow")), is_slow=True)
            for _ in range(3)
        ]
        await off_loop.run(lambda: done.append("quick"))
        gate.set()
        await asyncio.gather(*slow)
        return done

    assert asyncio.run(work()) == ["quick", "slow", "slow", "slow"]

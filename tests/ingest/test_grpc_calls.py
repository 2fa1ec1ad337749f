"""Calls that end early, calls that would fill the memory, and senders who are told to wait."""

from __future__ import annotations

import gzip
import logging
import threading
import tracemalloc
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import grpc
import pytest
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as OverGrpc
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as OverHttp
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from otel_straggler.collector.ingest.grpc import GrpcServer
from otel_straggler.collector.ingest.intake import Answer, Request

from .conftest import CLIENT_S, Sink, StartReceiver

TRACES = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
LATER = Answer(status="busy", message="later", retry_after_s=1)
OK = Answer(status="ok")


@dataclass
class Gate(Sink):
    """A handler that lets nobody through until it is opened, and counts who has come in."""

    opened: threading.Event = field(default_factory=threading.Event)
    came_in: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))

    def handle(self, request: Request, max_slow_bytes: int | None = None) -> Answer:
        self.came_in.release()
        assert self.opened.wait(CLIENT_S)
        return super().handle(request)


@dataclass
class Turning(Sink):
    """A handler that gives one answer after the other, and the last for ever."""

    answers: list[Answer] = field(default_factory=list)

    def handle(self, request: Request, max_slow_bytes: int | None = None) -> Answer:
        self.answer = self.answers.pop(0) if self.answers else self.answer
        return super().handle(request)


@pytest.fixture
def serve() -> Iterator[Callable[[Sink], int]]:
    """Start gRPC servers of small limits."""
    servers: list[GrpcServer] = []

    def start_one(sink: Sink) -> int:
        servers.append(GrpcServer(sink, max_bytes=4 << 20))
        return servers[-1].start("127.0.0.1", 0)[1]

    yield start_one
    for server in servers:
        server.stop(1.0)


@pytest.mark.parametrize("how", ["cancelled", "past its deadline"])
def test_calls_that_end_early_cost_nothing_but_themselves(
    serve: Callable[[Sink], int], how: str
) -> None:
    """Those that are at work and those that still wait for a thread; no bug is logged, and others
    are served."""
    gate = Gate()
    with grpc.insecure_channel(f"127.0.0.1:{serve(gate)}") as channel:
        export = channel.unary_unary(TRACES)
        timeout_s = CLIENT_S if how == "cancelled" else 0.5
        calls = [export.future(b"early", timeout=timeout_s) for _ in range(12)]
        for _ in range(4):  # threads of the server
            assert gate.came_in.acquire(timeout=CLIENT_S)
        if how == "cancelled":
            assert all(call.cancel() for call in calls)
        else:
            assert {call.code() for call in calls} == {grpc.StatusCode.DEADLINE_EXCEEDED}
        gate.opened.set()
        with ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(lambda _: export(b"x", timeout=CLIENT_S), range(20)))
    assert answers == [b""] * 20
    assert [request.body for request in gate.requests].count(b"x") == 20


def test_a_gzip_bomb_in_a_message_is_refused_in_bounded_memory(
    serve: Callable[[Sink], int], sink: Sink
) -> None:
    """A gigabyte in a megabyte; gRPC's own decompression would have inflated it first."""
    deflater = zlib.compressobj(9, zlib.DEFLATED, 31)
    zeros = bytes(1 << 20)
    bomb = b"".join(deflater.compress(zeros) for _ in range(1024)) + deflater.flush()
    with grpc.insecure_channel(f"127.0.0.1:{serve(sink)}") as channel:
        tracemalloc.start()
        try:
            with pytest.raises(grpc.RpcError) as refused:
                channel.unary_unary(TRACES)(bomb, timeout=CLIENT_S)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert peak < 32 << 20
    assert sink.requests == []


def test_calls_whose_message_never_comes_keep_nobody_out(sink: Sink) -> None:
    """They hold all calls of their connection, and are asked to send again."""
    server = GrpcServer(sink, max_bytes=4 << 20, silence_s=0.2)
    address = f"127.0.0.1:{server.start('127.0.0.1', 0)[1]}"
    apart = [("grpc.use_local_subchannel_pool", 1)]
    is_over = threading.Event()

    def never() -> Iterator[bytes]:
        is_over.wait()
        yield from ()

    try:
        with grpc.insecure_channel(address) as silent, grpc.insecure_channel(address, apart) as own:
            export = silent.stream_unary(TRACES)
            calls = [export.future(never(), timeout=3 * CLIENT_S) for _ in range(80)]
            assert own.unary_unary(TRACES)(b"heard", timeout=CLIENT_S) == b""
            codes = {call.code() for call in calls}
    finally:
        is_over.set()
        server.stop(1.0)
    assert codes == {grpc.StatusCode.UNAVAILABLE}
    assert [request.body for request in sink.requests] == [b"heard"]


def test_what_is_refused_before_it_is_handled_is_counted(sink: Sink) -> None:
    """Once each; what was handled is counted by who handled it."""
    counts: Counter[tuple[str, str]] = Counter()
    server = GrpcServer(
        sink, max_bytes=1000, refused=lambda signal, answer: counts.update([(signal, answer)])
    )
    address = f"127.0.0.1:{server.start('127.0.0.1', 0)[1]}"
    try:
        with grpc.insecure_channel(address) as channel:
            export = channel.unary_unary(TRACES)
            for body in (gzip.compress(bytes(1001)), gzip.compress(b"cut off")[:-1]):
                with pytest.raises(grpc.RpcError):
                    export(body, timeout=CLIENT_S)
            export(b"taken", timeout=CLIENT_S)
            sink.busy = True
            with pytest.raises(grpc.RpcError):
                export(b"later", timeout=CLIENT_S)
    finally:
        server.stop(1.0)
    assert counts == {("traces", "malformed"): 2, ("traces", "busy"): 1}
    assert [request.body for request in sink.requests] == [b"taken"]


def test_the_sdk_over_grpc_comes_again_when_it_was_told(serve: Callable[[Sink], int]) -> None:
    """It finds RetryInfo, waits as long, and delivers."""
    sink = Turning(answers=[LATER, OK])
    exporter = OverGrpc(f"127.0.0.1:{serve(sink)}", insecure=True)
    assert delivered(exporter) is SpanExportResult.SUCCESS
    assert len({request.body for request in sink.requests}) == 1
    assert len(sink.requests) == 2


def test_the_sdk_over_http_comes_again_when_it_was_told(start: StartReceiver) -> None:
    """The same with 503 and Retry-After."""
    from otel_straggler.collector.ingest.http import OtlpHttp

    sink = Turning(answers=[LATER, OK])
    receiver = start(OtlpHttp(sink, keep_raw=False))
    exporter = OverHttp(f"http://127.0.0.1:{receiver.port}/v1/traces")
    assert delivered(exporter) is SpanExportResult.SUCCESS
    assert len(sink.requests) == 2


def delivered(exporter: SpanExporter) -> SpanExportResult:
    """Export one span; what the SDK logs of it is its own."""
    kept = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(kept))
    provider.get_tracer("test").start_span("forward").end()
    logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)
    try:
        return exporter.export(kept.get_finished_spans())
    finally:
        logging.getLogger("opentelemetry").setLevel(logging.NOTSET)
        exporter.shutdown()
        provider.shutdown()

"""A receiver on a free loopback port, a handler that keeps what it gets, and a raw client."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from otel_straggler.collector.ingest.http import OtlpHttp
from otel_straggler.collector.ingest.http_messages import HttpLimits
from otel_straggler.collector.ingest.http_server import HttpServer
from otel_straggler.collector.ingest.intake import Answer, Request
from otel_straggler.otlp.answers import Signal

CLIENT_S = 20.0
"""A client waits no longer; nothing is asserted about it."""


@dataclass
class Sink:
    """A handler that keeps what it is given and answers what it is told to."""

    answer: Answer = field(default_factory=lambda: Answer(status="ok"))
    busy: bool = False
    requests: list[Request] = field(default_factory=list)
    error: Exception | None = None

    def handle(self, request: Request, max_slow_bytes: int | None = None) -> Answer:
        if self.error is not None:
            raise self.error
        self.requests.append(request)
        return self.answer

    def is_busy(self, signal: Signal) -> bool:
        return self.busy


@dataclass
class Reply:
    """One parsed answer."""

    status: int
    headers: dict[str, str]
    body: bytes


class Receiver:
    """A running HTTP server on a loop of its own."""

    def __init__(self, app: Any, limits: HttpLimits, loop: asyncio.AbstractEventLoop) -> None:
        self.app = app
        self.server = HttpServer(app, limits)
        self._loop = loop
        self._thread = threading.Thread(target=loop.run_forever, daemon=True)
        self._thread.start()
        _, self.port = self.call(self.server.start("127.0.0.1", 0))

    def call(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(CLIENT_S)

    def stop(self, deadline_s: float = 1.0) -> None:
        self.call(self.server.stop(deadline_s))

    def close(self) -> None:
        self.stop(0.0)
        self.call(self._loop.shutdown_default_executor())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(CLIENT_S)
        self._loop.close()

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=CLIENT_S)

    def send(self, *pieces: bytes, half_close: bool = True) -> list[Reply]:
        """Send the pieces, then read answers until the server closes."""
        with self.connect() as client:
            with contextlib.suppress(OSError):  # it may have answered and closed already
                for piece in pieces:
                    client.sendall(piece)
                if half_close:
                    client.shutdown(socket.SHUT_WR)
            return split_replies(read_all(client))


def read_all(client: socket.socket) -> bytes:
    """Read until the server closes."""
    parts = []
    with contextlib.suppress(ConnectionResetError):
        while part := client.recv(65536):
            parts.append(part)
    return b"".join(parts)


def read_until(client: socket.socket, end: bytes) -> bytes:
    """Read until the bytes end so."""
    data = b""
    while not data.endswith(end):
        part = client.recv(65536)
        assert part, data
        data += part
    return data


def split_replies(data: bytes, *, is_head: bool = False) -> list[Reply]:
    """Take answers apart by their own framing; interim answers count too."""
    replies = []
    at = 0
    while at < len(data):
        end = data.find(b"\r\n\r\n", at)
        assert end >= 0, data[at:]
        first, *lines = data[at:end].decode().split("\r\n")
        headers = {n.lower(): v for n, _, v in (line.partition(": ") for line in lines)}
        at = end + 4
        size = 0 if is_head else int(headers.get("content-length", "0"))
        assert len(data) >= at + size, "the answer was cut off"
        replies.append(Reply(int(first.split(" ")[1]), headers, data[at : at + size]))
        at += size
    return replies


def post(
    body: bytes = b"", *extra: str, path: str = "/v1/traces", content_type: str = "x-protobuf"
) -> bytes:
    """A plain, valid export request."""
    lines = [
        f"POST {path} HTTP/1.1",
        "Host: collector:4318",
        f"Content-Type: application/{content_type}",
        f"Content-Length: {len(body)}",
        *extra,
    ]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def chunked(framed: bytes, *extra: str) -> bytes:
    """A request whose body is framed by the test."""
    lines = [
        "POST /v1/traces HTTP/1.1",
        "Host: collector:4318",
        "Content-Type: application/x-protobuf",
        "Transfer-Encoding: chunked",
        *extra,
    ]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + framed


@pytest.fixture
def sink() -> Sink:
    return Sink()


StartReceiver = Callable[..., Receiver]


@pytest.fixture(params=["uvloop", "asyncio"])
def loop_name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def start(sink: Sink, loop_name: str) -> Iterator[StartReceiver]:
    """Start receivers with limits of the test's own; a list of what asyncio complains of."""
    started: list[Receiver] = []

    def start_one(app: Any = None, **limits: Any) -> Receiver:
        if loop_name == "uvloop":
            loop = pytest.importorskip("uvloop").new_event_loop()
        else:
            loop = asyncio.new_event_loop()
        own = app or OtlpHttp(sink, keep_raw=True)
        started.append(Receiver(own, HttpLimits(**limits), loop))
        return started[-1]

    yield start_one
    for receiver in started:
        receiver.close()


@pytest.fixture
def receiver(start: StartReceiver) -> Receiver:
    return start()


@pytest.fixture(autouse=True)
def nothing_logged(
    caplog: pytest.LogCaptureFixture, request: pytest.FixtureRequest
) -> Iterator[None]:
    """A receiver logs only bugs of the service behind it; tests of those clear the log."""
    yield
    noise = [r.getMessage() for r in caplog.get_records("call") if r.levelname != "DEBUG"]
    assert request.node.get_closest_marker("xfail") or noise == []

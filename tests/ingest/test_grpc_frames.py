"""gRPC as clients of any library speak it: every compression, frames of any shape, bad manners."""

from __future__ import annotations

import gzip
import random
import socket
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from typing import Any
from urllib.parse import unquote

import cramjam
import h2.config
import h2.connection
import h2.events
import h2.exceptions
import pytest

from otel_straggler.collector.ingest.grpc import GrpcServer

from ..waiting import eventually
from .conftest import CLIENT_S, Sink

METHOD = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
HEADERS = {
    ":method": "POST",
    ":scheme": "http",
    ":path": METHOD,
    ":authority": "collector",
    "content-type": "application/grpc",
    "te": "trailers",
}
LIMIT = 1024 * 1024
ENCODERS: dict[str, Callable[[bytes], Any]] = {
    "gzip": gzip.compress,
    "deflate": zlib.compress,
    "zstd": cramjam.zstd.compress,
    "snappy": cramjam.snappy.compress,
}
every_coding = pytest.mark.parametrize("coding", ENCODERS)


class Client:
    """A client that sends the frames that a test wants."""

    def __init__(self, port: int, source: str = "127.0.0.1") -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), CLIENT_S, (source, 0))
        config = h2.config.H2Configuration(client_side=True, header_encoding="utf-8")
        self.h2 = h2.connection.H2Connection(config)
        self.h2.initiate_connection()
        self.answers: dict[int, tuple[int, str]] = {}
        self.flush()

    def flush(self) -> None:
        self.socket.sendall(self.h2.data_to_send())

    def begin(self, **headers: str) -> int:
        number: int = self.h2.get_next_available_stream_id()
        named = {name.replace("_", "-").replace("--", ":"): v for name, v in headers.items()}
        self.h2.send_headers(number, list({**HEADERS, **named}.items()))
        self.flush()
        return number

    def send(self, number: int, data: bytes, *, is_last: bool = True) -> None:
        """In pieces, as the windows allow."""
        while len(data) > (size := min(self.h2.local_flow_control_window(number), 16_384)):
            self.h2.send_data(number, data[:size])
            data = data[size:]
            self.flush()
            while not self.h2.local_flow_control_window(number):
                self.read()
                if number in self.answers:
                    return
        self.h2.send_data(number, data, end_stream=is_last)
        self.flush()

    def read(self) -> None:
        """Read what has come; keep statuses and messages of calls."""
        data = self.socket.recv(65536)
        if not data:
            raise ConnectionError("closed")
        for event in self.h2.receive_data(data):
            found = dict(getattr(event, "headers", None) or ())
            if "grpc-status" in found:
                text = unquote(found.get("grpc-message", ""))
                self.answers[event.stream_id] = int(found["grpc-status"]), text
        self.flush()

    def answer(self, number: int) -> tuple[int, str]:
        """Status and message of a call."""
        while number not in self.answers:
            self.read()
        return self.answers[number]

    def call(self, message: bytes, coding: str = "", *, is_compressed: bool = True) -> Any:
        number = self.begin(**({"grpc_encoding": coding} if coding else {}))
        with suppress(h2.exceptions.StreamClosedError):  # it has been refused already
            self.send(number, frame(message, is_compressed=bool(coding) and is_compressed))
        return self.answer(number)

    def is_closed(self) -> bool:
        try:
            while True:
                self.read()
        except (OSError, h2.exceptions.ProtocolError):
            return True


def frame(message: bytes, *, is_compressed: bool = False) -> bytes:
    return bytes([is_compressed]) + len(message).to_bytes(4, "big") + message


@pytest.fixture
def server(sink: Sink) -> Iterator[GrpcServer]:
    running = GrpcServer(sink, max_bytes=LIMIT, connections=8, handshake_s=CLIENT_S)
    running.port = running.start("127.0.0.1", 0)[1]  # type: ignore[attr-defined]
    yield running
    running.stop(1.0)


@pytest.fixture
def client(server: Any) -> Iterator[Client]:
    one = Client(server.port)
    yield one
    one.socket.close()


@every_coding
@pytest.mark.parametrize("size", [0, 10, 300_000, LIMIT])
def test_a_message_of_every_coding_is_inflated(
    client: Client, sink: Sink, coding: str, size: int
) -> None:
    content = random.Random(size).randbytes(size // 2) + bytes(size - size // 2)
    assert client.call(bytes(ENCODERS[coding](content)), coding) == (0, "")
    assert client.call(content, coding, is_compressed=False) == (0, "")
    assert [request.body for request in sink.requests] == [content, content]


@every_coding
def test_a_bomb_of_every_coding_is_refused(client: Client, sink: Sink, coding: str) -> None:
    bomb = bytes(ENCODERS[coding](bytes(64 * LIMIT)))
    assert client.call(bomb, coding)[0] == 8
    assert client.call(b"next") == (0, "")
    assert [request.body for request in sink.requests] == [b"next"]


@every_coding
def test_a_damaged_message_is_an_invalid_argument(client: Client, coding: str) -> None:
    assert client.call(bytes(ENCODERS[coding](b"text" * 100))[:-3], coding)[0] == 3


def test_an_unknown_coding_is_refused_with_those_that_are_read(client: Client) -> None:
    code, message = client.call(b"x", "lz4")
    assert (code, "zstd" in message) == (12, True)


def test_without_the_package_a_call_says_what_to_install(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "cramjam", None)
    code, message = client.call(b"x", "zstd")
    assert (code, "pip install 'otel-straggler[collector]'" in message) == (12, True)


def test_a_message_in_tiny_pieces_is_read(client: Client, sink: Sink) -> None:
    number = client.begin(grpc_encoding="zstd")
    for byte in frame(bytes(cramjam.zstd.compress(b"text")), is_compressed=True):
        client.send(number, bytes([byte]), is_last=False)
    client.send(number, b"")
    assert client.answer(number) == (0, "")
    assert [request.body for request in sink.requests] == [b"text"]


@pytest.mark.parametrize(
    ("sent", "why"),
    [
        (b"", "no message"),
        (b"\0\0\0", "no message"),
        (frame(b"abc")[:-1], "an incomplete message"),
        (frame(b"abc") + frame(b"def"), "one message"),
        (b"\0\xff\xff\xff\xff" + b"abc", "larger than"),
    ],
)
def test_a_call_that_is_not_one_message_is_refused(
    client: Client, sink: Sink, sent: bytes, why: str
) -> None:
    number = client.begin()
    client.send(number, sent)
    code, message = client.answer(number)
    assert (code in (3, 8), why in message) == (True, True)
    assert client.call(b"next") == (0, "")
    assert [request.body for request in sink.requests] == [b"next"]


def test_what_is_no_call_is_unimplemented(client: Client) -> None:
    for headers in ({"__path": "/no.Such/Export"}, {"content_type": "text/plain"}):
        number = client.begin(**headers)
        assert client.answer(number)[0] == 12


def test_a_client_that_cancels_all_its_calls_is_closed(client: Client, sink: Sink) -> None:
    with suppress(OSError):
        for _ in range(1_000):
            client.h2.reset_stream(client.begin())
            client.flush()
    assert client.is_closed()
    assert sink.requests == []


@pytest.mark.parametrize("seed", range(20))
def test_damaged_frames_end_one_connection_and_nothing_else(
    server: Any, sink: Sink, seed: int
) -> None:
    chance = random.Random(seed)
    client = Client(server.port)
    number = client.h2.get_next_available_stream_id()
    client.h2.send_headers(number, list(HEADERS.items()))
    client.h2.send_data(number, frame(b"damaged"))
    data = bytearray(client.h2.data_to_send() + chance.randbytes(200))
    data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    with client.socket, suppress(OSError):
        client.socket.sendall(data)
        client.socket.shutdown(socket.SHUT_WR)
        while client.socket.recv(65536):
            pass
    other = Client(server.port)
    with other.socket:
        assert other.call(b"next") == (0, "")
    assert [request.body for request in sink.requests] == [b"next"]


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has all of 127.0.0.0/8")
@pytest.mark.parametrize("is_calling", [False, True])
def test_a_client_with_all_connections_gives_way_to_others(
    server: Any, sink: Sink, is_calling: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Silent ones as well as those with a message that does not come."""
    with ExitStack() as stack:
        many = [Client(server.port, "127.0.0.2") for _ in range(8)]
        for one in many:
            stack.enter_context(one.socket)
            if is_calling:
                one.begin()
        eventually(lambda: len(server._server.connections) == 8)
        for _ in range(3):
            honest = Client(server.port)
            with honest.socket:
                assert honest.call(b"1") == (0, "")
        assert server.connections_cut >= 1
    assert [record.levelname for record in caplog.records] == ["WARNING"]  # once
    caplog.clear()
    assert len(sink.requests) == 3


def test_a_stop_lets_a_call_finish_and_says_goodbye(server: Any, sink: Sink) -> None:
    client = Client(server.port)
    with client.socket:
        assert client.call(b"1") == (0, "")
        server.stop(CLIENT_S)
        assert client.is_closed()

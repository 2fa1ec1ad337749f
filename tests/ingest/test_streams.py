"""Answers that are made while they are sent: framing, slow and absent readers, the end."""

from __future__ import annotations

import asyncio
import http.client
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from otel_straggler.collector.ingest.http_messages import Head, HttpLimits, Request, Response

from .conftest import CLIENT_S, Receiver, read_all

BIG = b"x" * 1_000_000


class Pieces:
    """A stream that gives what a test puts into it."""

    def __init__(self, pieces: list[bytes], *, ends: bool = True, fails: bool = False) -> None:
        self.pieces = pieces
        self.ends = ends
        self.fails = fails
        self.asked = 0
        self.closes = 0
        self.closed = threading.Event()

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self._all()

    async def _all(self) -> AsyncIterator[bytes]:
        for piece in self.pieces:
            self.asked += 1
            yield piece
        if self.fails:
            raise ValueError("broken")
        while not self.ends:
            await asyncio.sleep(3600)

    def close(self) -> None:
        self.closes += 1
        self.closed.set()


class StreamingApp:
    """Answers every request with the stream it has."""

    keep_raw = False

    def __init__(self, stream: Pieces, *, is_late: bool = False) -> None:
        self.fixed_headers: dict[str, str] = {}
        self.stream = stream
        self.is_late = is_late

    def refuse(self, head: Head) -> Response | None:
        return None

    def coding(self, head: Head) -> str:
        return ""

    def respond(self, request: Request) -> Any:
        response = Response(200, b"", "text/event-stream", stream=self.stream)
        return self._later(response) if self.is_late else response

    async def _later(self, response: Response) -> Response:
        await asyncio.sleep(0)
        return response

    def failure(self, status: int, message: str, head: Head | None) -> Response:
        return Response(status, message.encode(), "text/plain")


@contextmanager
def serving(stream: Pieces, *, is_late: bool = False, **limits: Any) -> Iterator[Receiver]:
    receiver = Receiver(
        StreamingApp(stream, is_late=is_late), HttpLimits(**limits), asyncio.new_event_loop()
    )
    try:
        yield receiver
    finally:
        receiver.close()


def get(receiver: Receiver, method: str = "GET") -> http.client.HTTPResponse:
    connection = http.client.HTTPConnection("127.0.0.1", receiver.port, timeout=CLIENT_S)
    connection.request(method, "/")
    return connection.getresponse()


@pytest.mark.parametrize("is_late", [False, True])
def test_pieces_arrive_in_order_and_the_connection_ends(is_late: bool) -> None:
    """In chunks, with a last one, so that a reader knows that nothing is missing."""
    stream = Pieces([b"one\n", b"two\n", BIG])
    with serving(stream, is_late=is_late) as receiver:
        response = get(receiver)
        assert response.getheader("transfer-encoding") == "chunked"
        assert response.getheader("connection") == "close"
        assert response.getheader("content-length") is None
        assert response.read() == b"one\ntwo\n" + BIG
    assert stream.closes == 1


def test_http_1_0_gets_it_until_the_connection_closes() -> None:
    with serving(Pieces([b"one\n", b"two\n"])) as receiver, receiver.connect() as client:
        client.sendall(b"GET / HTTP/1.0\r\n\r\n")
        head, _, body = read_all(client).partition(b"\r\n\r\n")
    assert b"chunked" not in head
    assert body == b"one\ntwo\n"


def test_head_gets_the_headers_alone() -> None:
    stream = Pieces([b"one\n"], ends=False)
    with serving(stream) as receiver:
        response = get(receiver, "HEAD")
        assert (response.status, response.read()) == (200, b"")
        assert stream.closed.wait(CLIENT_S)
    assert stream.asked == 0


def test_a_reader_who_goes_away_ends_the_stream() -> None:
    """Nothing is made for nobody."""
    stream = Pieces([b"one\n"], ends=False)
    with serving(stream) as receiver:
        client = receiver.connect()
        client.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert client.recv(10)
        client.close()
        assert stream.closed.wait(CLIENT_S)
    assert stream.closes == 1


def test_a_reader_who_does_not_read_is_cut_off_and_holds_little() -> None:
    """At most what the system's sockets take, and one piece; not the whole stream."""
    stream = Pieces([BIG] * 500, ends=False)
    with serving(stream, stall_s=0.3) as receiver:
        client = socket.socket()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect(("127.0.0.1", receiver.port))
        client.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert stream.closed.wait(CLIENT_S)
        client.close()
    assert stream.asked < 50


def test_a_healthy_stream_outlives_every_deadline() -> None:
    """A page that only listens is not idle."""
    stream = Pieces([b"one\n"], ends=False)
    with serving(
        stream, idle_timeout_s=0.1, header_timeout_s=0.1, request_timeout_s=0.1, stall_s=0.1
    ) as receiver:
        client = receiver.connect()
        client.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert client.recv(10)
        assert not stream.closed.wait(1.5)  # six looks at the deadlines
        client.close()


def test_a_stop_ends_streams_in_good_order() -> None:
    """A reader sees an end, not a broken connection."""
    stream = Pieces([b"one\n"], ends=False)
    with serving(stream) as receiver:
        response = get(receiver)
        assert response.read(4) == b"one\n"
        receiver.stop(CLIENT_S)
        assert response.read() == b""
    assert stream.closes == 1


def test_a_stream_that_fails_breaks_off(caplog: pytest.LogCaptureFixture) -> None:
    """Without the last chunk: what came is not all. The log says why."""
    stream = Pieces([b"one\n"], fails=True)
    with serving(stream) as receiver, pytest.raises(http.client.IncompleteRead):
        get(receiver).read()
    assert stream.closes == 1
    assert [record.getMessage() for record in caplog.records] == ["a stream could not be continued"]
    caplog.clear()


def test_what_is_sent_during_a_stream_is_not_answered() -> None:
    """The connection ends with it."""
    stream = Pieces([b"one\n"] * 3)
    with serving(stream) as receiver, receiver.connect() as client:
        client.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" * 3)
        assert read_all(client).count(b"HTTP/1.1 200") == 1
    assert stream.closes == 1

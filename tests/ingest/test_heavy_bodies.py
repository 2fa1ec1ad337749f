"""Large bodies hold up nobody: they are inflated, joined and handled beside the event loop."""

from __future__ import annotations

import gzip
import random
import socket
import struct
import threading
import time
import zlib
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from otel_straggler.collector.ingest import codings
from otel_straggler.collector.ingest.http import OtlpHttp
from otel_straggler.collector.ingest.intake import Answer, Request

from ..waiting import eventually
from .conftest import (
    CLIENT_S,
    Sink,
    StartReceiver,
    chunked,
    post,
    read_all,
    read_until,
    split_replies,
)

MIB = 1 << 20
GZIP = "Content-Encoding: gzip"


def zipped(content: bytes) -> bytes:
    return gzip.compress(content, 6, mtime=0)


def text(size: int) -> bytes:
    """Bytes that gzip makes some five times smaller, other ones in each place."""
    draw = random.Random(size)
    some = [draw.randbytes(12) for _ in range(64)]
    return b"".join(draw.choices(some, k=size // 12 + 1))[:size]


class Gate:
    """Holds whoever comes to it until it is opened.

    Attributes:
        from_bytes: of content; more than is inflated on the loop.
    """

    def __init__(self) -> None:
        self.from_bytes = 2 * MIB
        self.came_in, self.opened = threading.Semaphore(0), threading.Event()

    def hold(self) -> None:
        self.came_in.release()
        assert self.opened.wait(CLIENT_S)


@pytest.fixture
def inflating(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    """A gate in the inflating of each body that has grown large."""
    gate = Gate()

    class Member:
        def __init__(self, wbits: int) -> None:
            self._real, self._size = zlib.decompressobj(wbits), 0

        def __getattr__(self, name: str) -> Any:
            return getattr(self._real, name)

        def decompress(self, piece: bytes, maximum: int) -> bytes:
            made = self._real.decompress(piece, maximum)
            was, self._size = self._size, self._size + len(made)
            if was < gate.from_bytes <= self._size:
                gate.hold()
            return made

    held = SimpleNamespace(
        decompressobj=Member,
        error=zlib.error,
        MAX_WBITS=zlib.MAX_WBITS,
        DEFLATED=zlib.DEFLATED,
    )
    monkeypatch.setattr(codings, "zlib", held)
    yield gate
    gate.opened.set()


class Handling(Sink):
    """A handler that holds large requests at a gate."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = Gate()

    def handle(self, request: Request, max_slow_bytes: int | None = None) -> Answer:
        if len(request.body) >= MIB:
            self.gate.hold()
        return super().handle(request)


def test_a_heartbeat_is_answered_while_a_large_body_is_inflated(
    start: StartReceiver, sink: Sink, inflating: Gate
) -> None:
    receiver = start()
    content = text(8 * MIB)
    with receiver.connect() as heavy:
        heavy.sendall(post(zipped(content), GZIP))
        assert inflating.came_in.acquire(timeout=CLIENT_S)
        beat = post(zipped(b"beat"), GZIP, path="/v1/metrics")
        assert [reply.status for reply in receiver.send(beat)] == [200]
        assert [request.body for request in sink.requests] == [b"beat"]
        inflating.opened.set()
        assert split_replies(read_until(heavy, b"\r\n\r\n"))[0].status == 200
    assert sink.requests[-1].body == content
    assert receiver.server.bodies.held_bytes == 0


def test_a_large_body_is_what_it_was_and_answers_keep_their_order(
    start: StartReceiver, sink: Sink
) -> None:
    """Whatever the framing, beside small requests in front of it and behind it."""
    receiver = start()
    plain, other = text(3 * MIB), bytes(20 * MIB)
    raw = zipped(plain[:MIB]) + zipped(plain[MIB:])
    chunks = [raw[at : at + 70_000] for at in range(0, len(raw), 70_000)]
    framed = b"".join(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks)
    replies = receiver.send(
        post(b"first"),
        chunked(framed + b"0\r\nX-Trailer: y\r\n\r\n", GZIP),
        post(zipped(b"second")[:-1], GZIP),
        post(zipped(other), GZIP) + post(plain) + post(b"last"),
    )
    assert [reply.status for reply in replies] == [200, 200, 400, 200, 200, 200]
    assert [request.body for request in sink.requests] == [b"first", plain, other, plain, b"last"]
    assert [sink.requests[at].raw_body for at in (1, 2)] == [raw, zipped(other)]
    assert receiver.server.bodies.held_bytes == 0


@pytest.mark.parametrize("end", [zipped(text(4 * MIB))[:-1], zipped(text(4 * MIB)) + b"rubbish"])
def test_a_large_body_that_is_no_gzip_at_its_very_end_is_refused(
    start: StartReceiver, sink: Sink, end: bytes
) -> None:
    receiver = start()
    replies = receiver.send(post(end, GZIP) + post(b"next"))
    assert [reply.status for reply in replies] == [400, 200]
    assert [request.body for request in sink.requests] == [b"next"]
    assert receiver.app.answers == {("traces", 400): 1, ("traces", 200): 1}
    assert receiver.server.bodies.held_bytes == 0


def test_a_bomb_is_refused_before_its_end_has_come(start: StartReceiver, sink: Sink) -> None:
    receiver = start(body_bytes=16 * MIB)
    bomb = zipped(bytes(64 * MIB))
    begun = post(bomb + bytes(1000), GZIP)[: -1000 - len(bomb) // 2]
    assert [r.status for r in receiver.send(begun, half_close=False)] == [413]
    assert (receiver.server.bodies.held_bytes, sink.requests) == (0, [])
    assert receiver.app.answers == {("traces", 413): 1}


@pytest.mark.parametrize("is_whole", [True, False])
def test_a_client_that_has_gone_while_its_body_was_inflated_holds_nothing(
    start: StartReceiver, sink: Sink, inflating: Gate, *, is_whole: bool
) -> None:
    receiver = start()
    request = post(zipped(text(8 * MIB)), GZIP)
    with receiver.connect() as heavy:
        heavy.sendall(request if is_whole else request[:-1])
        assert inflating.came_in.acquire(timeout=CLIENT_S)
        assert receiver.server.bodies.held_bytes >= MIB
    inflating.opened.set()
    eventually(lambda: receiver.server.bodies.held_bytes == 0 and not receiver.server.connections)
    assert [reply.status for reply in receiver.send(post(b"next"))] == [200]


def test_a_body_that_is_inflated_gives_way_where_too_much_is_held(
    start: StartReceiver, sink: Sink, inflating: Gate
) -> None:
    receiver = start(buffered_bytes=8 * MIB)
    inflating.from_bytes = 6 * MIB
    with receiver.connect() as heavy, receiver.connect() as second:
        heavy.sendall(post(zipped(text(8 * MIB)), GZIP))
        assert inflating.came_in.acquire(timeout=CLIENT_S)
        second.sendall(post(bytes(4 * MIB))[:-1])
        assert split_replies(read_until(heavy, b"later"))[0].status == 503
        second.sendall(b"\0")
        inflating.opened.set()
        assert split_replies(read_until(second, b"\r\n\r\n"))[0].status == 200
        heavy.sendall(post(b"next"))
        assert split_replies(read_until(heavy, b"\r\n\r\n"))[0].status == 200
    assert receiver.server.bodies.held_bytes == 0
    assert [len(request.body) for request in sink.requests] == [4 * MIB, 4]


def test_whole_bodies_that_wait_to_be_handled_are_bounded(start: StartReceiver) -> None:
    """Who is refused was not handled, and who was handled is told so; small requests get in."""
    sink = Handling()
    receiver = start(OtlpHttp(sink, keep_raw=False), buffered_bytes=16 * MIB)
    clients = [receiver.connect() for _ in range(12)]
    try:
        for client in clients:
            client.sendall(post(bytes(4 * MIB)))
        for _ in range(2):  # threads
            assert sink.gate.came_in.acquire(timeout=CLIENT_S)
        eventually(lambda: receiver.app.answers.get(("traces", 503), 0) >= 6)
        beat = post(b"beat", path="/v1/metrics")
        assert [reply.status for reply in receiver.send(beat)] == [200]
        assert receiver.server.bodies.held_bytes <= 16 * MIB
        sink.gate.opened.set()
        answers = []
        for client in clients:
            client.shutdown(socket.SHUT_WR)
            answers += [reply.status for reply in split_replies(read_all(client))]
    finally:
        for client in clients:
            client.close()
    assert len(answers) == 12
    assert set(answers) == {200, 503}
    taken = [request for request in sink.requests if request.signal == "traces"]
    assert len(taken) == answers.count(200) == receiver.app.answers["traces", 200]
    assert answers.count(503) == receiver.app.answers["traces", 503]
    assert receiver.server.bodies.held_bytes == 0


def test_who_left_before_a_thread_was_free_is_not_handled(start: StartReceiver) -> None:
    sink = Handling()
    receiver = start(OtlpHttp(sink, keep_raw=False))
    clients = [receiver.connect() for _ in range(3)]
    for client in clients[:2]:
        client.sendall(post(bytes(2 * MIB)))
        assert sink.gate.came_in.acquire(timeout=CLIENT_S)
    clients[2].sendall(post(bytes(3 * MIB)))
    eventually(lambda: receiver.server.bodies.held_bytes >= 3 * MIB)
    reset = struct.pack("ii", 1, 0)  # a plain close could be half of one
    clients[2].setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, reset)
    clients[2].close()
    eventually(lambda: len(receiver.server.connections) == 2)
    assert receiver.server.bodies.held_bytes == 0
    sink.gate.opened.set()
    for client in clients[:2]:
        assert split_replies(read_until(client, b"\r\n\r\n"))[0].status == 200
        client.close()
    assert [len(request.body) for request in sink.requests] == [2 * MIB] * 2


def test_a_stop_finishes_a_body_that_is_being_inflated(
    start: StartReceiver, sink: Sink, inflating: Gate
) -> None:
    receiver = start()
    content = text(4 * MIB)
    with receiver.connect() as heavy:
        heavy.sendall(post(zipped(content), GZIP))
        assert inflating.came_in.acquire(timeout=CLIENT_S)
        stopper = threading.Thread(target=receiver.stop, args=(CLIENT_S,))
        stopper.start()
        eventually(lambda: receiver.server.is_closing)
        inflating.opened.set()
        (reply,) = split_replies(read_all(heavy))
    stopper.join()
    assert (reply.status, reply.headers["connection"]) == (200, "close")
    assert [request.body for request in sink.requests] == [content]


def test_time_in_our_threads_is_not_the_senders(
    start: StartReceiver, sink: Sink, inflating: Gate
) -> None:
    """A body that waits for us is not cut off as a slow one, however long it does."""
    receiver = start()
    request = post(zipped(text(4 * MIB)), GZIP)
    with receiver.connect() as heavy:
        heavy.sendall(request[:-1])
        assert inflating.came_in.acquire(timeout=CLIENT_S)
        (connection,) = receiver.server.connections

        async def look_later() -> float | None:
            connection.check_deadline(time.monotonic() + 1e6)
            return connection.slow_since

        assert receiver.call(look_later()) is None
        inflating.opened.set()
        heavy.sendall(request[-1:])
        assert split_replies(read_until(heavy, b"\r\n\r\n"))[0].status == 200
    assert len(sink.requests) == 1

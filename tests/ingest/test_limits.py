"""Slow, greedy and absent clients are cut off; a stop loses no request that has begun."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
import time
from typing import Any

import pytest

from otel_straggler.collector.ingest.http_messages import Head, Request, Response

from .conftest import (
    CLIENT_S,
    Receiver,
    StartReceiver,
    chunked,
    post,
    read_all,
    read_until,
    split_replies,
)


def test_slow_headers_are_cut_off(start: StartReceiver) -> None:
    replies = start(header_timeout_s=0.2).send(post()[:30], half_close=False)
    assert [reply.status for reply in replies] == [408]


def test_a_slow_body_is_cut_off(start: StartReceiver) -> None:
    receiver = start(request_timeout_s=0.2)
    assert [r.status for r in receiver.send(post(b"abc")[:-1], half_close=False)] == [408]
    assert receiver.server.bodies.held_bytes == 0


@pytest.mark.parametrize(
    ("begun", "status"),
    [
        (post(b"abc", path="/v1/nothing")[:-1], 404),
        (post(b"abc", "Content-Encoding: gzip")[:-1], 400),
        (chunked(b"3\r\nabc\r\n0\r\nTrailer: " + b"x" * 900_000, "Content-Encoding: br"), 415),
    ],
)
def test_a_request_is_refused_and_counted_once(
    start: StartReceiver, begun: bytes, status: int
) -> None:
    """For the first reason there was, also where its end never comes."""
    receiver = start(request_timeout_s=0.2)
    assert [reply.status for reply in receiver.send(begun, half_close=False)] == [status]
    assert sum(receiver.app.answers.values()) == 1


@pytest.mark.parametrize(
    ("begun", "drop"), [(post()[:30], b"x"), (post(b"y" * 999)[:-999], b"y"), (b"", b"\r\n")]
)
def test_a_client_that_sends_drop_by_drop_is_cut_off_all_the_same(
    start: StartReceiver, begun: bytes, drop: bytes
) -> None:
    """The time counts from the first byte: in a header, in a body, in lines before a request."""
    receiver = start(header_timeout_s=0.3, request_timeout_s=0.3)
    with receiver.connect() as client:
        client.sendall(begun)
        client.settimeout(0.01)
        answer = b""
        while not answer:
            client.sendall(drop)
            with contextlib.suppress(TimeoutError):
                answer = client.recv(65536)
        assert split_replies(answer)[0].status == 408
    assert receiver.server.bodies.held_bytes == 0


def test_an_idle_connection_is_closed_without_a_word(start: StartReceiver) -> None:
    receiver = start(idle_timeout_s=1.0)
    assert receiver.send(half_close=False) == []
    assert [r.status for r in receiver.send(post(b"abc"), half_close=False)] == [200]


def test_empty_lines_do_not_keep_a_connection_alive(start: StartReceiver) -> None:
    replies = start(header_timeout_s=0.2).send(b"\r\n", half_close=False)
    assert [reply.status for reply in replies] == [408]


@pytest.mark.parametrize(
    "request_bytes",
    [
        post(b"", "X: " + "x" * 40_000),
        post(b"", *(f"X{i}: {i}" for i in range(5000))),
        post(b"", path="/" + "x" * 40_000),
        post(b"", "X: " + "x" * 400_000)[:-100_000],
        chunked(b"0\r\nTrailer: " + b"x" * 900_000),
        chunked(b"1;" + b"x" * 900_000),
    ],
)
def test_too_long_a_head_or_trailer_is_refused(receiver: Receiver, request_bytes: bytes) -> None:
    assert [r.status for r in receiver.send(request_bytes, half_close=False)] == [431]


def test_a_head_just_under_the_limit_is_read(receiver: Receiver) -> None:
    assert [r.status for r in receiver.send(post(b"", "X: " + "x" * 32_000))] == [200]


def test_bodies_of_all_connections_together_are_bounded(start: StartReceiver) -> None:
    receiver = start(buffered_bytes=1000)
    with receiver.connect() as first:
        first.sendall(post(b"x" * 900)[:-1])
        while receiver.server.bodies.held_bytes == 0:
            time.sleep(0.005)
        assert [r.status for r in receiver.send(post(b"x" * 900))] == [503]
        first.sendall(b"x")
        assert split_replies(read_until(first, b"\r\n\r\n"))[0].status == 200
    assert [r.status for r in receiver.send(post(b"x" * 900))] == [200]


def test_large_bodies_that_never_end_keep_no_heartbeat_out(start: StartReceiver) -> None:
    """Clients that hold all the bytes there are for bodies give way to who sends little."""
    receiver = start(buffered_bytes=1000)
    with receiver.connect() as first, receiver.connect() as second:
        first.sendall(post(b"x" * 600)[:-1])
        second.sendall(post(b"x" * 398)[:-1])
        while receiver.server.bodies.held_bytes < 996:
            time.sleep(0.005)
        assert [r.status for r in receiver.send(post(b"x" * 20))] == [200]
        first.sendall(b"x")
        second.sendall(b"x")
        assert split_replies(read_until(first, b"later"))[0].status == 503
        assert split_replies(read_until(second, b"\r\n\r\n"))[0].status == 200
    assert receiver.server.bodies.held_bytes == 0


class Pages:
    """An app with large pages, counted."""

    keep_raw = False

    def __init__(self) -> None:
        self.fixed_headers: dict[str, str] = {}
        self.body = b"x" * (1 << 20)
        self.answered = 0
        self.queries: list[str] = []
        self.gate: threading.Event | None = None

    def refuse(self, head: Head) -> Response | None:
        return Response(418) if head.path == "/refused" else None

    def coding(self, head: Head) -> str:
        return ""

    def respond(self, request: Request) -> Any:
        self.answered += 1
        self.queries.append(request.head.query)
        return self._later() if self.gate is not None else Response(200, self.body)

    async def _later(self) -> Response:
        assert self.gate is not None
        await asyncio.get_running_loop().run_in_executor(None, self.gate.wait)
        return Response(200, b"late")

    def failure(self, status: int, message: str, head: Head | None) -> Response:
        return Response(status, message.encode())


class Small(Pages):
    """Waits in its first answer until it may go on."""

    def __init__(self) -> None:
        super().__init__()
        self.has_begun, self.may_go_on = threading.Event(), threading.Event()

    def respond(self, request: Request) -> Any:
        self.queries.append(request.head.query)
        self.has_begun.set()
        assert self.may_go_on.wait(CLIENT_S)
        return Response(200, b"small")


GET = b"GET /page?a=b HTTP/1.1\r\nHost: a\r\n\r\n"


def test_a_client_that_does_not_read_gets_no_further_answers_made(start: StartReceiver) -> None:
    """Else one segment of small requests would fill the memory with large answers."""
    pages = Pages()
    receiver = start(pages)
    with receiver.connect() as client:
        client.sendall(GET * 200)
        while pages.answered == 0:
            time.sleep(0.005)
        assert receiver.send(GET)[0].status == 200  # the others are served meanwhile
        assert pages.answered < 100
        client.shutdown(1)
        assert [len(r.body) for r in split_replies(read_all(client))] == [1 << 20] * 200
    assert pages.queries == ["a=b"] * 201


def test_many_requests_at_once_do_not_keep_others_waiting(start: StartReceiver) -> None:
    """One answer, then it is the turn of the other connections: a rank's heartbeat among them."""
    pages = Small()
    receiver = start(pages)
    with receiver.connect() as greedy, receiver.connect() as modest:
        greedy.sendall(GET * 500)
        assert pages.has_begun.wait(CLIENT_S)  # the loop waits in its first answer
        modest.sendall(GET.replace(b"a=b", b"modest"))
        pages.may_go_on.set()
        read_until(modest, b"\r\n\r\nsmall")
        for client in (greedy, modest):
            client.shutdown(socket.SHUT_WR)
        assert len(split_replies(read_all(greedy))) == 500
    assert pages.queries.index("modest") < 250


def test_answers_that_nobody_reads_are_bounded_together(start: StartReceiver) -> None:
    """Who asks for another large one is told so; those under way are sent in full."""
    pages = Pages()
    pages.body = b"x" * (1 << 25)  # more than a socket takes
    receiver = start(pages, unsent_bytes=1 << 20)
    with receiver.connect() as silent:
        silent.sendall(GET)
        while pages.answered == 0:
            time.sleep(0.005)
        assert [r.status for r in receiver.send(GET)] == [503]
        silent.shutdown(socket.SHUT_WR)
        assert [len(r.body) for r in split_replies(read_all(silent))] == [1 << 25]
    assert [r.status for r in receiver.send(GET)] == [200]


def test_a_client_that_never_reads_is_cut_off(start: StartReceiver) -> None:
    receiver = start(Pages(), idle_timeout_s=0.2)
    with receiver.connect() as client:
        client.sendall(GET * 200)
        while not receiver.server.connections:
            time.sleep(0.005)
        while receiver.server.connections:
            time.sleep(0.005)


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="only Linux has it")
def test_a_peer_that_vanished_is_noticed_within_a_minute(receiver: Receiver) -> None:
    """A closed laptop sends no FIN; what is written to it is confirmed by nobody."""
    with receiver.connect() as client:
        client.sendall(post(b"1"))
        read_until(client, b"\r\n\r\n")
        (connection,) = receiver.server.connections
        accepted = connection._transport.get_extra_info("socket")
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 60_000


def test_a_long_last_answer_outlives_the_linger_time(start: StartReceiver) -> None:
    receiver = start(Pages(), linger_s=0.05)
    with receiver.connect() as client:
        client.sendall(GET * 39 + GET.replace(b"Host", b"Connection: close\r\nHost"))
        time.sleep(0.6)  # longer than it lingers, while answers fill the socket
        assert len(split_replies(read_all(client))) == 40


def test_stop_finishes_requests_that_have_begun(start: StartReceiver) -> None:
    pages = Pages()
    pages.gate = threading.Event()
    receiver = start(pages)
    with receiver.connect() as waiting, receiver.connect() as idle, receiver.connect() as reading:
        waiting.sendall(GET)
        reading.sendall(post(b"abc", path="/page")[:-1])
        while pages.answered == 0 or receiver.server.bodies.held_bytes == 0:
            time.sleep(0.005)
        stopper = threading.Thread(target=receiver.stop, args=(20.0,))
        stopper.start()
        assert read_all(idle) == b""
        pages.gate.set()
        reading.sendall(b"c")
        for client in (waiting, reading):
            (reply,) = split_replies(read_all(client))
            assert (reply.body, reply.headers["connection"]) == (b"late", "close")
            client.close()
        stopper.join()
    receiver.stop(1.0)
    with pytest.raises(ConnectionRefusedError):
        receiver.connect()


def test_localhost_is_one_port_on_all_its_addresses(receiver: Receiver) -> None:
    async def bind_and_stop() -> int:
        from otel_straggler.collector.ingest.http_messages import HttpLimits
        from otel_straggler.collector.ingest.http_server import HttpServer

        server = HttpServer(Pages(), HttpLimits())
        _, port = await server.start("localhost", 0)
        with pytest.raises(OSError, match="in use"):
            await HttpServer(Pages(), HttpLimits()).start("localhost", port)
        await server.stop(0.0)
        return port

    assert receiver.call(bind_and_stop()) > 0

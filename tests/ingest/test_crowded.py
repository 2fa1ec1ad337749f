"""Where all connections are taken, those give way that ask for nothing; who asks is served."""

from __future__ import annotations

import contextlib
import logging
import resource
import socket
import sys
import threading
from collections.abc import Iterator
from typing import Any

import grpc
import pytest

from otel_straggler.collector.ingest import http_server
from otel_straggler.collector.ingest.grpc import GrpcServer
from otel_straggler.collector.ingest.servers import max_connections

from ..waiting import eventually
from .conftest import (
    CLIENT_S,
    Receiver,
    Sink,
    StartReceiver,
    post,
    read_all,
    read_until,
    split_replies,
)

LIMIT = 8
EXPORT = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"


@pytest.fixture(autouse=True)
def nothing_logged(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """In place of that of the other tests: it is said in the log, once."""
    yield
    assert len([r for r in caplog.get_records("call") if r.levelno >= logging.WARNING]) <= 1


def ask(receiver: Receiver, body: bytes = b"1") -> list[int]:
    return [reply.status for reply in receiver.send(post(body, "Connection: close"))]


def fill(
    stack: contextlib.ExitStack, receiver: Receiver, begun: bytes, count: int = LIMIT
) -> list[socket.socket]:
    """Clients that begin to say something."""
    clients = [stack.enter_context(receiver.connect()) for _ in range(count)]
    for client in clients:
        client.sendall(begun)
    eventually(lambda: len(receiver.server.connections) >= min(count, LIMIT))
    return clients


@pytest.mark.parametrize("begun", [b"", b"P", post(b"1")[:30], b"\r\n"])
def test_who_asks_nothing_gives_way_to_who_asks(
    start: StartReceiver, begun: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """The one that has been there for longest, told by a counter and once in the log."""
    receiver = start(connections=LIMIT)
    with contextlib.ExitStack() as stack:
        clients = fill(stack, receiver, begun)
        eventually(lambda: len(receiver.server.evictions._never_asked) == LIMIT)
        assert [ask(receiver) for _ in range(3)] == [[200]] * 3
        assert read_all(clients[0]) == b""
        clients[-1].setblocking(False)
        with pytest.raises(BlockingIOError):
            clients[-1].recv(1)
    assert receiver.server.evictions.count >= 1
    assert "for each new one" in caplog.records[0].getMessage()


def test_a_flood_of_slow_clients_that_come_again_keeps_nobody_out(start: StartReceiver) -> None:
    """They hold more connections than there are, and open a new one for each that is closed."""
    receiver = start(connections=200)
    is_over = threading.Event()
    attacker = threading.Thread(target=_come_again, args=(receiver, 300, is_over))
    attacker.start()
    try:
        eventually(lambda: receiver.server.evictions.count > 100)
        answers = [_patiently(receiver) for _ in range(20)]
    finally:
        is_over.set()
        attacker.join()
    assert answers == [[200]] * 20


def _come_again(receiver: Receiver, count: int, is_over: threading.Event) -> None:
    clients: list[socket.socket] = []
    while not is_over.wait(0.05):
        closed = [client for client in clients if _is_closed(client)]
        for client in closed:
            client.close()
        clients = [client for client in clients if client not in closed]
        for _ in range(count - len(clients)):
            clients.append(receiver.connect())
            clients[-1].sendall(b"G")
            clients[-1].setblocking(False)
    for client in clients:
        client.close()


def _is_closed(client: socket.socket) -> bool:
    try:
        return client.recv(1) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True


def _patiently(receiver: Receiver) -> list[int]:
    """As a sender does that is told to come again."""
    for _ in range(5):
        with contextlib.suppress(OSError):
            answer = ask(receiver)
            if answer == [200]:
                return answer
    return []


def test_of_those_that_were_answered_the_one_that_rests_longest_gives_way(
    start: StartReceiver,
) -> None:
    """More ranks than places take turns: no telemetry is refused."""
    receiver = start(connections=LIMIT)
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(receiver.connect()) for _ in range(LIMIT)]
        for client in clients:
            client.sendall(post(b"1"))
            read_until(client, b"\r\n\r\n")
        clients[0].sendall(post(b"2"))
        read_until(clients[0], b"\r\n\r\n")
        assert ask(receiver) == [200]
        assert read_all(clients[1]) == b""
        clients[0].sendall(post(b"3"))
        assert split_replies(read_until(clients[0], b"\r\n\r\n"))[0].status == 200


def test_where_all_are_sending_a_further_one_is_refused(start: StartReceiver) -> None:
    """Nobody is cut off in the middle of a request that is on its way."""
    receiver = start(connections=LIMIT)
    with contextlib.ExitStack() as stack:
        clients = fill(stack, receiver, post(b"12")[:-1])
        eventually(lambda: receiver.server.bodies.held_bytes == LIMIT)
        (reply,) = receiver.send(half_close=False)
        assert (reply.status, reply.headers["retry-after"]) == (503, "1")
        clients[0].sendall(b"2")
        assert split_replies(read_until(clients[0], b"\r\n\r\n"))[0].status == 200


def test_the_slowest_of_many_slow_bodies_gives_way(
    start: StartReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_server, "_SLOW_S", 0.0)
    receiver = start(connections=LIMIT)
    with contextlib.ExitStack() as stack:
        clients = fill(stack, receiver, post(b"12")[:-1], 1)
        eventually(lambda: receiver.server.bodies.held_bytes == 1)
        clients += fill(stack, receiver, post(b"12")[:-1], LIMIT - 1)
        eventually(lambda: receiver.server.bodies.held_bytes == LIMIT)
        assert ask(receiver) == [200]
        assert read_all(clients[0]) == b""
        eventually(lambda: receiver.server.bodies.held_bytes == LIMIT - 1)


def test_who_sends_what_is_no_http_holds_no_place(start: StartReceiver) -> None:
    """Told so, such a client has some seconds to read it; it gives way before others do."""
    receiver = start(connections=LIMIT, linger_s=60.0)
    with contextlib.ExitStack() as stack:
        for client in fill(stack, receiver, b"nonsense\r\n\r\n"):
            assert client.recv(4) == b"HTTP"
        assert [ask(receiver) for _ in range(LIMIT)] == [[200]] * LIMIT


def test_grpc_lets_a_rank_in_while_silent_clients_hold_all_places(sink: Sink) -> None:
    """They come again each time they are closed; who is connected stays so."""
    server = GrpcServer(sink, max_bytes=1000, connections=LIMIT, handshake_s=0.2)
    port = server.start("127.0.0.1", 0)[1]
    is_over, is_full = threading.Event(), threading.Event()

    def attack() -> None:
        while not is_over.is_set():
            with contextlib.ExitStack() as stack, contextlib.suppress(OSError):
                for _ in range(4 * LIMIT):
                    client = stack.enter_context(socket.create_connection(("127.0.0.1", port), 1.0))
                    client.sendall(b"PRI * HTTP")
                is_full.set()
                is_over.wait(0.4)

    attacker = threading.Thread(target=attack)
    quick = [("grpc.max_reconnect_backoff_ms", 200), ("grpc.initial_reconnect_backoff_ms", 100)]
    apart = [*quick, ("grpc.use_local_subchannel_pool", 1)]
    address = f"127.0.0.1:{port}"
    try:
        with grpc.insecure_channel(address) as first, grpc.insecure_channel(address, apart) as late:
            first.unary_unary(EXPORT)(b"", timeout=CLIENT_S)
            attacker.start()
            assert is_full.wait(CLIENT_S)
            first.unary_unary(EXPORT)(b"", timeout=CLIENT_S)
            late.unary_unary(EXPORT)(b"", timeout=CLIENT_S, wait_for_ready=True)
    finally:
        is_over.set()
        attacker.join()
        server.stop(1.0)
    assert len(sink.requests) == 3


def test_connections_leave_descriptors_for_everything_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """A system that gives a process 256 of them: no address takes more than its part."""
    monkeypatch.setattr(resource, "getrlimit", lambda _: (256, 256))
    assert (
        max_connections(4096, 0.5),
        max_connections(2048, 0.25),
        max_connections(512, 0.1),
    ) == (128, 64, 25)
    monkeypatch.setattr(resource, "getrlimit", lambda _: (resource.RLIM_INFINITY,) * 2)
    assert max_connections(4096, 0.5) == 4096


def test_a_stream_is_not_cut_off_for_others(start: StartReceiver) -> None:
    """A page that is open for days asks for nothing more, and is no attack."""
    from otel_straggler.collector.ingest.http_messages import Head, Request, Response

    class Endless:
        keep_raw = False

        def __init__(self) -> None:
            self.fixed_headers: dict[str, str] = {}

        def refuse(self, head: Head) -> Response | None:
            return None

        def coding(self, head: Head) -> str:
            return ""

        def respond(self, request: Request) -> Any:
            if request.head.method == "GET":
                return Response(200, stream=Pieces())
            return Response(200)

        def failure(self, status: int, message: str, head: Head | None) -> Response:
            return Response(status, message.encode(), headers={"Retry-After": "1"})

    receiver = start(Endless(), connections=2)
    with receiver.connect() as watcher, receiver.connect() as silent:
        watcher.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        read_until(watcher, b"piece\r\n")
        eventually(lambda: len(receiver.server.evictions._never_asked) == 1)
        assert [ask(receiver) for _ in range(3)] == [[200]] * 3
        assert read_all(silent) == b""
        watcher.setblocking(False)
        with pytest.raises(BlockingIOError):
            watcher.recv(1)


class Pieces:
    """A stream of one piece that does not end by itself."""

    def __init__(self) -> None:
        self._n = 0

    def __aiter__(self) -> Pieces:
        return self

    async def __anext__(self) -> bytes:
        import asyncio

        self._n += 1
        if self._n > 1:
            await asyncio.Event().wait()
        return b"piece"

    def close(self) -> None:
        pass


# --- one client must not take the places of all others -------------------------------------------


def connect_from(receiver: Receiver, address: str) -> socket.socket:
    """From another address of the loopback network."""
    port = receiver.port
    return socket.create_connection(("127.0.0.1", port), CLIENT_S, source_address=(address, 0))


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has all of 127.0.0.0/8")
@pytest.mark.parametrize("begun", [b"", b"P", post(b"12")[:-1]], ids=["silent", "head", "body"])
def test_a_client_with_all_places_gives_way_to_others_at_once(
    start: StartReceiver, begun: bytes
) -> None:
    """However young its connections are, and however fast it comes again."""
    receiver = start(connections=LIMIT)
    with contextlib.ExitStack() as stack:
        for _ in range(LIMIT):
            client = stack.enter_context(connect_from(receiver, "127.0.0.2"))
            client.sendall(begun)
        eventually(lambda: len(receiver.server.connections) == LIMIT)
        assert [ask(receiver) for _ in range(3)] == [[200]] * 3
        honest = stack.enter_context(receiver.connect())
        honest.sendall(post(b"1"))
        read_until(honest, b"\r\n\r\n")
        for _ in range(LIMIT):  # of its own connections, or none
            stack.enter_context(connect_from(receiver, "127.0.0.2")).sendall(begun)
        honest.sendall(post(b"2"))
        assert split_replies(read_until(honest, b"\r\n\r\n"))[0].status == 200


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has all of 127.0.0.0/8")
def test_clients_with_as_many_connections_as_others_keep_them(start: StartReceiver) -> None:
    receiver = start(connections=LIMIT)
    with contextlib.ExitStack() as stack:
        for number in range(LIMIT):
            client = stack.enter_context(connect_from(receiver, f"127.0.0.{2 + number}"))
            client.sendall(post(b"12")[:-1])
        eventually(lambda: receiver.server.bodies.held_bytes == LIMIT)
        (reply,) = receiver.send(half_close=False)
        assert reply.status == 503


def test_a_body_of_which_nothing_comes_is_given_up(start: StartReceiver) -> None:
    receiver = start(silence_s=0.3, request_timeout_s=CLIENT_S)
    with receiver.connect() as client:
        client.sendall(post(b"12")[:-1])
        (reply,) = split_replies(read_all(client))
    assert (reply.status, b"nothing came for 0.3 s" in reply.body) == (408, True)

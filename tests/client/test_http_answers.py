"""What servers may answer: every legal answer is read, every failure is an answer."""

from __future__ import annotations

import contextlib
import gzip
import socket
import threading
from collections.abc import Callable, Iterator

import pytest

from otel_straggler.otlp.clients.client import NO_ANSWER, Response, is_retryable
from otel_straggler.otlp.clients.http import HttpClient
from otel_straggler.testing import CapturedRequests

To = Callable[..., HttpClient]
TYPE = "application/x-protobuf"
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX-A: b\r\n\r\nhi"


class Peer:
    """Answers every request with given bytes, piece by piece, over as few connections as come."""

    def __init__(self, answers: list[list[bytes]], *, closes: bool = False) -> None:
        self._answers, self._closes = answers, closes
        self.connections = 0
        self.requests: list[bytes] = []
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = []
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        while self._answers:
            try:
                connection, _ = self._listening.accept()
            except OSError:  # closed
                return
            self._open.append(connection)
            self.connections += 1
            with connection:
                while self._answers and (request := _whole_request(connection)):
                    self.requests.append(request)
                    for piece in self._answers.pop(0):
                        connection.sendall(piece)
                    if self._closes:
                        break

    def close(self) -> None:
        """Also where a test has failed, and nobody sends what it waits for."""
        self._answers.clear()
        for one in (self._listening, *self._open):
            with contextlib.suppress(OSError):  # closed already
                one.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._listening.close()


def _whole_request(connection: socket.socket) -> bytes:
    request = b""
    while b"\r\n\r\n" not in request or len(request) < _end(request):
        piece = connection.recv(1 << 20)
        if not piece:
            return b""
        request += piece
    return request


def _end(request: bytes) -> int:
    head, _, _ = request.partition(b"\r\n\r\n")
    return len(head) + 4 + int(head.rpartition(b"Content-Length: ")[2].split(b"\r\n")[0])


@pytest.fixture
def peer() -> Iterator[Callable[..., Peer]]:
    peers: list[Peer] = []

    def start(*answers: list[bytes], closes: bool = False) -> Peer:
        peers.append(Peer(list(answers), closes=closes))
        return peers[-1]

    yield start
    for one in peers:
        one.close()


@pytest.fixture
def sink() -> Iterator[CapturedRequests]:
    with CapturedRequests() as sink:
        yield sink


@pytest.fixture
def to() -> Iterator[Callable[..., HttpClient]]:
    """Clients that are closed after the test."""
    clients: list[HttpClient] = []

    def make(url: str, timeout_s: float = 10.0) -> HttpClient:
        clients.append(HttpClient(url, timeout_s=timeout_s))
        return clients[-1]

    yield make
    for client in clients:
        client.close()


def post(client: HttpClient, body: bytes = b"body") -> Response:
    return client.post(body, content_type=TYPE)


def test_a_request_arrives_as_it_was_sent(sink: CapturedRequests, to: To) -> None:
    """Body, path, type and coding; the answer's headers come back in lower case."""
    client = to(sink.url + "/v1/x?a=b")
    answer = client.post(gzip.compress(b"body"), content_type=TYPE, content_encoding="gzip")
    (request,) = sink.requests
    assert (request.path, request.body) == ("/v1/x?a=b", b"body")
    assert request.headers["content-type"] == TYPE
    assert request.headers["content-encoding"] == "gzip"
    assert (answer.status, answer.is_success) == (200, True)
    assert answer.headers["otel-straggler-scorer"] == "1"


def test_a_connection_is_kept_and_a_large_body_goes_out_whole(
    to: To, peer: Callable[..., Peer]
) -> None:
    """Larger than what the socket takes at once."""
    server = peer([OK], [OK])
    client = to(server.url)
    body = bytes(8 * 1024 * 1024)
    answers = [post(client, body), post(client, b"")]
    assert [answer.body for answer in answers] == [b"hi", b"hi"]
    assert server.connections == 1
    assert server.requests[0].endswith(b"\r\n\r\n" + body)


@pytest.mark.parametrize(
    "pieces",
    [
        [OK[:5], OK[5:30], OK[30:]],
        [b"HTTP/1.1 100 Continue\r\n\r\n", OK],
        [b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nh\r\n1\r\ni\r\n0\r\n\r\n"],
    ],
    ids=["in pieces", "interim", "chunked"],
)
def test_every_legal_answer_is_read(to: To, peer: Callable[..., Peer], pieces: list[bytes]) -> None:
    """However it comes."""
    server = peer(pieces)
    answer = post(to(server.url))
    assert (answer.status, answer.body) == (200, b"hi")


def test_an_answer_may_end_with_the_connection(to: To, peer: Callable[..., Peer]) -> None:
    """Without a length; the next post opens a fresh connection."""
    server = peer([b"HTTP/1.1 200 OK\r\n\r\nhi"], [OK], closes=True)
    client = to(server.url)
    assert [post(client).body, post(client).body] == [b"hi", b"hi"]
    assert server.connections == 2


def test_a_connection_that_the_peer_has_closed_is_not_used_again(
    to: To, peer: Callable[..., Peer]
) -> None:
    """A server that lets idle connections go loses no request by it."""
    server = peer([OK], [OK], closes=True)
    client = to(server.url)
    assert post(client).is_success
    while server.connections < 2 and not post(client).is_success:
        pass  # the close may still be on its way
    assert len(server.requests) == 2


@pytest.mark.parametrize(
    "answer", [b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhi", b"SSH-2.0-x\r\n", b""]
)
def test_a_broken_answer_is_none(to: To, peer: Callable[..., Peer], answer: bytes) -> None:
    """And the request may be sent again."""
    result = post(to(peer([answer], closes=True).url))
    assert result.status == NO_ANSWER
    assert result.error
    assert is_retryable(result)


def test_nobody_listening_and_silence_are_answers(to: To) -> None:
    """Refused at once, or given up after the time-out."""
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        client = to(f"http://127.0.0.1:{silent.getsockname()[1]}", timeout_s=0.2)
        assert "refused" in post(client).error
        silent.listen()
        answer = post(client)
    assert answer.status == NO_ANSWER
    assert answer.error == "timed out"


@pytest.mark.parametrize(
    "value",
    [
        "9" * 400,
        "9" * 5_000,
        "1e400",
        "nan",
        "\N{SUPERSCRIPT TWO}",
        "\0",
        f"Thu, 01 Jan {'9' * 400} 00:00:00 GMT",
        "Thu, 32 Jan 2020 00:00:00 GMT",
        "Thu, 01 Jan 2020 00:00:00 +99999",
    ],
    ids=lambda value: value[:20],
)
def test_a_time_to_wait_that_is_none_is_none(value: str) -> None:
    """A server cannot end the thread that sends with one."""
    assert Response(503, {"retry-after": value}).retry_after_s is None

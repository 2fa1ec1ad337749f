"""HTTP/1.1 on the OTLP port: every legal framing is taken, what is unclear is refused."""

from __future__ import annotations

import gzip
import socket
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from otel_straggler import semconv

HEAD = b"POST /v1/traces HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-protobuf\r\n"


class Wire:
    """A raw connection."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), timeout=20)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.received = b""

    def __enter__(self) -> Wire:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def answer(self, *, has_body: bool = True) -> tuple[int, dict[str, str], bytes]:
        """The next answer."""
        while b"\r\n\r\n" not in self.received:
            self._more()
        head, _, self.received = self.received.partition(b"\r\n\r\n")
        status, *lines = head.decode().split("\r\n")
        headers = {k.lower(): v for k, _, v in (line.partition(": ") for line in lines)}
        size = int(headers.get("content-length", "0")) if has_body else 0
        while len(self.received) < size:
            self._more()
        body, self.received = self.received[:size], self.received[size:]
        return int(status.split()[1]), headers, body

    def is_closed(self) -> bool:
        """Whether the server ends the connection without saying anything more."""
        return not self.received and self.socket.recv(1) == b""

    def _more(self) -> None:
        data = self.socket.recv(65_536)
        assert data, f"closed after {self.received!r}"
        self.received += data


@pytest.fixture
def wire(live: Any) -> Any:
    with Wire(live.addresses["otlp_http"]) as connection:
        yield connection


@pytest.fixture
def body(kit: Any) -> bytes:
    return kit.spans_of(kit.rank(0, 1), [0, 1])


def with_length(body: bytes, extra: bytes = b"") -> bytes:
    return HEAD + extra + b"Content-Length: %d\r\n\r\n" % len(body) + body


def chunked(body: bytes, size: int, extension: bytes = b"", trailer: bytes = b"") -> bytes:
    pieces = [body[at : at + size] for at in range(0, len(body), size)]
    framed = b"".join(b"%x%s\r\n%s\r\n" % (len(p), extension, p) for p in pieces)
    return HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + framed + b"0\r\n" + trailer + b"\r\n"


def test_every_legal_framing_of_a_body_is_taken(live: Any, wire: Wire, body: bytes) -> None:
    """Content-Length, chunks of any size, extensions, trailers, gzip of several members."""
    zipped = gzip.compress(body[:10]) + gzip.compress(body[10:])
    requests = [
        with_length(body),
        chunked(body, 1),
        chunked(body, 50, b";name=value"),
        chunked(body, 1000, trailer=b"X-Sum: 1\r\n"),
        with_length(zipped, b"Content-Encoding: gzip\r\n"),
        with_length(zipped, b"Content-Encoding: x-gzip\r\n"),
        with_length(body, b"Content-Encoding: identity\r\n"),
        with_length(body).replace(b"/v1/traces", b"http://x:1/v1/traces?a=b", 1),
        b"\r\n" + with_length(body),
        with_length(body, b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n"),
    ]
    for request in requests:
        wire.send(request)
        status, headers, answer = wire.answer()
        assert (status, answer) == (200, b""), request
        assert headers[semconv.SCORER_HEADER] == semconv.WIRE_VERSION
    assert live.spans() == {"scored": 2 * len(requests)}


def test_answers_come_in_the_order_of_pipelined_requests(wire: Wire, body: bytes) -> None:
    """Several requests in one segment, good and bad."""
    wire.send(
        with_length(body)
        + b"GET /nothing HTTP/1.1\r\nHost: x\r\n\r\n"
        + chunked(body, 7)
        + b"GET /v1/traces HTTP/1.1\r\nHost: x\r\n\r\n"
        + with_length(b"\xff")
        + with_length(body)
    )
    assert [wire.answer()[0] for _ in range(6)] == [200, 404, 200, 405, 400, 200]


def test_requests_may_be_split_at_every_byte(live: Any, kit: Any) -> None:
    """Where the network cuts the stream does not matter."""
    short = kit.spans_of(kit.rank(0, 1), [0])
    stream = with_length(short) + chunked(short, 60, b";e", b"T: 1\r\n")
    for cut in range(1, len(stream)):
        with Wire(live.addresses["otlp_http"]) as wire:
            wire.send(stream[:cut])
            wire.send(stream[cut:])
            assert [wire.answer()[0], wire.answer()[0]] == [200, 200], cut
    assert live.spans() == {"scored": 2 * (len(stream) - 1)}


def test_a_request_may_come_byte_by_byte(wire: Wire, body: bytes) -> None:
    """Slow is not wrong."""
    for byte in chunked(body[:0], 1) + with_length(body):
        wire.send(bytes([byte]))
    assert [wire.answer()[0], wire.answer()[0]] == [200, 200]


def test_http_1_0_closes_unless_asked_to_stay(live: Any, body: bytes) -> None:
    """Keep-alive is the exception there."""
    old = with_length(body).replace(b"HTTP/1.1", b"HTTP/1.0")
    with Wire(live.addresses["otlp_http"]) as wire:
        wire.send(old)
        assert wire.answer()[0] == 200
        assert wire.is_closed()
    with Wire(live.addresses["otlp_http"]) as wire:
        for _ in range(2):
            wire.send(old.replace(b"Host: x", b"Connection: keep-alive"))
            status, headers, _ = wire.answer()
            assert (status, headers["connection"]) == (200, "keep-alive")


def test_connection_close_is_honoured(wire: Wire, body: bytes) -> None:
    """The answer says so too."""
    wire.send(with_length(body, b"Connection: close\r\n"))
    status, headers, _ = wire.answer()
    assert (status, headers["connection"]) == (200, "close")
    assert wire.is_closed()


def test_a_sender_that_shuts_its_half_still_gets_its_answers(wire: Wire, body: bytes) -> None:
    """curl and nc do that."""
    wire.send(with_length(body) + with_length(body))
    wire.socket.shutdown(socket.SHUT_WR)
    assert [wire.answer()[0], wire.answer()[0]] == [200, 200]
    assert wire.is_closed()


def test_expect_100_continue_is_answered_before_the_body(wire: Wire, body: bytes) -> None:
    """A sender may wait for it; a request that is refused anyway gets its refusal at once."""
    head, _, rest = with_length(body, b"Expect: 100-continue\r\n").partition(b"\r\n\r\n")
    wire.send(head + b"\r\n\r\n")
    assert wire.answer()[0] == 100
    wire.send(rest)
    assert wire.answer()[0] == 200
    wire.send(head.replace(b"x-protobuf", b"x-other") + b"\r\n\r\n")
    assert wire.answer()[0] == 415


REFUSED = {
    "both lengths": (b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
    "both, reversed": (b"Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n", 400),
    "two lengths": (b"Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd", 400),
    "list of lengths": (b"Content-Length: 3, 3\r\n\r\nabc", 400),
    "negative length": (b"Content-Length: -3\r\n\r\nabc", 400),
    "signed length": (b"Content-Length: +3\r\n\r\nabc", 400),
    "hexadecimal length": (b"Content-Length: 0x3\r\n\r\nabc", 400),
    "endless length": (b"Content-Length: 99999999999999999999999\r\n\r\nabc", 400),
    "unknown coding": (b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n", (400, 501)),
    "coding after chunked": (b"Transfer-Encoding: chunked, gzip\r\n\r\n0\r\n\r\n", (400, 501)),
    "chunked twice": (b"Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n", (400, 501)),
    "space before colon": (b"Content-Length : 3\r\n\r\nabc", 400),
    "folded header": (b"X-A: b\r\n c\r\nContent-Length: 0\r\n\r\n", 400),
    "bad chunk size": (b"Transfer-Encoding: chunked\r\n\r\n0x3\r\nabc\r\n0\r\n\r\n", 400),
    "negative chunk": (b"Transfer-Encoding: chunked\r\n\r\n-3\r\nabc\r\n0\r\n\r\n", 400),
    "chunk longer than said": (b"Transfer-Encoding: chunked\r\n\r\n2\r\nabc\r\n0\r\n\r\n", 400),
    "bare line feeds": (b"Transfer-Encoding: chunked\r\n\r\n3\nabc\n0\n\n", 400),
    "second host": (b"Host: y\r\nContent-Length: 0\r\n\r\n", 400),
    "zero byte": (b"X-A: a\0b\r\nContent-Length: 0\r\n\r\n", 400),
    "too large": (b"Content-Length: 67108865\r\n\r\n", 413),
    "unknown expectation": (b"Expect: miracles\r\nContent-Length: 3\r\n\r\nabc", 417),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_be_framed_for_certain_is_refused_and_the_connection_closed(
    live: Any, wire: Wire, what: str
) -> None:
    """Nobody can hide a second request inside the first (request smuggling)."""
    rest, expected = REFUSED[what]
    wire.send(HEAD + rest + with_length(b""))
    status, headers, _ = wire.answer()
    assert status in (expected if isinstance(expected, tuple) else (expected,))
    assert headers["connection"] == "close"
    assert wire.is_closed()
    assert live.value(semconv.COLLECTOR_REQUESTS, signal="traces", answer="ok") is None


@pytest.mark.parametrize(
    ("request_bytes", "expected"),
    [
        (b"GET /v1/traces HTTP/1.1\r\nHost: x\r\n\r\n", 405),
        (b"OPTIONS /v1/traces HTTP/1.1\r\nHost: x\r\n\r\n", 405),
        (b"POST /v1/profiles HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n", 404),
        (b"POST /v1/traces/ HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n", 404),
        (b"POST /v1/traces HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n", 415),
        (HEAD.replace(b"x-protobuf", b"xml") + b"Content-Length: 0\r\n\r\n", 415),
        (HEAD + b"Content-Encoding: br\r\nContent-Length: 3\r\n\r\nabc", 415),
        (HEAD + b"Content-Encoding: gzip\r\nContent-Length: 3\r\n\r\nabc", 400),
        (with_length(gzip.compress(b"x" * 99)[:-9], b"Content-Encoding: gzip\r\n"), 400),
    ],
)
def test_a_refused_request_leaves_the_connection_usable(
    wire: Wire, body: bytes, request_bytes: bytes, expected: int
) -> None:
    """Its framing was clear, so the next request is."""
    wire.send(request_bytes)
    assert wire.answer()[0] == expected
    wire.send(with_length(body))
    assert wire.answer()[0] == 200


def test_head_is_answered_without_a_body(wire: Wire, body: bytes) -> None:
    """Its Content-Length says what a GET would have got."""
    wire.send(b"HEAD /v1/traces HTTP/1.1\r\nHost: x\r\n\r\n" + with_length(body))
    assert wire.answer(has_body=False)[0] == 405
    assert wire.answer()[0] == 200


@pytest.mark.parametrize(
    "endless",
    [b"GET / HTTP/1.1\r\nX: " + b"a" * 70_000, b"GET /" + b"a" * 70_000, b"X: y\r\n" * 9000],
)
def test_an_endless_head_is_refused(wire: Wire, endless: bytes) -> None:
    """Memory for heads is bounded."""
    prefix = b"" if endless.startswith(b"GET") else b"GET / HTTP/1.1\r\nHost: x\r\n"
    wire.send(prefix + endless)
    wire.send(endless[:1000] + b"\r\n\r\n")
    assert wire.answer()[0] in (400, 414, 431)
    assert wire.is_closed()


@settings(max_examples=60)
@given(data=st.data())
def test_mangled_streams_never_hurt_the_collector(shared: Any, kit: Any, data: Any) -> None:
    """Whatever comes is answered or the connection is closed; the next sender is served."""
    good = chunked(kit.spans_of(kit.rank(0, 1), [0]), 40) + with_length(b"")
    stream = bytearray(good * data.draw(st.integers(1, 2)))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(stream) - 1))
        kind = data.draw(st.sampled_from(["flip", "cut", "insert"]))
        if kind == "flip":
            stream[at] = data.draw(st.integers(0, 255))
        elif kind == "cut":
            del stream[at : at + data.draw(st.integers(1, 30))]
        else:
            stream[at:at] = data.draw(st.binary(min_size=1, max_size=20))
        if not stream:
            stream = bytearray(b"\n")
    with Wire(shared.addresses["otlp_http"]) as wire:
        wire.send(bytes(stream))
        wire.socket.shutdown(socket.SHUT_WR)
        while wire.socket.recv(65_536):
            pass
    assert shared.post(b"").status == 200


@pytest.fixture(scope="module")
def shared(kit: Any) -> Any:
    """One collector for all random examples."""
    live = kit.Live(kit.settings())
    yield live
    assert live.get("/healthz").status == 200
    live.stop()

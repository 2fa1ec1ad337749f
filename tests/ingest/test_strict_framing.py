"""What one server could read in one way and a proxy in another is refused; what is legal is not."""

from __future__ import annotations

import pytest

from .conftest import Receiver, Sink, chunked, post

HEAD = "POST /v1/traces HTTP/1.1\r\nHost: a\r\nContent-Type: application/x-protobuf\r\n"
CHUNKS = b"3\r\nabc\r\n0\r\n\r\n"
PLAIN = post(b"abc")


def framed(*lines: str, body: bytes = b"abc") -> bytes:
    """A request with these headers and nothing said about its length but by them."""
    return (HEAD + "".join(f"{line}\r\n" for line in lines) + "\r\n").encode("latin-1") + body


@pytest.mark.parametrize(
    "request_bytes",
    [
        framed("Transfer-Encoding: Chunked", body=CHUNKS),
        framed("TRANSFER-encoding:\tCHUNKED ", body=CHUNKS),
        framed("Transfer-Encoding:chunked", body=CHUNKS),
        framed("content-LENGTH:\t3  "),
        framed("Content-Length: 0003"),
        chunked(b"00000000000000000003\r\nabc\r\n000\r\n\r\n"),
        chunked(b'3;a;b=c;d="e;f\\"g"\r\nabc\r\n0;last=1\r\n\r\n'),
        chunked(b"3\r\nabc\r\n0\r\nX: y\r\nZ:\r\n\r\n"),
        PLAIN.replace(b"Host: collector:4318", b"Host:"),
        PLAIN.replace(b"Host: collector:4318", b"Host:\t[fe80::1]:4318 "),
        PLAIN.replace(b"Host: collector:4318", b"Host: my_host-1.svc:"),
        PLAIN.replace(b"Content-Type: app", b"CONTENT-type:  App"),
        post(b"abc", "X_!#$%&'*+.^`|~1: y", "Empty:"),
        post(b"abc", "X: \xfc").replace(b"\xc3\xbc", b"\xfc"),
        post(b"abc", "Expect: 100-Continue"),
        post(b"abc", "Expect: 100-continue", "Expect: 100-continue"),
        post(b"abc", "Connection: keep-alive, TE", "TE: trailers"),
    ],
)
def test_legal_spellings_are_read(receiver: Receiver, sink: Sink, request_bytes: bytes) -> None:
    """Odd case, tabs and no blanks around values, leading zeros, quoted extensions."""
    assert [r.status for r in receiver.send(request_bytes + post(b"next"))] == [200, 200]
    assert [request.body for request in sink.requests] == [b"abc", b"next"]


@pytest.mark.parametrize(
    "connection", ["close", "CLOSE ", "foo, close", "foo ,\tclose", "keep-alive, close"]
)
def test_close_is_found_in_any_list(receiver: Receiver, connection: str) -> None:
    """And nothing is read behind it."""
    replies = receiver.send(post(b"abc", f"Connection: {connection}") + post(b"next"))
    assert [(r.status, r.headers["connection"]) for r in replies] == [(200, "close")]


@pytest.mark.parametrize(
    "request_bytes",
    [
        # line ends: only CR LF is one
        PLAIN.replace(b"\r\n", b"\n"),
        PLAIN.replace(b"HTTP/1.1\r\n", b"HTTP/1.1\n"),
        PLAIN.replace(b"4318\r\n", b"4318\n"),
        PLAIN.replace(b"4318\r\n", b"4318\r"),
        PLAIN.replace(b"4318\r\n", b"4318\r\r\n"),
        PLAIN.replace(b"\r\n\r\n", b"\r\n\n"),
        PLAIN.replace(b"\r\n\r\n", b"\n\n"),
        framed("X: a\rb", "Content-Length: 3"),
        framed("X: a\nContent-Length: 3"),
        chunked(b"3\nabc\r\n0\r\n\r\n"),
        chunked(b"3\rabc\r\n0\r\n\r\n"),
        chunked(b"3\r\nabc\n0\r\n\r\n"),
        chunked(b"3\r\nabc\r\n0\n\r\n"),
        chunked(b"3\r\nabc\r\n0\r\n\n"),
        chunked(b"3;a\nb\r\nabc\r\n0\r\n\r\n"),
        chunked(b"3;a\rb\r\nabc\r\n0\r\n\r\n"),
        chunked(b'3;a="b\r\nabc\r\n0\r\n\r\n'),
        chunked(b"3\r\nabc\r\n0\r\nX: y\n\r\n"),
        # folded lines
        framed("X: a", " b", "Content-Length: 3"),
        framed("X: a", "\tb", "Content-Length: 3"),
        framed("Content-Length:", "  3"),
        framed("Transfer-Encoding:", " chunked", body=CHUNKS),
        chunked(b"3\r\nabc\r\n0\r\nX: y\r\n z\r\n\r\n"),
        # headers that are none
        framed("nonsense", "Content-Length: 3"),
        framed(": x", "Content-Length: 3"),
        framed("X(1): y", "Content-Length: 3"),
        framed("X\xff: y", "Content-Length: 3"),
        framed("X: a\x01b", "Content-Length: 3"),
        framed("Transfer-Encoding : chunked", body=CHUNKS),
        # lengths and codings
        framed("Content-Length:"),
        framed("Content-Length: 3 3"),
        framed("Content-Length: 3;"),
        framed("Content-Length: 1e1"),
        framed("Content-Length: 3", "content-length: 03"),
        framed("Transfer-Encoding: chunked", "Transfer-Encoding: chunked", body=CHUNKS),
        framed("Transfer-Encoding: identity", "Content-Length: 3"),
        framed("Transfer-Encoding:", "Content-Length: 3"),
        framed("Transfer-Encoding:\x0bchunked", body=CHUNKS),
        framed("Content-Length: 3", "Transfer-Encoding: chunked", body=CHUNKS),
        chunked(b"\r\nabc\r\n0\r\n\r\n"),
        chunked(b";\r\nabc\r\n0\r\n\r\n"),
        chunked(b" 3\r\nabc\r\n0\r\n\r\n"),
        chunked(b"3 \r\nabc\r\n0\r\n\r\n"),
        chunked(b"+3\r\nabc\r\n0\r\n\r\n"),
        chunked(b"0_3\r\nabc\r\n0\r\n\r\n"),
        chunked(b"10000000000000003\r\nabc\r\n0\r\n\r\n"),
        chunked(b"3\r\nabc0\r\n\r\n"),
        chunked(b"3\r\nabc\r\n0\r\nContent-Length: 9\r\n\r\n"),
        chunked(b"3\r\nabc\r\n0\r\nTransfer-Encoding: chunked\r\n\r\n"),
        # hosts
        PLAIN.replace(b"Host: collector:4318", b"Host: a b"),
        PLAIN.replace(b"Host: collector:4318", b"Host: a, b"),
        PLAIN.replace(b"Host: collector:4318", b"Host: user@a/b"),
        PLAIN.replace(b"Host: collector:4318", b"Host: a:port"),
        # request lines
        PLAIN.replace(b"POST ", b" POST "),
        PLAIN.replace(b"POST ", b"POST\t"),
        PLAIN.replace(b"POST", b"post"),
        PLAIN.replace(b"HTTP/1.1\r\n", b"HTTP/1.1 \r\n"),
        PLAIN.replace(b"HTTP/1.1", b"http/1.1"),
        PLAIN.replace(b"/v1/traces", b"/v1/ traces"),
        PLAIN.replace(b"/v1/traces", b"/v1/traces\0"),
    ],
)
def test_what_can_be_read_in_two_ways_is_refused_and_closes(
    receiver: Receiver, sink: Sink, request_bytes: bytes
) -> None:
    """One answer, and no request behind it is seen."""
    (reply,) = receiver.send(request_bytes + post(b"hidden"), half_close=False)
    assert reply.status in (400, 501)
    assert reply.headers["connection"] == "close"
    assert sink.requests == []


@pytest.mark.parametrize(
    "request_bytes",
    [
        framed("Transfer-Encoding: chunked\t", body=CHUNKS),
        chunked(b"3; a=b\r\nabc\r\n0\r\n\r\n"),
        chunked(b"3;\r\nabc\r\n0\r\n\r\n"),
    ],
)
def test_a_few_blanks_that_the_standard_allows_are_refused_too(
    receiver: Receiver, sink: Sink, request_bytes: bytes
) -> None:
    """llhttp does not take them, and no sender of OTLP writes them. Never read in another way."""
    assert [r.status for r in receiver.send(request_bytes, half_close=False)] == [400]
    assert sink.requests == []

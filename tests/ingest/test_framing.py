"""Every legal framing of HTTP/1.1 is read; what is unclear is refused and the connection closed."""

from __future__ import annotations

import pytest

from .conftest import Receiver, Sink, chunked, post, read_until, split_replies

HEAD = "POST /v1/traces HTTP/1.1\r\nHost: a\r\nContent-Type: application/x-protobuf\r\n"


def bodies(sink: Sink) -> list[bytes]:
    return [request.body for request in sink.requests]


@pytest.mark.parametrize(
    ("request_bytes", "body"),
    [
        (post(b"abc"), b"abc"),
        (chunked(b"3\r\nabc\r\n0\r\n\r\n"), b"abc"),
        (chunked(b"1;name=value\r\na\r\n2;x\r\nbc\r\n0\r\n\r\n"), b"abc"),
        (chunked(b"0003\r\nabc\r\n0\r\nDigest: x\r\nMore: y\r\n\r\n"), b"abc"),
        (chunked(b"0\r\n\r\n"), b""),
        (HEAD.encode() + b"\r\n", b""),
        (post(b"abc").replace(b"/v1/traces", b"/v1/traces?debug=1"), b"abc"),
        (post(b"abc").replace(b" /v1", b" http://collector:4318/v1"), b"abc"),
        (post(b"abc").replace(b"/v1/traces", b"/v1/%74races"), b"abc"),
        (b"\r\n\r\n" + post(b"abc"), b"abc"),
        (post(b"abc", "Connection: close"), b"abc"),
        (post(b"abc", "Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c"), b"abc"),
        (chunked(b"3\r\nabc\r\n0\r\n\r\n", "Connection: Upgrade", "Upgrade: h2c"), b"abc"),
        (post(b"abc").replace(b"Host: collector:4318", b"hOST:collector:4318  "), b"abc"),
        (post(b"abc").replace(b"HTTP/1.1\r\nHost: collector:4318", b"HTTP/1.0"), b"abc"),
        (post(b"abc").replace(b"x-protobuf", b"x-protobuf; charset=utf-8"), b"abc"),
        (post(b"abc", content_type="json; charset=utf-8"), b"abc"),
        (post(b"abc").replace(b" /v1/traces", b" http://x:1/v1/traces?a=b"), b"abc"),
        (chunked(b"".join(b"1\r\n%c\r\n" % c for c in b"abc") + b"0\r\n\r\n"), b"abc"),
    ],
)
def test_legal_framings_deliver_the_body(
    receiver: Receiver, sink: Sink, request_bytes: bytes, body: bytes
) -> None:
    replies = receiver.send(request_bytes)
    assert [reply.status for reply in replies] == [200]
    assert replies[0].headers["otel-straggler-scorer"] == "1"
    assert bodies(sink) == [body]


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (post(b"abc", "Content-Length: 3"), 400),
        (post(b"abc", "Content-Length: 4"), 400),
        (post(b"abc", "Transfer-Encoding: chunked"), 400),
        (chunked(b"3\r\nabc\r\n0\r\n\r\n", "Content-Length: 3"), 400),
        (chunked(b"zz\r\nabc\r\n0\r\n\r\n"), 400),
        (chunked(b"-1\r\nabc\r\n0\r\n\r\n"), 400),
        (chunked(b"ffffffffffffffffff\r\nabc\r\n0\r\n\r\n"), 400),
        (chunked(b"3\r\nabcd\r\n0\r\n\r\n"), 400),
        (post(b"abc").replace(b"Length: 3", b"Length: -3"), 400),
        (post(b"abc").replace(b"Length: 3", b"Length: +3"), 400),
        (post(b"abc").replace(b"Length: 3", b"Length: 3, 3"), 400),
        (post(b"abc").replace(b"Length: 3", b"Length: 0x3"), 400),
        (post(b"abc").replace(b"Length: 3", b"Length: 99999999999999999999999"), 400),
        (post(b"abc").replace(b"Length: 3", b"Length : 3"), 400),
        (chunked(b"0x3\r\nabc\r\n0\r\n\r\n"), 400),
        (chunked(b"3\nabc\n0\n\n"), 400),
        (HEAD.encode() + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n", 501),
        (HEAD.encode() + b"Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n", 400),
        (HEAD.encode() + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 501),
        (HEAD.encode() + b"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n", 400),
        (
            HEAD.replace("HTTP/1.1", "HTTP/1.0").encode() + b"Transfer-Encoding: chunked\r\n\r\n",
            400,
        ),
        (b"GARBAGE\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400),
        (b"POST /v1/traces HTTP/3.7\r\nHost: a\r\n\r\n", 400),
        (b"GET /v1/traces\r\n\r\n", 505),
        (post(b"abc").replace(b"Host: collector:4318\r\n", b""), 400),
        (post(b"abc", "Host: b"), 400),
        (post(b"abc", "Bad Name: b"), 400),
        (post(b"abc", " folded: b"), 400),
        (post(b"abc", "X: a\x00b"), 400),
        (post(b"abc", "Expect: 200-ok"), 417),
        (b"CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n", 405),
    ],
)
def test_unclear_framing_is_refused_once_and_closes(
    receiver: Receiver, sink: Sink, request_bytes: bytes, status: int
) -> None:
    """Nothing behind it is read: it might be a request hidden from a proxy."""
    replies = receiver.send(request_bytes + post(b"hidden"), half_close=False)
    assert [reply.status for reply in replies] == [status]
    assert replies[0].headers["connection"] == "close"
    assert b"hidden" not in b"".join(bodies(sink))


def test_a_request_cut_at_any_byte_gets_the_same_answer(receiver: Receiver, sink: Sink) -> None:
    request = chunked(b"3;a=b\r\nabc\r\n2\r\nde\r\n0\r\nX: y\r\n\r\n", "Connection: close")
    with receiver.connect() as client:
        client.setsockopt(6, 1, 1)
        for cut in range(1, len(request)):
            replies = receiver.send(request[:cut], request[cut:])
            assert [(r.status, r.body) for r in replies] == [(200, b"")], cut
    assert bodies(sink) == [b"abcde"] * (len(request) - 1)


def test_a_request_sent_byte_by_byte_is_read(receiver: Receiver, sink: Sink) -> None:
    request = post(b"abc", "Upgrade: h2c", "Connection: Upgrade")
    replies = receiver.send(*(request[i : i + 1] for i in range(len(request))))
    assert [reply.status for reply in replies] == [200]
    assert bodies(sink) == [b"abc"]


def test_pipelined_requests_are_answered_in_order(receiver: Receiver, sink: Sink) -> None:
    get = b"GET /v1/traces HTTP/1.1\r\nHost: a\r\n\r\n"
    upgrade = post(b"2", "Connection: Upgrade", "Upgrade: h2c")
    segment = post(b"1") + get + upgrade + post(b"3", path="/nowhere") + post(b"4", path="/v1/logs")
    replies = receiver.send(segment)
    assert [reply.status for reply in replies] == [200, 405, 200, 404, 200]
    assert bodies(sink) == [b"1", b"2", b"4"]


def test_a_thousand_upgrades_in_one_segment_are_ignored_one_by_one(receiver: Receiver) -> None:
    request = post(b"", "Connection: Upgrade", "Upgrade: h2c")
    assert [r.status for r in receiver.send(request * 1000)] == [200] * 1000


def test_a_large_request_does_not_overtake_or_lose_its_place(
    receiver: Receiver, sink: Sink
) -> None:
    """Large bodies are handled on another thread; answers still come in order."""
    large = b"x" * (3 * 1024 * 1024)
    replies = receiver.send(post(large) + post(b"2", path="/nowhere") + post(large) + post(b"4"))
    assert [reply.status for reply in replies] == [200, 404, 200, 200]
    assert [len(body) for body in bodies(sink)] == [len(large), len(large), 1]


def test_a_connection_is_kept_alive_and_duplicates_are_answered(
    receiver: Receiver, sink: Sink
) -> None:
    with receiver.connect() as client:
        for _ in range(3):
            client.sendall(post(b"same"))
            (reply,) = split_replies(read_until(client, b"\r\n\r\n"))
            assert reply.status == 200
            assert "connection" not in reply.headers
    assert bodies(sink) == [b"same"] * 3


def test_http_1_0_closes_unless_it_asks_not_to(receiver: Receiver) -> None:
    old = post(b"abc").replace(b"HTTP/1.1", b"HTTP/1.0")
    assert [r.headers["connection"] for r in receiver.send(old + old, half_close=False)] == [
        "close"
    ]
    kept = old.replace(b"Host: collector:4318", b"Connection: keep-alive")
    with receiver.connect() as client:
        for _ in range(2):
            client.sendall(kept)
            (reply,) = split_replies(read_until(client, b"\r\n\r\n"))
            assert reply.headers["connection"] == "keep-alive"


def test_expect_100_continue_asks_for_the_body(receiver: Receiver, sink: Sink) -> None:
    request = post(b"abc", "Expect: 100-continue")
    with receiver.connect() as client:
        client.sendall(request[:-3])
        assert read_until(client, b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        client.sendall(request[-3:])
        assert split_replies(read_until(client, b"\r\n\r\n"))[0].status == 200
    assert bodies(sink) == [b"abc"]


def test_a_refusal_comes_in_place_of_100_continue(receiver: Receiver) -> None:
    """The client keeps its body; nobody knows whether it would come, so the connection closes."""
    request = post(b"abc", "Expect: 100-continue", path="/nowhere")
    (reply,) = receiver.send(request[:-3], half_close=False)
    assert (reply.status, reply.headers["connection"]) == (404, "close")


def test_head_is_refused_without_a_body(receiver: Receiver) -> None:
    with receiver.connect() as client:
        client.sendall(b"HEAD /v1/traces HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        data = b"".join(iter(lambda: client.recv(65536), b""))
    (reply,) = split_replies(data, is_head=True)
    assert (reply.status, reply.headers["allow"]) == (405, "POST")
    assert data.endswith(b"\r\n\r\n")


def test_a_request_behind_a_head_is_answered(receiver: Receiver, sink: Sink) -> None:
    """Its Content-Length says what a GET would have got, and no body follows."""
    with receiver.connect() as client:
        client.sendall(b"HEAD /v1/traces HTTP/1.1\r\nHost: a\r\n\r\n")
        (refused,) = split_replies(read_until(client, b"\r\n\r\n"), is_head=True)
        client.sendall(post(b"abc"))
        (reply,) = split_replies(read_until(client, b"\r\n\r\n"))
    assert (refused.status, reply.status) == (405, 200)
    assert bodies(sink) == [b"abc"]


def test_connection_close_is_honoured_and_said(receiver: Receiver) -> None:
    """The client need not close its side."""
    (reply,) = receiver.send(post(b"abc", "Connection: close"), half_close=False)
    assert (reply.status, reply.headers["connection"]) == (200, "close")


def test_a_client_that_leaves_in_the_middle_leaves_nothing_behind(
    receiver: Receiver, sink: Sink
) -> None:
    for size in (1, 20, len(post(b"abcdef")) - 1):
        assert receiver.send(post(b"abcdef")[:size]) == []
    assert receiver.server.bodies.held_bytes == 0
    assert bodies(sink) == []

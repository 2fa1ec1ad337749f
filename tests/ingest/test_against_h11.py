"""Framing against a second reader, h11: the same requests with the same bodies, or a refusal."""

from __future__ import annotations

import asyncio
import gzip
import random
import re
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_straggler.collector.ingest.http_messages import Head, HttpLimits, Request, Response

from .conftest import Receiver, post
from .test_fuzz import damaged

h11 = pytest.importorskip(
    "h11", reason="h11 is not installed: it would show that another parser reads the same requests"
)
Read = tuple[str, bytes]


class Everything:
    """An app that takes all requests and keeps method and body."""

    keep_raw = True

    def __init__(self) -> None:
        self.fixed_headers: dict[str, str] = {}
        self.taken: list[Read] = []

    def refuse(self, head: Head) -> Response | None:
        return None

    def coding(self, head: Head) -> str:
        return "gzip" if head.headers.get("content-encoding", "").lower() == "gzip" else ""

    def respond(self, request: Request) -> Response:
        self.taken.append((request.head.method, request.original))
        return Response(200)

    def failure(self, status: int, message: str, head: Head | None) -> Response:
        return Response(status, message.encode())


@pytest.fixture(scope="module", params=["uvloop", "asyncio"])
def receiver(request: pytest.FixtureRequest) -> Iterator[Receiver]:
    is_uvloop = request.param == "uvloop"
    loop = pytest.importorskip("uvloop").new_event_loop() if is_uvloop else None
    limits = HttpLimits(header_timeout_s=5.0, request_timeout_s=5.0)
    receiver = Receiver(Everything(), limits, loop or asyncio.new_event_loop())
    yield receiver
    receiver.close()


# --- what h11 reads ------------------------------------------------------------------------------


def read_by_h11(data: bytes) -> list[Read]:
    """The requests before the first that it refuses, or that asks to close."""
    return [read for read, _ in _all_by_h11(data)]


def _all_by_h11(data: bytes) -> list[tuple[Read, bool]]:
    """The same, and whether each says that it is compressed."""
    result = []
    while data := data.lstrip(b"\r\n"):  # empty lines before a request are nothing
        one = h11.Connection(h11.SERVER)
        one.receive_data(re.sub(rb"^([A-Z]+) +", rb"\1 ", data))
        one.receive_data(b"")
        try:
            result.append(_read_one(one))
        except (h11.RemoteProtocolError, EOFError):
            return result
        data = bytes(one.trailing_data[0])
    return result


def _read_one(connection: Any) -> tuple[Read, bool]:
    head, body = None, b""
    while not isinstance(event := connection.next_event(), h11.EndOfMessage):
        if isinstance(event, h11.Request):
            head = event
        elif isinstance(event, h11.Data):
            body += event.data
        else:
            raise EOFError
    assert head is not None
    is_gzip = dict(head.headers).get(b"content-encoding", b"").lower() == b"gzip"
    return (head.method.decode(), body), is_gzip


# --- legal requests ------------------------------------------------------------------------------

GZIP = b"\x1f\x8b"
BODIES = st.one_of(
    st.binary(max_size=300).filter(lambda body: not body.startswith(GZIP)),
    st.lists(st.binary(max_size=50), min_size=1, max_size=3).map(
        lambda parts: b"".join(map(gzip.compress, parts))
    ),
    st.integers(0, 70_000).map(lambda size: b"x" * size),
)
EXTENSIONS = ["", ";a", ";a=b", ';a="b;c";d', ";name=" + "x" * 300]
ODD_HEADERS = ["X: y", "x-EMPTY:", "X-Long: " + "l" * 2000, "Accept: */*", "TE: trailers"]


@st.composite
def requests(draw: st.DrawFn) -> tuple[list[bytes], list[Read]]:
    """Some requests on one connection in pieces, and what they are."""
    rng = random.Random(draw(st.integers(0, 2**32)))
    bodies = draw(st.lists(BODIES, min_size=1, max_size=4))
    data = b"".join(framed(body, rng) for body in bodies)
    maximum = draw(st.sampled_from([1, 3, 7, 1400, 10**6]))
    if len(data) > 3000:
        maximum = max(maximum, 1400)
    pieces = []
    while data:
        size = rng.randrange(1, maximum + 1)
        pieces.append(data[:size])
        data = data[size:]
    return pieces, [("POST", body) for body in bodies]


def framed(body: bytes, rng: random.Random) -> bytes:
    """A body in one of the legal framings, among headers in any order and case."""
    is_chunked = rng.random() < 0.6
    lines = ["Host: collector:4318", *rng.sample(ODD_HEADERS, rng.randrange(4))]
    lines.append("Transfer-Encoding: chunked" if is_chunked else f"Content-Length: {len(body)}")
    if body.startswith(GZIP):
        lines.append("Content-Encoding: gzip")
    if rng.random() < 0.2:
        lines.append("Expect: 100-continue")
    rng.shuffle(lines)
    lines = [_in_any_case(line, rng) for line in lines]
    head = "\r\n".join([*rng.choice([[], [], [""]]), "POST /v1/traces HTTP/1.1", *lines])
    return head.encode() + b"\r\n\r\n" + (_in_chunks(body, rng) if is_chunked else body)


def _in_any_case(line: str, rng: random.Random) -> str:
    name, _, value = line.partition(":")
    blank = rng.choice([" ", "", "\t", "  "])
    return f"{rng.choice([str, str.upper, str.lower])(name)}:{blank}{value.strip()}"


def _in_chunks(body: bytes, rng: random.Random) -> bytes:
    parts = []
    longest = rng.choice([1, 10, 1000, 10**6]) if len(body) < 1000 else 10_000
    while body:
        size = rng.randrange(1, longest + 1)
        piece, body = body[:size], body[size:]
        number = rng.choice(["%x", "%X", "%06x"]) % len(piece)
        parts.append(f"{number}{rng.choice(EXTENSIONS)}\r\n".encode() + piece + b"\r\n")
    trailers = rng.choice(["", "", "Digest: x\r\n", "A: b\r\nEmpty:\r\n"])
    return b"".join(parts) + f"0{rng.choice(EXTENSIONS)}\r\n{trailers}\r\n".encode()


@given(requests())
def test_requests_in_any_legal_framing_and_pieces_are_read(
    receiver: Receiver, made: tuple[list[bytes], list[Read]]
) -> None:
    """Lengths and chunks, extensions and trailers, pipelined, cut anywhere; h11 agrees."""
    pieces, expected = made
    receiver.app.taken.clear()
    replies = receiver.send(*pieces)
    assert [r.status for r in replies if r.status != 100] == [200] * len(expected)
    assert receiver.app.taken == expected
    assert read_by_h11(b"".join(pieces)) == expected
    assert receiver.server.bodies.held_bytes == 0


@given(damaged())
def test_no_damaged_request_is_read_otherwise_than_by_h11(
    receiver: Receiver, pieces: list[bytes]
) -> None:
    """What is taken is what the other reader takes, as far as it is taken: nobody can hide a
    request from one of the two. Only where a body cannot be decompressed, which the other reader
    does not try, that request alone is refused, and the next one is read."""
    receiver.app.taken.clear()
    receiver.send(*pieces)
    taken = list(receiver.app.taken)
    for read, is_gzip in _all_by_h11(b"".join(pieces)):
        if taken and (read == taken[0] or not is_gzip):
            assert read == taken.pop(0)
    assert taken == []


def test_a_body_that_cannot_be_decompressed_hides_no_other_request(receiver: Receiver) -> None:
    """It is refused, and what follows on the connection is read."""
    whole = gzip.compress(b"abc")
    broken = whole[:10] + b"\n" + whole[11:]
    receiver.app.taken.clear()
    head = "Content-Encoding: gzip"
    replies = receiver.send(post(broken, head) + post(b"d") + post(whole, head))
    assert [reply.status for reply in replies] == [400, 200, 200]
    assert receiver.app.taken == [("POST", b"d"), ("POST", whole)]


def test_h11_is_given_what_the_receiver_is_given() -> None:
    """A reader that reads nothing would agree with everybody."""
    data = post(b"abc") + b"\r\n" + post(b"d", "Content-Length: 2") + post(b"e")
    assert read_by_h11(data) == [("POST", b"abc")]

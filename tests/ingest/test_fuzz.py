"""Damaged requests: an answer or a clean close, never an exception, and the server lives on."""

from __future__ import annotations

import asyncio
import gzip
import logging
from collections.abc import Iterator
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from otel_straggler.collector.ingest.http import OtlpHttp
from otel_straggler.collector.ingest.http_messages import HttpLimits

from .conftest import Receiver, Sink, chunked, post

VALID = [
    post(b"abc"),
    post(gzip.compress(b"abc"), "Content-Encoding: gzip"),
    post(b"{}", "Connection: Upgrade", "Upgrade: h2c", content_type="json"),
    post(b"abc", "Expect: 100-continue"),
    chunked(b"3;a=b\r\nabc\r\n0\r\nX: y\r\n\r\n"),
    b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
]
MARKS = [b"\r\n", b"\n", b"\0", b":", b" ", b"0", b"ffffffff", b"chunked", b"Content-Length: 1\r\n"]
STATUSES = {100, 200, 400, 404, 405, 408, 413, 415, 417, 431, 501, 505}


@st.composite
def damaged(draw: st.DrawFn) -> list[bytes]:
    """One to three valid requests with a few wounds, cut into pieces."""
    data = b"".join(draw(st.lists(st.sampled_from(VALID), min_size=1, max_size=3)))
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, len(data)))
        cut = draw(st.integers(0, 8))
        new = draw(st.one_of(st.just(b""), st.sampled_from(MARKS), st.binary(max_size=4)))
        data = data[:at] + new + data[at + cut :]
    cuts = sorted(draw(st.lists(st.integers(0, len(data)), max_size=4)))
    edges = [0, *cuts, len(data)]
    return [data[a:b] for a, b in pairwise(edges) if a < b]


@pytest.fixture(scope="module", params=["uvloop", "asyncio"])
def fuzzed(request: pytest.FixtureRequest) -> Iterator[Receiver]:
    name = request.param
    loop = pytest.importorskip("uvloop").new_event_loop() if name == "uvloop" else None
    limits = HttpLimits(header_timeout_s=2.0, request_timeout_s=2.0)
    receiver = Receiver(OtlpHttp(Sink(), keep_raw=False), limits, loop or asyncio.new_event_loop())
    yield receiver
    receiver.close()


@pytest.fixture(scope="module")
def log() -> Iterator[list[str]]:
    """What anybody logs meanwhile; asyncio logs exceptions of callbacks."""
    lines: list[str] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(record.getMessage())

    handler = Keep(logging.WARNING)
    logging.getLogger().addHandler(handler)
    yield lines
    logging.getLogger().removeHandler(handler)


@given(pieces=damaged())
@example(pieces=[b"CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n" + post(b"abc")])
@example(pieces=[post(b"abc", "Connection: Upgrade", "Upgrade: h2c")[:-1], b"cPOST"])
def test_a_damaged_request_gets_an_answer_or_a_clean_close(
    fuzzed: Receiver, log: list[str], pieces: list[bytes]
) -> None:
    for reply in fuzzed.send(*pieces):
        assert reply.status in STATUSES
        if reply.status >= 400:
            assert reply.body
    assert [r.status for r in fuzzed.send(post(b"still there"))] == [200]
    assert log == []
    assert fuzzed.server.bodies.held_bytes == 0

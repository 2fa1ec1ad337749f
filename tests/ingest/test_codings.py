"""Every compression of the OpenTelemetry Collector's exporters over HTTP, and its bombs."""

from __future__ import annotations

import gzip
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cramjam
import pytest

from otel_straggler.collector.ingest import codings
from otel_straggler.collector.ingest.body import inflate
from otel_straggler.collector.ingest.codings import BadBodyError, BodyTooLargeError

from .conftest import Receiver, Sink, StartReceiver, chunked, post

MIB = 1024 * 1024
TEXT = b"spans of a step, " * 500


def raw_deflate(content: bytes) -> bytes:
    deflater = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return deflater.compress(content) + deflater.flush()


ENCODERS: dict[str, tuple[str, Callable[[bytes], Any]]] = {
    "gzip": ("gzip", gzip.compress),
    "zlib": ("zlib", zlib.compress),
    "deflate": ("deflate", zlib.compress),
    "deflate without a header": ("deflate", raw_deflate),
    "zstd": ("zstd", cramjam.zstd.compress),
    "snappy in a block": ("snappy", cramjam.snappy.compress_raw),
    "snappy in frames": ("snappy", cramjam.snappy.compress),
    "x-snappy-framed": ("x-snappy-framed", cramjam.snappy.compress),
    "lz4": ("lz4", cramjam.lz4.compress),
}
every_coding = pytest.mark.parametrize(
    ("encoding", "encode"), ENCODERS.values(), ids=list(ENCODERS)
)


def peak_reset() -> None:
    Path("/proc/self/clear_refs").write_text("5")


def memory(name: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1]) * 1024
    raise AssertionError(name)


@every_coding
@pytest.mark.parametrize("size", [0, 1, len(TEXT), 3 * MIB])
def test_a_body_of_every_coding_is_inflated(
    receiver: Receiver, sink: Sink, encoding: str, encode: Callable[[bytes], Any], size: int
) -> None:
    content = (TEXT * (size // len(TEXT) + 1))[:size]
    reply, after = receiver.send(
        post(bytes(encode(content)), f"Content-Encoding: {encoding}") + post(b"next")
    )
    assert (reply.status, after.status) == (200, 200)
    assert [request.body for request in sink.requests] == [content, b"next"]
    assert receiver.server.bodies.held_bytes == 0


@every_coding
def test_a_body_that_comes_in_tiny_pieces_is_inflated(
    receiver: Receiver, sink: Sink, encoding: str, encode: Callable[[bytes], Any]
) -> None:
    body = bytes(encode(TEXT))
    pieces = b"".join(b"1\r\n" + body[i : i + 1] + b"\r\n" for i in range(len(body)))
    request = chunked(pieces + b"0\r\n\r\n", f"Content-Encoding: {encoding}")
    assert [reply.status for reply in receiver.send(request)] == [200]
    assert [request.body for request in sink.requests] == [TEXT]


@every_coding
@pytest.mark.parametrize("damage", ["cut", "rubbish"])
def test_a_damaged_body_is_refused_and_the_connection_lives_on(
    receiver: Receiver, sink: Sink, encoding: str, encode: Callable[[bytes], Any], damage: str
) -> None:
    body = bytes(encode(TEXT))
    body = body[: len(body) // 2] if damage == "cut" else b"\x07rubbish" * 20
    replies = receiver.send(post(body, f"Content-Encoding: {encoding}") + post(b"next"))
    assert [reply.status for reply in replies] == [400, 200]
    assert [request.body for request in sink.requests] == [b"next"]


@every_coding
def test_a_body_over_the_limit_is_refused(
    start: StartReceiver, sink: Sink, encoding: str, encode: Callable[[bytes], Any]
) -> None:
    receiver = start(body_bytes=2 * MIB)
    coding = f"Content-Encoding: {encoding}"
    body, too_long = (bytes(encode(bytes(size))) for size in (2 * MIB, 2 * MIB + 1))
    assert [r.status for r in receiver.send(post(body, coding))] == [200]
    assert [r.status for r in receiver.send(post(too_long, coding))] == [413]
    assert len(sink.requests) == 1


@pytest.mark.skipif(sys.platform != "linux", reason="reads the peak of memory from /proc")
@every_coding
def test_a_bomb_is_never_inflated_beyond_the_limit(
    encoding: str, encode: Callable[[bytes], Any]
) -> None:
    bomb = bytes(encode(bytes(128 * MIB)))
    peak_reset()
    before = memory("VmRSS")
    with pytest.raises(BodyTooLargeError):
        inflate(bomb, 16 * MIB, codings.OF_NAME[encoding])
    assert memory("VmHWM") - before < 48 * MIB


@pytest.mark.parametrize("coding", ["zstd", "lz4"])
def test_a_body_of_very_many_frames_is_refused(coding: str) -> None:
    """Each costs time before it yields a byte."""
    frame = bytes(getattr(cramjam, coding).compress(b"x"))
    assert inflate(frame, MIB, coding) == b"x"
    skipped = b"\x50\x2a\x4d\x18\0\0\0\0"
    for body in (frame * 1100, skipped * 1100 + frame):
        with pytest.raises(BadBodyError, match="frames; send one"):
            inflate(body, MIB, coding)


def test_a_body_of_two_zlib_streams_is_refused(receiver: Receiver) -> None:
    replies = receiver.send(post(zlib.compress(b"a") * 2, "Content-Encoding: zlib"))
    assert [reply.status for reply in replies] == [400]


def test_a_zstd_frame_that_asks_for_a_window_of_gigabytes_is_refused() -> None:
    window_of_2_gib = bytes([(31 - 10) << 3])
    last_block_of_one_byte = (1 << 3 | 1).to_bytes(3, "little") + b"x"
    frame = b"\x28\xb5\x2f\xfd\x00" + window_of_2_gib + last_block_of_one_byte
    with pytest.raises(BadBodyError, match="not zstd"):
        inflate(frame, MIB, "zstd")


def test_the_answer_to_an_unknown_coding_names_those_that_are_read(receiver: Receiver) -> None:
    (reply,) = receiver.send(post(b"x", "Content-Encoding: br"))
    assert reply.status == 415
    assert "zstd" in reply.headers["accept-encoding"].split(", ")


def test_without_the_package_the_answer_says_what_to_install(
    receiver: Receiver, sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "cramjam", None)
    for encoding in ("zstd", "snappy", "lz4"):
        (reply,) = receiver.send(post(b"x", f"Content-Encoding: {encoding}"))
        assert reply.status == 415
        assert b"pip install 'otel-straggler[collector]'" in reply.body
        assert reply.headers["accept-encoding"] == "identity, gzip, x-gzip, zlib, deflate"
    (reply,) = receiver.send(post(zlib.compress(b"x"), "Content-Encoding: zlib"))
    assert reply.status == 200


def test_what_a_backend_may_not_know_is_forwarded_inflated(receiver: Receiver, sink: Sink) -> None:
    receiver.send(post(bytes(cramjam.zstd.compress(TEXT)), "Content-Encoding: zstd"))
    (request,) = sink.requests
    assert (request.content_encoding, request.raw_body) == ("", TEXT)

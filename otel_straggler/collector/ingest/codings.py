"""Codings of request bodies: their names on the wire, and a bounded decoder for each.

gzip, zlib and deflate are decoded as a body arrives. zstd, snappy and lz4 are decoded by cramjam
once it is complete, into a buffer of the limit: what does not fit is never written.
"""

from __future__ import annotations

import mmap
import zlib
from collections import deque
from collections.abc import Callable
from importlib import import_module
from typing import Any, Final, Protocol

IDENTITY: Final = ""
GZIP: Final = "gzip"
_ZLIB, _ZSTD, _SNAPPY, _LZ4 = "zlib", "zstd", "snappy", "lz4"
OF_NAME: Final = {
    "": IDENTITY,
    "identity": IDENTITY,
    "gzip": GZIP,
    "x-gzip": GZIP,
    "zlib": _ZLIB,
    "deflate": _ZLIB,
    "zstd": _ZSTD,
    "snappy": _SNAPPY,
    "x-snappy-framed": _SNAPPY,
    "lz4": _LZ4,
}
"""Codings by Content-Encoding."""
_OF_CRAMJAM: Final = frozenset({_ZSTD, _SNAPPY, _LZ4})
PACKAGE: Final = "cramjam"

_HEADER_BYTES = 2
_SLICE_BYTES = 64 * 1024
_MAX_PENDING = 64 * 1024
"""Of the last bytes of a stream without a checksum, read but not inflated: a few matches."""
_MAX_AT_ONCE = 1024 * 1024
_MAX_MEMBERS = 1024
"""Of gzip, and frames of zstd and lz4; each costs time before it yields a byte."""
_SKIPPED = b"\x2a\x4d\x18"
_FRAME_MARKS: Final = {_ZSTD: (b"\xb5\x2f\xfd", _SKIPPED), _LZ4: (b"\x22\x4d\x18", _SKIPPED)}
"""Bytes that begin a frame, after the first; by chance they occur once in 16 MiB."""
_SNAPPY_STREAM: Final = b"\xff\x06\x00\x00sNaPpY"
"""Begins a framed body; no block of this size does, as its length would be over any limit."""


class BodyTooLargeError(ValueError):
    """A body is over the limit, on the wire or inflated."""


class BadBodyError(ValueError):
    """A body is not what its Content-Encoding says."""


def is_installed(coding: str) -> bool:
    """Whether the package that decodes ``coding`` can be imported."""
    if coding not in _OF_CRAMJAM:
        return True
    try:
        import_module(PACKAGE)
    except ImportError:
        return False
    return True


def installed_names() -> list[str]:
    """Values of Content-Encoding that can be decoded here."""
    return [name for name, coding in OF_NAME.items() if name and is_installed(coding)]


def missing(coding: str) -> str:
    """The message to a sender of ``coding`` where it is not installed."""
    return (
        f"{coding} needs the package {PACKAGE} at the collector, which is not installed. Install "
        "it with: pip install 'otel-straggler[collector]', or send gzip"
    )


class Pieces:
    """Bytes that grow; thousands of tiny pieces become one buffer."""

    __slots__ = ("_buffer", "_newest", "size")

    _MAX = 64

    def __init__(self) -> None:
        self.size = 0
        self._newest: list[bytes] = []
        self._buffer: bytearray | None = None

    def add(self, piece: bytes) -> None:
        self.size += len(piece)
        self._newest.append(piece)
        if len(self._newest) > self._MAX:
            self._buffer = bytearray() if self._buffer is None else self._buffer
            self._buffer += b"".join(self._newest)
            self._newest.clear()

    def joined(self) -> bytes:
        if self._buffer is not None:
            self._newest.insert(0, bytes(self._buffer))
            self._buffer = None
        if len(self._newest) > 1:
            self._newest = [b"".join(self._newest)]
        return self._newest[0] if self._newest else b""


class Inflater(Protocol):
    """Inflates one body; one thread may add while another inflates.

    Attributes:
        inflated_bytes: of the wire that need not be kept any longer.
    """

    inflated_bytes: int

    @property
    def is_complete(self) -> bool:
        """Whether the body may end here."""

    def add(self, piece: bytes) -> None:
        """Take the next bytes of the wire."""

    def inflate(self, content: Pieces, limit: int, until: int) -> None:
        """Inflate into ``content`` until it has ``until`` bytes, or a little more.

        Raises:
            BodyTooLargeError: ``content`` would be over ``limit``.
            BadBodyError: the bytes are not of this coding.
        """


def inflater(coding: str) -> Inflater | None:
    """None for a body that is not compressed."""
    if coding in _OF_CRAMJAM:
        return WholeInflater(coding)
    return None if coding == IDENTITY else StreamInflater(coding)


class StreamInflater:
    """gzip of one member or several, or zlib, with its header or without."""

    __slots__ = (
        "_coding",
        "_has_input",
        "_head",
        "_member",
        "_members",
        "inflated_bytes",
        "waiting",
    )

    def __init__(self, coding: str) -> None:
        self.waiting: deque[bytes] = deque()
        self.inflated_bytes = 0
        self._coding = coding
        self._head = b""  # too short to say what it is
        self._member: Any = None
        self._members = 0
        self._has_input = False

    @property
    def is_complete(self) -> bool:
        return not self._has_input or (self._member is not None and bool(self._member.eof))

    def add(self, piece: bytes) -> None:
        if len(piece) <= _SLICE_BYTES:
            self.waiting.append(piece)
            return
        for start in range(0, len(piece), _SLICE_BYTES):  # what is left over is copied per member
            self.waiting.append(piece[start : start + _SLICE_BYTES])

    def inflate(self, content: Pieces, limit: int, until: int) -> None:
        while self.waiting and content.size < until:
            rest = piece = self.waiting.popleft()
            while rest and content.size < until:
                rest = self._feed_member(rest, content, limit)
            if rest:
                self.waiting.appendleft(rest)
            self.inflated_bytes += len(piece) - len(rest)

    def _feed_member(self, piece: bytes, content: Pieces, limit: int) -> bytes:
        self._has_input = True
        if self._member is None:
            piece = self._head + piece
            if len(piece) < _HEADER_BYTES:
                self._head = piece
                return b""
            self._begin_member(piece)
        elif self._member.eof:
            piece = piece.lstrip(b"\0")  # padding between members is usual
            if not piece:
                return b""
            self._begin_member(piece)
        try:
            room = min(limit - content.size + 1, _MAX_AT_ONCE)
            inflated = self._member.decompress(piece, room)
            if len(inflated) == room and not self._member.unconsumed_tail:
                inflated += self._member.decompress(b"", _MAX_PENDING)
        except zlib.error as error:
            raise BadBodyError(f"not {self._coding}: {error}") from error
        content.add(inflated)
        if content.size > limit:
            raise BodyTooLargeError
        rest: bytes = self._member.unconsumed_tail or self._member.unused_data
        return rest

    def _begin_member(self, piece: bytes) -> None:
        self._members += 1
        if self._coding != GZIP and self._members > 1:
            raise BadBodyError(f"bytes after the end of the {self._coding} stream")
        if self._members > _MAX_MEMBERS:
            raise BadBodyError(f"more than {_MAX_MEMBERS} gzip members; send one")
        self._member = zlib.decompressobj(_window_bits(self._coding, piece))


def _window_bits(coding: str, head: bytes) -> int:
    """HTTP's deflate has the header of zlib (RFC 1950); some send it without, as the name says."""
    if coding == GZIP:
        return 16 + zlib.MAX_WBITS
    has_header = head[0] & 0x0F == zlib.DEFLATED and int.from_bytes(head[:2], "big") % 31 == 0
    return zlib.MAX_WBITS if has_header else -zlib.MAX_WBITS


class WholeInflater:
    """zstd, snappy in blocks or framed, or lz4 frames, decoded in one call at the end.

    The first call has room for what its caller asks for, so that it is short on an event loop; if
    that is too little, the second has room for the limit.
    """

    __slots__ = ("_coding", "_is_large", "_received", "inflated_bytes")

    def __init__(self, coding: str) -> None:
        self.inflated_bytes = 0
        self._coding = coding
        self._received = Pieces()
        self._is_large = False

    @property
    def is_complete(self) -> bool:
        return self.inflated_bytes == self._received.size

    def add(self, piece: bytes) -> None:
        self._received.add(piece)

    def inflate(self, content: Pieces, limit: int, until: int) -> None:
        received = self._received.joined()
        marks = _FRAME_MARKS.get(self._coding, ())
        if sum(map(received.count, marks)) > _MAX_MEMBERS:
            raise BadBodyError(f"more than {_MAX_MEMBERS} {self._coding} frames; send one")
        room = limit if self._is_large else min(limit, until)
        try:
            inflated = _decode(self._coding, received, room)
        except (BodyTooLargeError, BadBodyError):
            if room == limit:
                raise
            self._is_large = True
            return
        content.add(inflated)
        self.inflated_bytes = len(received)


def _decode(coding: str, received: bytes, room: int) -> bytes:
    """Raises as :meth:`Inflater.inflate`; ImportError without cramjam."""
    cramjam: Any = import_module(PACKAGE)
    decode: Callable[[bytes, mmap.mmap], int] = getattr(cramjam, coding).decompress_into
    if coding == _SNAPPY and not received.startswith(_SNAPPY_STREAM):
        decode = cramjam.snappy.decompress_raw_into
        if _block_size(received) > room:
            raise BodyTooLargeError
    with mmap.mmap(-1, room + 1) as buffer:  # only pages that are written to take memory
        try:
            size = decode(received, buffer)
        except cramjam.DecompressionError as error:
            if "whole buffer" in str(error) and "write" in str(error):
                raise BodyTooLargeError from error
            raise BadBodyError(f"not {coding}: {error}") from error
        if size > room:
            raise BodyTooLargeError
        return buffer[:size]


def _block_size(block: bytes) -> int:
    """What a block of snappy says that it inflates to: a varint of 32 bits."""
    size = 0
    for at, byte in enumerate(block[:5]):
        size |= (byte & 0x7F) << (7 * at)
        if byte < 0x80:
            return size
    raise BadBodyError("not snappy: its length is no varint of 32 bits")

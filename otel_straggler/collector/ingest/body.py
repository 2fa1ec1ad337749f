"""A request body: limited in size, and inflated as it arrives."""

from __future__ import annotations

import zlib
from collections import deque

_GZIP = 16 + zlib.MAX_WBITS
_SLICE_BYTES = 64 * 1024
_MAX_AT_ONCE = 1024 * 1024
_MAX_PIECES = 64
_MAX_MEMBERS = 1024
"""Of gzip; each costs time before it yields a byte, and nobody needs more."""
IDENTITY = frozenset({"", "identity"})
GZIP = frozenset({"gzip", "x-gzip"})


class BodyTooLargeError(ValueError):
    """A body is over the limit, on the wire or inflated."""


class BadBodyError(ValueError):
    """A body is not what its Content-Encoding says."""


class Body:
    """Collects pieces. A bomb is stopped while it inflates: never more than the limit is held.

    >>> body = Body(100)
    >>> body.add(b"ab"); body.add(b"c"); body.finish()
    b'abc'
    """

    __slots__ = ("_content", "_inflater", "_limit", "_raw", "_raw_size", "is_gzip")

    def __init__(self, limit: int, *, is_gzip: bool = False, keep_raw: bool = False) -> None:
        self._limit = limit
        self.is_gzip = is_gzip
        self._content = _Pieces()
        self._raw_size = 0
        self._inflater = _Inflater() if is_gzip else None
        self._raw = _Pieces() if keep_raw and is_gzip else None

    @property
    def size(self) -> int:
        return self._content.size

    @property
    def waiting_bytes(self) -> int:
        inflater = self._inflater
        return 0 if inflater is None else self._raw_size - inflater.inflated_bytes

    @property
    def held_bytes(self) -> int:
        if self._inflater is None:
            return self._content.size
        raw = 0 if self._raw is None else self._raw.size
        return self._content.size + raw + self.waiting_bytes

    def add(self, piece: bytes) -> None:
        """Add the next piece; gzip waits. May be called while another thread inflates.

        Raises:
            BodyTooLargeError: over the limit.
        """
        self._raw_size += len(piece)
        if self._raw_size > self._limit:
            raise BodyTooLargeError
        if self._raw is not None:
            self._raw.add(piece)
        if self._inflater is None:
            self._content.add(piece)
        else:
            self._inflater.add(piece)

    def inflate(self, max_bytes: int) -> None:
        """Inflate ``max_bytes`` of what waits, or up to a mebibyte more.

        Raises:
            BodyTooLargeError: over the limit.
            BadBodyError: not gzip.
        """
        inflater, content = self._inflater, self._content
        if inflater is not None:
            inflater.inflate(content, self._limit, content.size + max_bytes)

    def finish(self) -> bytes:
        """The content; BadBodyError if gzip ends in the middle."""
        if self._inflater is not None and not self._inflater.is_complete:
            raise BadBodyError("the gzip stream ends in the middle")
        return self._content.joined()

    def original(self) -> bytes:
        """The body as received."""
        return (self._content if self._raw is None else self._raw).joined()

    def clear(self) -> None:
        """Free the memory. May be called while another thread inflates."""
        self._content, self._raw, self._inflater = _Pieces(), None, None


class _Pieces:
    """Bytes that grow; thousands of tiny pieces become one buffer."""

    __slots__ = ("_buffer", "_newest", "size")

    def __init__(self) -> None:
        self.size = 0
        self._newest: list[bytes] = []
        self._buffer: bytearray | None = None

    def add(self, piece: bytes) -> None:
        self.size += len(piece)
        self._newest.append(piece)
        if len(self._newest) > _MAX_PIECES:
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


class _Inflater:
    """gzip of one member or several; one thread may add while another inflates."""

    __slots__ = ("_has_input", "_member", "_members", "inflated_bytes", "waiting")

    def __init__(self) -> None:
        self.waiting: deque[bytes] = deque()
        self.inflated_bytes = 0
        self._member = zlib.decompressobj(_GZIP)
        self._members = 1
        self._has_input = False

    @property
    def is_complete(self) -> bool:
        return self._member.eof or not self._has_input

    def add(self, piece: bytes) -> None:
        if len(piece) <= _SLICE_BYTES:
            self.waiting.append(piece)
            return
        for start in range(0, len(piece), _SLICE_BYTES):  # what is left over is copied per member
            self.waiting.append(piece[start : start + _SLICE_BYTES])

    def inflate(self, content: _Pieces, limit: int, until: int) -> None:
        while self.waiting and content.size < until:
            rest = piece = self.waiting.popleft()
            while rest and content.size < until:
                rest = self._feed_member(rest, content, limit)
            if rest:
                self.waiting.appendleft(rest)
            self.inflated_bytes += len(piece) - len(rest)

    def _feed_member(self, piece: bytes, content: _Pieces, limit: int) -> bytes:
        self._has_input = True
        if self._member.eof:
            piece = piece.lstrip(b"\0")  # padding between members is usual
            if not piece:
                return b""
            self._begin_member()
        try:
            room = min(limit - content.size + 1, _MAX_AT_ONCE)
            inflated = self._member.decompress(piece, room)
        except zlib.error as error:
            raise BadBodyError(f"not gzip: {error}") from error
        content.add(inflated)
        if content.size > limit:
            raise BodyTooLargeError
        return self._member.unconsumed_tail or self._member.unused_data

    def _begin_member(self) -> None:
        self._members += 1
        if self._members > _MAX_MEMBERS:
            raise BadBodyError(f"more than {_MAX_MEMBERS} gzip members; send one")
        self._member = zlib.decompressobj(_GZIP)


def inflate(content: bytes, limit: int) -> bytes:
    """Inflate a whole gzip body; raises as :class:`Body`."""
    body = Body(limit, is_gzip=True)
    body.add(content)
    while body.waiting_bytes:
        body.inflate(limit)
    return body.finish()

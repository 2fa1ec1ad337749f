"""A request body as it arrives: limited in size, and inflated piece by piece."""

from __future__ import annotations

import zlib

_GZIP = 16 + zlib.MAX_WBITS
IDENTITY = frozenset({"", "identity"})
GZIP = frozenset({"gzip", "x-gzip"})


class BodyTooLargeError(ValueError):
    """Raised when a body is over the limit, on the wire or once inflated."""


class BadBodyError(ValueError):
    """Raised when a body is not what its Content-Encoding says."""


class Body:
    """Takes pieces, gives the content. A bomb is stopped while it inflates: never more than
    the limit is held.

    >>> body = Body(100)
    >>> body.feed(b"ab"); body.feed(b"c"); body.finish()
    b'abc'
    """

    def __init__(self, limit: int, *, is_gzip: bool = False, keep_raw: bool = False) -> None:
        self._limit = limit
        self._parts: list[bytes] = []
        self._size = 0
        self._raw_size = 0
        self._inflater = zlib.decompressobj(_GZIP) if is_gzip else None
        self._raw: list[bytes] | None = [] if keep_raw and is_gzip else None

    @property
    def held_bytes(self) -> int:
        return self._size + (self._raw_size if self._raw is not None else 0)

    def feed(self, piece: bytes) -> None:
        """Take the next piece as it came from the wire.

        Raises:
            BodyTooLargeError: the limit is passed.
            BadBodyError: not gzip.
        """
        self._raw_size += len(piece)
        if self._raw_size > self._limit:
            raise BodyTooLargeError
        if self._raw is not None:
            self._raw.append(piece)
        if self._inflater is None:
            self._keep(piece)
        else:
            self._inflate(piece)

    def finish(self) -> bytes:
        """The content.

        Raises:
            BadBodyError: gzip ends in the middle.
        """
        if self._inflater is not None and self._raw_size and not self._inflater.eof:
            msg = "the gzip stream ends in the middle"
            raise BadBodyError(msg)
        content = b"".join(self._parts)
        self._parts = [content]
        return content

    def original(self) -> bytes:
        """The body as it came, still encoded."""
        return b"".join(self._raw) if self._raw is not None else b"".join(self._parts)

    def _keep(self, piece: bytes) -> None:
        self._size += len(piece)
        if self._size > self._limit:
            self._parts.clear()
            raise BodyTooLargeError
        self._parts.append(piece)

    def _inflate(self, piece: bytes) -> None:
        while piece:
            inflater = self._inflater
            assert inflater is not None
            if inflater.eof:  # gzip may hold several members, one after the other
                inflater = self._inflater = zlib.decompressobj(_GZIP)
            try:
                self._keep(inflater.decompress(piece, self._limit - self._size + 1))
            except zlib.error as error:
                msg = f"not gzip: {error}"
                raise BadBodyError(msg) from error
            piece = inflater.unconsumed_tail or inflater.unused_data


def inflate(content: bytes, limit: int) -> bytes:
    """Inflate a whole gzip body.

    Raises:
        BodyTooLargeError: it is larger than ``limit`` once inflated.
        BadBodyError: it is not gzip, or ends in the middle.
    """
    body = Body(limit, is_gzip=True)
    body.feed(content)
    return body.finish()

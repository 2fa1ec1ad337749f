"""A request body: limited in size, and inflated as it arrives."""

from __future__ import annotations

from otel_straggler.collector.ingest.codings import (
    GZIP,
    IDENTITY,
    BadBodyError,
    BodyTooLargeError,
    Pieces,
    WholeInflater,
    inflater,
)


class Body:
    """Collects pieces. A bomb is stopped while it inflates: never more than the limit is held.

    >>> body = Body(100)
    >>> body.add(b"ab"); body.add(b"c"); body.finish()
    b'abc'

    Args:
        limit: of bytes, on the wire and inflated.
        coding: of :mod:`codings`.
        keep_raw: keep gzip as received. Other codings are forwarded inflated: OTLP obliges a
            backend to read gzip only.

    Attributes:
        is_streamed: it is compressed, and inflated as it arrives.
    """

    __slots__ = ("_content", "_inflater", "_limit", "_raw", "_raw_size", "is_streamed")

    def __init__(self, limit: int, *, coding: str = IDENTITY, keep_raw: bool = False) -> None:
        self._limit = limit
        self._content = Pieces()
        self._raw_size = 0
        self._inflater = inflater(coding)
        self.is_streamed = not isinstance(self._inflater, WholeInflater | None)
        self._raw = Pieces() if keep_raw and coding == GZIP else None

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
        """Add the next piece; a compressed one waits. May be called while another inflates.

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
            BadBodyError: not of its coding.
        """
        inflater, content = self._inflater, self._content
        if inflater is not None:
            inflater.inflate(content, self._limit, content.size + max_bytes)

    def finish(self) -> bytes:
        """The content; BadBodyError if it ends in the middle."""
        if self._inflater is not None and not self._inflater.is_complete:
            raise BadBodyError("the compressed stream ends in the middle")
        return self._content.joined()

    def original(self) -> bytes:
        """The body as received."""
        return (self._content if self._raw is None else self._raw).joined()

    def clear(self) -> None:
        """Free the memory. May be called while another thread inflates."""
        self._content, self._raw, self._inflater = Pieces(), None, None


def inflate(content: bytes, limit: int, coding: str) -> bytes:
    """Inflate a whole body; raises as :class:`Body`."""
    body = Body(limit, coding=coding)
    body.add(content)
    while body.waiting_bytes:
        body.inflate(limit)
    return body.finish()

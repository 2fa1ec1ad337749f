"""What an HTTP server and the app behind it say to each other, and what a client may ask for."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpLimits:
    """What a peer may ask for.

    Attributes:
        body_bytes: largest body, on the wire and decompressed.
        header_bytes: request line and headers together; trailers likewise.
        connections: open at once; for a further one that gives way which has asked for nothing for
            longest, and where all are busy it is refused.
        buffered_bytes: bodies in the making, over all connections; beyond it the largest is
            refused.
        unsent_bytes: of answers that peers have not read yet, over all connections; above it large
            answers are refused.
        header_timeout_s: from the first byte of a request to the end of its headers.
        request_timeout_s: from the first byte of a request to the end of its body.
        idle_timeout_s: between requests, and for a peer that does not read its answers.
        linger_s: that a closing connection still reads, so that no reset destroys the answer.
        stall_s: for a peer that does not read a streamed answer, before it is cut off.
    """

    body_bytes: int = 64 * 1024 * 1024
    header_bytes: int = 32 * 1024
    connections: int = 4096
    buffered_bytes: int = 256 * 1024 * 1024
    unsent_bytes: int = 256 * 1024 * 1024
    header_timeout_s: float = 10.0
    request_timeout_s: float = 60.0
    idle_timeout_s: float = 60.0
    linger_s: float = 2.0
    stall_s: float = 20.0


@dataclass(slots=True)
class Head:
    """Request line and headers; names in lower case, repeated headers joined by a comma.

    The path is percent-decoded; the origin of an absolute target is cut off.
    """

    method: str
    path: str
    version: str
    headers: dict[str, str]
    query: str = ""


@dataclass(slots=True)
class Request:
    """A complete request; ``content`` is decoded, ``original`` as it came."""

    head: Head
    content: bytes
    original: bytes


class ByteStream(Protocol):
    """The body of an answer that is made while it is sent."""

    def __aiter__(self) -> AsyncIterator[bytes]:
        """Pieces, none empty; the next is asked for once the last has been taken by the system."""

    def close(self) -> None:
        """Nobody will ask for more. Always called, once, also if no piece was ever asked for."""


@dataclass(slots=True)
class Response:
    """An answer; ``close`` ends the connection after it.

    With a ``stream`` there is no ``body``, and the connection ends after the stream.
    """

    status: int
    body: bytes = b""
    content_type: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    close: bool = False
    stream: ByteStream | None = None


@dataclass(frozen=True, slots=True)
class Heavy:
    """An answer whose making would hold the event loop up; ``make`` is called in a thread, when its
    turn has come. Until then the request may still be refused for want of room."""

    make: Callable[[], Response]


class App(Protocol):
    """What a server does with requests. All methods are called on the event loop.

    An exception is a bug of the app: it is logged, and the request is answered with 500.
    """

    fixed_headers: Mapping[str, str]
    keep_raw: bool

    def refuse(self, head: Head) -> Response | None:
        """Answer a request by its head alone, or None to go on reading."""

    def is_gzip(self, head: Head) -> bool:
        """Whether the body has to be inflated."""

    def respond(self, request: Request) -> Response | Awaitable[Response] | Heavy:
        """Answer a complete request."""

    def failure(self, status: int, message: str, head: Head | None) -> Response:
        """Word an answer to a request that could not be read."""

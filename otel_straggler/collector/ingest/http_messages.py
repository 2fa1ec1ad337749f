"""The contract of an HTTP server and its app, limits, and how heads are read, checked and written,
and streams sent."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from http import HTTPStatus
from typing import Any, Protocol
from urllib.parse import parse_qsl, unquote

from otel_straggler.collector.access.roles import ANYBODY, UNKNOWN, Peer, Principal
from otel_straggler.errors import InputError

_log = logging.getLogger(__name__)

RawHeaders = list[tuple[bytes, bytes]]

_HOP_BY_HOP = frozenset({b"upgrade", b"connection", b"http2-settings"})
_KNOWN_VERSIONS = frozenset({"1.0", "1.1"})
_HOST = re.compile(rb"(\[[0-9A-Fa-f:.]+\]|[\w.~!$&'()*+,;=%-]*)(:[0-9]*)?", re.ASCII)
"""A name, an address or nothing, and a port (RFC 9110, 7.2)."""
_AUTHORITY_END = re.compile("([/?#]|$)")
_MAX_FIELDS = 20


class BadQueryError(InputError):
    """The query of a request, or a field of it, is wrong."""


def read_query(text: str) -> dict[str, str]:
    """The last value of every field.

    Raises:
        BadQueryError: there are too many.
    """
    try:
        return dict(parse_qsl(text, keep_blank_values=True, max_num_fields=_MAX_FIELDS))
    except ValueError as error:
        raise BadQueryError(f"the query cannot be read: {error}") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpLimits:
    """Limits of a peer.

    Attributes:
        body_bytes: largest body, on the wire and decompressed.
        json_bytes: likewise of JSON, which takes many times its bytes in memory, and seconds.
        header_bytes: request line and headers together; trailers likewise.
        connections: open at once; beyond it the longest idle one is closed, and where all are busy
            the new one is refused.
        buffered_bytes: incomplete bodies of all connections; beyond it the largest is refused.
        unsent_bytes: unread answers of all connections; above it large answers are refused.
        header_timeout_s, request_timeout_s: from the first byte of a request to the end of its
            headers, and of its body.
        silence_s: within a request.
        idle_timeout_s: between requests, and for a peer that does not read its answers.
        linger_s: a closing connection still reads, so that no reset destroys the answer.
        stall_s: for a peer that does not read a streamed answer.
    """

    body_bytes: int = 64 * 1024 * 1024
    json_bytes: int = 16 * 1024 * 1024
    header_bytes: int = 32 * 1024
    connections: int = 4096
    buffered_bytes: int = 256 * 1024 * 1024
    unsent_bytes: int = 256 * 1024 * 1024
    header_timeout_s: float = 10.0
    request_timeout_s: float = 60.0
    silence_s: float = 10.0
    idle_timeout_s: float = 60.0
    linger_s: float = 2.0
    stall_s: float = 20.0

    def max_body_bytes(self, head: Head) -> int:
        is_json = "json" in head.headers.get("content-type", "").lower()
        return min(self.body_bytes, self.json_bytes) if is_json else self.body_bytes


@dataclass(slots=True)
class Head:
    """Request line and headers; names in lower case, repeated headers joined by a comma, the path
    percent-decoded and without an origin. ``peer`` is the other end of the connection, ``client``
    whom it is counted for (:func:`client_of`); the app finds the ``principal``."""

    method: str
    path: str
    version: str
    headers: dict[str, str]
    query: str = ""
    peer: Peer = UNKNOWN
    principal: Principal = ANYBODY
    client: str = ""


@dataclass(slots=True)
class Request:
    """A complete request; ``content`` is decoded, ``original`` as received."""

    head: Head
    content: bytes
    original: bytes


class ByteStream(Protocol):
    """The body of an answer that is made while it is sent."""

    def __aiter__(self) -> AsyncIterator[bytes]:
        """Pieces, none empty; the next is requested once the last has left."""

    def close(self) -> None:
        """Called once, even if no piece was requested."""


@dataclass(slots=True)
class Response:
    """An answer; ``close``, and a ``stream`` in place of ``body``, end the connection after it."""

    status: int
    body: bytes = b""
    content_type: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    close: bool = False
    stream: ByteStream | None = None


@dataclass(frozen=True, slots=True)
class Heavy:
    """An answer made in a thread at its turn; until then the request may still be refused.

    Attributes:
        is_slow: it may take seconds, and never has all threads.
    """

    make: Callable[[], Response]
    is_slow: bool = False


class App(Protocol):
    """Answers requests, on the event loop. An exception is logged and answered with 500."""

    fixed_headers: Mapping[str, str]
    keep_raw: bool

    def refuse(self, head: Head) -> Response | None:
        """Answer a request by its head alone; None goes on reading."""

    def coding(self, head: Head) -> str:
        """How the body is compressed, of :mod:`codings`; empty for one that is not."""

    def respond(self, request: Request) -> Response | Awaitable[Response] | Heavy:
        """Answer a complete request."""

    def failure(self, status: int, message: str, head: Head | None) -> Response:
        """Word an answer to a request that could not be read."""


# --- heads ----------------------------------------------------------------------------------------


def read_head(parser: Any, target: bytes, raw: RawHeaders) -> Head:
    headers: dict[str, str] = {}
    for raw_name, raw_value in raw:
        name, value = raw_name.decode("latin-1").lower(), raw_value.decode("latin-1").strip()
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    authority, path, query = _split_target(target.decode("latin-1"))
    if authority is not None:
        headers["host"] = authority  # which counts, and not the header (RFC 9112, 3.2.2)
    method = parser.get_method().decode("latin-1")
    return Head(method, path, parser.get_http_version(), headers, query)


def problem_of(head: Head, raw: RawHeaders) -> tuple[int, str] | None:
    """Why a request must not be read any further: its framing or its host is unclear.

    llhttp has refused the rest: two lengths, a length with a coding, bare line feeds.
    """
    coding = head.headers.get("transfer-encoding")
    if head.version not in _KNOWN_VERSIONS:
        return 505, "only HTTP/1.0 and HTTP/1.1 are spoken here"
    if head.method == "CONNECT":
        return 405, "this is no proxy"
    if coding is not None and head.version == "1.0":
        return 400, "Transfer-Encoding does not exist in HTTP/1.0"
    if coding is not None and coding.lower() != "chunked":
        return 501, "the only Transfer-Encoding is chunked"
    if coding is not None and "content-length" in head.headers:
        return 400, "both Content-Length and Transfer-Encoding"
    hosts = [value for name, value in raw if name.lower() == b"host"]
    if len(hosts) > 1 or (not hosts and head.version == "1.1"):
        return 400, "there must be one Host header"
    named = (*hosts, head.headers.get("host", "").encode("latin-1"))
    if not all(_HOST.fullmatch(host.strip(b" \t")) for host in named):
        return 400, "the Host header names no host"
    if "expect" in head.headers and not _expected(head) <= {"100-continue"}:
        return 417, "the only expectation is 100-continue"
    return None


def without_upgrade(head: Head, target: bytes, raw: RawHeaders, *, keep_alive: bool) -> bytes:
    """The head without Upgrade, which a server may ignore (RFC 9110, 7.8) and the parser cannot."""
    lines = [f"{head.method} ".encode() + target + f" HTTP/{head.version}".encode()]
    lines += [n + b": " + v for n, v in raw if n.lower() not in _HOP_BY_HOP]
    lines.append(b"Connection: keep-alive" if keep_alive else b"Connection: close")
    return b"\r\n".join(lines) + b"\r\n\r\n"


def _expected(head: Head) -> set[str]:
    named = (one.strip().lower() for one in head.headers.get("expect", "").split(","))
    return {one for one in named if one}


def _split_target(target: str) -> tuple[str | None, str, str]:
    """Split a target in origin or absolute form into authority, path and query.

    >>> _split_target("http://host:4318/v1/%74races?x=1")
    ('host:4318', '/v1/traces', 'x=1')
    """
    authority = None
    if not target.startswith("/") and "://" in target:
        authority, separator, rest = _AUTHORITY_END.split(target.partition("://")[2], maxsplit=1)
        target = "/" + separator.removeprefix("/") + rest
    path, _, query = target.partition("#")[0].partition("?")
    return authority, unquote(path), query


def response_head(
    response: Response, version: str, own: bytes, *, is_last: bool, is_chunked: bool
) -> bytes:
    """Status line and headers; ``own``: header lines of the server."""
    lines = [_status_line(response.status), own]
    if response.stream is None and response.status != 304:  # which has the length of a 200
        lines.append(f"Content-Length: {len(response.body)}\r\n".encode())
    elif is_chunked:
        lines.append(b"Transfer-Encoding: chunked\r\n")
    if response.content_type:
        lines.append(f"Content-Type: {response.content_type}\r\n".encode("latin-1"))
    lines += [f"{n}: {v}\r\n".encode("latin-1") for n, v in response.headers.items()]
    if is_last:
        lines.append(b"Connection: close\r\n")
    elif version == "1.0":
        lines.append(b"Connection: keep-alive\r\n")
    return b"".join((*lines, b"\r\n"))


@cache
def _status_line(status: int) -> bytes:
    try:
        phrase = HTTPStatus(status).phrase
    except ValueError:
        phrase = ""
    return f"HTTP/1.1 {status} {phrase}\r\n".encode()


_IPV6_SITE_BITS = 64
"""Of an address: one machine may have all addresses behind it."""


def client_of(peer: object) -> str:
    """Whom connections are counted for: the address of ``peer`` without its port, of IPv6 its
    network; the same for all on a Unix socket.

    >>> client_of(("10.0.0.7", 4318)), client_of(("2001:db8::7", 1, 0, 0)), client_of("")
    ('10.0.0.7', '2001:db8::/64', 'unix')
    """
    if not isinstance(peer, tuple):
        return "unix"
    address = ipaddress.ip_address(str(peer[0]).partition("%")[0])
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    return str(ipaddress.ip_network((address, _IPV6_SITE_BITS), strict=False))


# --- streams --------------------------------------------------------------------------------------

_END = b"0\r\n\r\n"


class StreamSender:
    """Sends the stream of one connection.

    The next piece is requested when the one before has left the buffer, so a peer that does not
    read holds at most one piece and asyncio's high-water mark.

    Attributes:
        may_write: whether the system takes more now.
        task: ends with the stream; may be cancelled, and raises nothing else.
    """

    def __init__(self, transport: Any, stream: ByteStream, *, is_chunked: bool) -> None:
        self._transport = transport
        self._stream = stream
        self._is_chunked = is_chunked
        self._is_whole = True
        self.may_write = asyncio.Event()
        self.may_write.set()
        self.task = asyncio.get_running_loop().create_task(self._send())
        self.task.add_done_callback(self._close)

    async def _send(self) -> None:
        try:
            async for piece in self._stream:
                await self.may_write.wait()
                if self._transport.is_closing():
                    return
                self._transport.write(self._framed(piece))
        except Exception:  # noqa: BLE001 - logged; the peer sees that the stream broke off
            self._is_whole = False
            _log.exception("a stream could not be continued")

    def _close(self, _: asyncio.Task[None]) -> None:
        if self._is_whole and self._is_chunked and not self._transport.is_closing():
            self._transport.write(_END)
        try:
            self._stream.close()
        except Exception:  # noqa: BLE001 - logged; the connection ends all the same
            _log.exception("a stream could not be closed")

    def _framed(self, piece: bytes) -> bytes:
        return b"%x\r\n%b\r\n" % (len(piece), piece) if self._is_chunked else piece

"""HTTP/1.1 connections on asyncio: framing, limits, order of answers. It knows no OTLP.

llhttp (through httptools) parses, strictly; this file decides what is done with what it says.
Answers go out in the order of the requests. A request that cannot be framed for certain is
answered with 400 and the connection is closed, so that nobody can hide a second one inside.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass, field
from email.utils import formatdate
from http import HTTPStatus
from typing import Any, Protocol

import httptools

from otel_straggler.receive.body import BadBodyError, Body, BodyTooLargeError

_log = logging.getLogger(__name__)

_MAX_PIPELINED = 32
_LINGER_S = 2.0
_SWEEP_S = 0.25
_HEAD_TOO_LARGE = "the request head is too large"
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpLimits:
    """What a peer may ask for.

    Attributes:
        body_bytes: largest body, on the wire and decompressed.
        header_bytes: request line and headers together.
        connections: open at once; further ones are refused.
        buffered_bytes: bodies in the making, over all connections.
        header_timeout_s: from the first byte of a request to the end of its headers.
        request_timeout_s: from the first byte of a request to the end of its body.
        idle_timeout_s: between requests, and for a peer that does not read its answers.
    """

    body_bytes: int = 64 * 1024 * 1024
    header_bytes: int = 32 * 1024
    connections: int = 4096
    buffered_bytes: int = 256 * 1024 * 1024
    header_timeout_s: float = 10.0
    request_timeout_s: float = 60.0
    idle_timeout_s: float = 60.0


@dataclass(slots=True)
class Head:
    """Request line and headers; names in lower case, repeated headers joined by a comma."""

    method: str
    path: str
    version: str
    headers: dict[str, str]


@dataclass(slots=True)
class Request:
    """A complete request; ``content`` is decoded, ``original`` as it came."""

    head: Head
    content: bytes
    original: bytes


@dataclass(slots=True)
class Response:
    """An answer; ``close`` ends the connection after it."""

    status: int
    body: bytes = b""
    content_type: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    close: bool = False


class App(Protocol):
    """What a server does with requests. All methods are called on the event loop."""

    fixed_headers: Mapping[str, str]
    keep_raw: bool

    def refuse(self, head: Head) -> Response | None:
        """Answer a request by its head alone, or None to go on reading."""

    def is_gzip(self, head: Head) -> bool:
        """Whether the body has to be inflated."""

    def respond(self, request: Request) -> Response | Awaitable[Response]:
        """Answer a complete request."""

    def failure(self, status: int, message: str, head: Head | None) -> Response:
        """Word an answer to a request that could not be read."""


class HttpServer:
    """A listening socket, its connections and the one task that watches their deadlines."""

    def __init__(self, app: App, limits: HttpLimits) -> None:
        self.app = app
        self.limits = limits
        self.connections: set[_Connection] = set()
        self.buffered = 0
        self.is_closing = False
        self._server: asyncio.Server | None = None
        self._watch: asyncio.Task[None] | None = None
        self._date = (0, b"")
        self.fixed = b"".join(
            f"{name}: {value}\r\n".encode("latin-1") for name, value in app.fixed_headers.items()
        )

    async def start(self, host: str, port: int) -> tuple[str, int]:
        """Listen; returns the address, with the port that was given for port 0."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _Connection(self, loop), host, port)
        self._watch = loop.create_task(self._sweep())
        name = self._server.sockets[0].getsockname()
        return str(name[0]), int(name[1])

    async def stop(self, deadline_s: float) -> None:
        """Accept nothing more, finish the requests that have begun, then close."""
        self.is_closing = True
        if self._server is not None:
            self._server.close()
        until = time.monotonic() + deadline_s
        for connection in tuple(self.connections):
            connection.close_if_idle()
        while self.connections and time.monotonic() < until:
            await asyncio.sleep(0.01)
        for connection in tuple(self.connections):
            connection.abort()
        if self._watch is not None:
            self._watch.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._watch
        if self._server is not None:
            await self._server.wait_closed()

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(_SWEEP_S)
            now_s = time.monotonic()
            for connection in tuple(self.connections):
                connection.check_deadline(now_s)

    def date(self) -> bytes:
        now = int(time.time())
        if self._date[0] != now:
            self._date = now, f"Date: {formatdate(now, usegmt=True)}\r\n".encode("latin-1")
        return self._date[1]


@dataclass(slots=True)
class _Pending:
    """A request whose answer is due, in order; ``response`` if it is known already."""

    head: Head | None
    keep_alive: bool
    request: Request | None = None
    response: Response | None = None


class _Connection(asyncio.Protocol):
    """One connection. States: between requests, in the head, in the body; then lingering."""

    def __init__(self, server: HttpServer, loop: asyncio.AbstractEventLoop) -> None:
        self._server = server
        self._loop = loop
        self._transport: Any = None
        self._parser = httptools.HttpRequestParser(self)
        self._pending: deque[_Pending] = deque()
        self._task: asyncio.Task[None] | None = None
        self._is_reading = True
        self._is_ended = False  # no further request is read
        self._is_lingering = False
        self._is_peer_done = False
        self._has_begun = False  # a request, in the bytes being parsed
        self._write_blocked_since: float | None = None
        self._idle_since = time.monotonic()
        self._reset()

    def _reset(self) -> None:
        """Be between two requests."""
        self._began_at: float | None = None
        self._head_bytes = 0
        self._url = b""
        self._raw_headers: list[tuple[bytes, bytes]] = []
        self._head: Head | None = None
        self._body: Body | None = None
        self._held = 0
        self._early: Response | None = None
        self._wants_continue = False
        self._is_upgrade = False

    # --- the socket ------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        server = self._server
        server.connections.add(self)
        if server.is_closing or len(server.connections) > server.limits.connections:
            self._fail(503, "too many connections")

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's
        self._server.connections.discard(self)
        self._release_body()
        self._is_ended = True
        self._pending.clear()

    def eof_received(self) -> bool:
        """The peer has sent all it will; answers that are due still go out."""
        self._is_ended = self._is_peer_done = True
        return not self._is_lingering and bool(self._pending or self._task)

    def pause_writing(self) -> None:
        self._write_blocked_since = time.monotonic()

    def resume_writing(self) -> None:
        self._write_blocked_since = None
        self._answer_next()

    def data_received(self, data: bytes) -> None:
        if self._is_ended:
            return
        if self._began_at is None:
            self._began_at = time.monotonic()
        self._has_begun = False
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._ignore_upgrade(data[upgrade.args[0] :])
        except httptools.HttpParserError as error:
            if not self._is_ended:
                self._fail(400, f"not HTTP/1.1: {error}")
        self._check_growth(data)

    def _check_growth(self, data: bytes) -> None:
        if self._is_ended:
            return
        if self._head is None and self._began_at is not None and not self._has_begun:
            self._head_bytes += len(data)
            if self._head_bytes > self._server.limits.header_bytes:
                self._fail(431, _HEAD_TOO_LARGE)
        if len(self._pending) > _MAX_PIPELINED and self._is_reading:
            self._is_reading = False
            self._transport.pause_reading()

    # --- what the parser says ----------------------------------------------------------------

    def on_message_begin(self) -> None:
        self._has_begun = True
        if self._began_at is None:
            self._began_at = time.monotonic()

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._head is None:  # else a trailer, which means nothing to us
            self._raw_headers.append((name, value))

    def on_headers_complete(self) -> None:
        if self._is_ended:
            return
        size = len(self._url) + sum(len(n) + len(v) + 4 for n, v in self._raw_headers)
        self._head = head = self._read_head()
        problem = _problem_of(head, self._raw_headers)
        if size > self._server.limits.header_bytes:
            problem = 431, _HEAD_TOO_LARGE
        if problem is not None:
            self._fail(*problem)
            return
        if self._parser.should_upgrade() and head.method != "CONNECT":
            self._is_upgrade = True
            return
        self._begin_body(head)

    def on_body(self, piece: bytes) -> None:
        if self._is_ended or self._early is not None or self._body is None:
            return
        self._wants_continue = False
        try:
            self._body.feed(piece)
        except BodyTooLargeError:
            self._fail(413, f"the body is larger than {self._server.limits.body_bytes} bytes")
        except BadBodyError as error:
            self._refuse_body(400, str(error))
        else:
            self._hold(self._body.held_bytes)

    def on_message_complete(self) -> None:
        if self._is_ended or self._is_upgrade:
            return
        head, body = self._head, self._body
        keep_alive = bool(self._parser.should_keep_alive())
        assert head is not None
        early = self._early
        if early is None and body is not None:
            try:
                request = Request(head, body.finish(), body.original())
                self._pending.append(_Pending(head, keep_alive, request=request))
            except BadBodyError as error:
                early = self._server.app.failure(400, str(error), head)
        if early is not None:
            self._pending.append(_Pending(head, keep_alive, response=early))
        self._release_body()
        self._reset()
        self._is_ended = not keep_alive
        self._answer_next()

    # --- reading a request ---------------------------------------------------------------------

    def _read_head(self) -> Head:
        headers: dict[str, str] = {}
        for raw_name, raw_value in self._raw_headers:
            name, value = raw_name.decode("latin-1").lower(), raw_value.decode("latin-1")
            headers[name] = f"{headers[name]}, {value}" if name in headers else value
        method = self._parser.get_method().decode("latin-1")
        version = self._parser.get_http_version()
        return Head(method, _path_of(self._url), version, headers)

    def _begin_body(self, head: Head) -> None:
        app, limits = self._server.app, self._server.limits
        expects = head.headers.get("expect", "").lower()
        refusal = app.refuse(head)
        if refusal is None and int(head.headers.get("content-length", "0")) > limits.body_bytes:
            refusal = app.failure(413, f"the body is larger than {limits.body_bytes} bytes", head)
            refusal.close = True
        if refusal is not None:
            if refusal.close or expects:  # the body may never come
                self._fail_with(refusal)
            self._early = refusal
            return
        self._body = Body(limits.body_bytes, is_gzip=app.is_gzip(head), keep_raw=app.keep_raw)
        if expects and head.version == "1.1":
            self._wants_continue = True
            self._loop.call_soon(self._send_continue)

    def _send_continue(self) -> None:
        """Ask for the body, once the answers before it are out."""
        if self._wants_continue and not self._pending and self._task is None:
            self._wants_continue = False
            self._transport.write(_CONTINUE)

    def _hold(self, held: int) -> None:
        self._server.buffered += held - self._held
        self._held = held
        if self._server.buffered > self._server.limits.buffered_bytes:
            self._refuse_body(503, "too much is being received; send it again later")

    def _refuse_body(self, status: int, message: str) -> None:
        """Read the rest of the body without keeping it, then answer."""
        self._early = self._server.app.failure(status, message, self._head)
        self._release_body()

    def _release_body(self) -> None:
        self._server.buffered -= self._held
        self._held = 0
        self._body = None

    def _ignore_upgrade(self, rest: bytes) -> None:
        """A server may ignore Upgrade; the parser stops there, so it is told again, without."""
        if self._is_ended:
            return
        if not self._is_upgrade or self._head is None:
            self._fail(400, "CONNECT is not served")
            return
        version = self._parser.get_http_version()
        lines = [f"{self._head.method} ".encode() + self._url + f" HTTP/{version}".encode()]
        lines += [n + b": " + v for n, v in self._raw_headers if n.lower() not in _HOP_BY_HOP]
        if not self._parser.should_keep_alive():
            lines.append(b"Connection: close")
        began_at = self._began_at
        self._reset()
        self._began_at = began_at
        self._parser = httptools.HttpRequestParser(self)
        self.data_received(b"\r\n".join(lines) + b"\r\n\r\n" + rest)

    # --- answering -------------------------------------------------------------------------------

    def _fail(self, status: int, message: str) -> None:
        self._fail_with(self._server.app.failure(status, message, self._head))

    def _fail_with(self, response: Response) -> None:
        """Answer, after those that are due before, and read nothing more."""
        self._is_ended = True
        self._pending.append(_Pending(self._head, keep_alive=False, response=response))
        self._release_body()
        self._answer_next()

    def _answer_next(self) -> None:
        """Answer what is due, in order, until one has to be waited for."""
        while self._pending and self._task is None and self._write_blocked_since is None:
            due = self._pending.popleft()
            if due.response is not None:
                self._write(due, due.response)
                continue
            assert due.request is not None
            try:
                answer = self._server.app.respond(due.request)
            except Exception:  # noqa: BLE001 - logged; the connection lives on
                _log.exception("a request could not be answered")
                answer = self._server.app.failure(500, "internal error", due.head)
            if isinstance(answer, Response):
                self._write(due, answer)
            else:
                self._task = self._loop.create_task(self._answer_later(due, answer))
        if not self._pending and self._task is None:
            self._idle_since = time.monotonic()
            self._send_continue()
        if not self._is_reading and len(self._pending) <= _MAX_PIPELINED // 2:
            self._is_reading = True
            self._transport.resume_reading()

    async def _answer_later(self, due: _Pending, answer: Awaitable[Response]) -> None:
        try:
            response = await answer
        except Exception:  # noqa: BLE001 - logged; the connection lives on
            _log.exception("a request could not be answered")
            response = self._server.app.failure(500, "internal error", due.head)
        self._task = None
        if not self._transport.is_closing():
            self._write(due, response)
            self._answer_next()

    def _write(self, due: _Pending, response: Response) -> None:
        is_last = (
            not due.keep_alive
            or response.close
            or (self._is_ended and not self._pending)
            or (self._server.is_closing and not self._pending and self._began_at is None)
        )
        is_head = due.head is not None and due.head.method == "HEAD"
        version = "1.1" if due.head is None else due.head.version
        lines = [
            f"HTTP/1.1 {response.status} {_phrase(response.status)}\r\n".encode(),
            self._server.date(),
            self._server.fixed,
            f"Content-Length: {len(response.body)}\r\n".encode(),
        ]
        if response.content_type:
            lines.append(f"Content-Type: {response.content_type}\r\n".encode("latin-1"))
        lines += [f"{n}: {v}\r\n".encode("latin-1") for n, v in response.headers.items()]
        if is_last:
            lines.append(b"Connection: close\r\n")
        elif version == "1.0":
            lines.append(b"Connection: keep-alive\r\n")
        lines.append(b"\r\n")
        if not is_head:
            lines.append(response.body)
        self._transport.write(b"".join(lines))
        if is_last:
            self._linger()

    def _linger(self) -> None:
        """Close our half, then wait a little for the peer: closing with unread bytes in the
        socket would reset the connection and destroy the answer."""
        self._is_ended = self._is_lingering = True
        self._pending.clear()
        self._idle_since = time.monotonic()
        if not self._is_reading:
            self._is_reading = True
            self._transport.resume_reading()
        if self._is_peer_done or not self._transport.can_write_eof():
            self._transport.close()
        else:
            self._transport.write_eof()

    # --- time ----------------------------------------------------------------------------------

    def check_deadline(self, now_s: float) -> None:
        limits = self._server.limits
        if self._is_lingering:
            if now_s - self._idle_since > _LINGER_S:
                self.abort()
        elif self._write_blocked_since is not None:
            if now_s - self._write_blocked_since > limits.idle_timeout_s:
                self.abort()
        elif self._pending or self._task is not None or self._is_ended:
            return
        elif self._began_at is not None:
            allowed_s = limits.header_timeout_s if self._head is None else limits.request_timeout_s
            if now_s - self._began_at > allowed_s:
                self._fail(408, f"the request took longer than {allowed_s:g} s")
        elif now_s - self._idle_since > limits.idle_timeout_s:
            self._transport.close()

    def close_if_idle(self) -> None:
        if not self._pending and self._task is None and self._began_at is None:
            self._transport.close()

    def abort(self) -> None:
        self._transport.abort()


_HOP_BY_HOP = frozenset({b"upgrade", b"connection", b"http2-settings"})
_KNOWN_VERSIONS = frozenset({"1.0", "1.1"})


def _problem_of(head: Head, raw: list[tuple[bytes, bytes]]) -> tuple[int, str] | None:
    """Why a request must not be read any further: its framing or its addressee is unclear."""
    coding = head.headers.get("transfer-encoding")
    if head.version not in _KNOWN_VERSIONS:
        return 505, "only HTTP/1.0 and HTTP/1.1 are spoken here"
    if coding is not None and head.version == "1.0":
        return 400, "Transfer-Encoding does not exist in HTTP/1.0"
    if coding is not None and coding.lower() != "chunked":
        return 501, "the only Transfer-Encoding is chunked"
    if coding is not None and "content-length" in head.headers:
        return 400, "both Content-Length and Transfer-Encoding"
    hosts = sum(name.lower() == b"host" for name, _ in raw)
    if hosts > 1 or (hosts == 0 and head.version == "1.1"):
        return 400, "there must be one Host header"
    expects = head.headers.get("expect", "").lower()
    if expects not in ("", "100-continue"):
        return 417, "the only expectation is 100-continue"
    return None


def _path_of(url: bytes) -> str:
    """The path of a target in origin or absolute form; the query means nothing to us."""
    try:
        path = httptools.parse_url(url).path
    except httptools.HttpParserInvalidURLError:
        return ""
    return (path or b"/").decode("latin-1")


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return ""

"""One HTTP/1.1 connection: framing, order of answers, deadlines. It knows no OTLP.

llhttp (through httptools) parses, strictly; this file decides what is done with what it says.
Answers go out in the order of the requests. A request that cannot be framed for certain is
answered with 400 and the connection is closed, so that nobody can hide a second one inside.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Awaitable
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import httptools

from otel_straggler.receive.body import BadBodyError, Body, BodyTooLargeError
from otel_straggler.receive.http_head import problem_of, read_head, without_upgrade
from otel_straggler.receive.http_messages import ByteStream, Head, Request, Response
from otel_straggler.receive.http_stream import StreamSender

if TYPE_CHECKING:
    from otel_straggler.receive.http1 import HttpServer

_log = logging.getLogger(__name__)

_HEAD_TOO_LARGE = "the request head is too large"
_LARGE_BYTES = 64 * 1024
"""An answer that is written without copying it: peers that do not read share one."""
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_CONNECTIONS_BEYOND = 256
"""Connections above the limit that are still told so; beyond them they are cut."""


@dataclass(slots=True)
class _Pending:
    """A request whose answer is due, in order; ``response`` if it is known already."""

    head: Head | None
    keep_alive: bool
    request: Request | None = None
    response: Response | None = None


class Connection(asyncio.Protocol):
    """One connection. States: between requests, in the head, in the body; then lingering."""

    def __init__(self, server: HttpServer, loop: asyncio.AbstractEventLoop) -> None:
        self._server = server
        self._loop = loop
        self._transport: Any = None
        self._parser = httptools.HttpRequestParser(self)
        self._pending: deque[_Pending] = deque()
        self._task: asyncio.Task[None] | None = None
        self._sender: StreamSender | None = None
        self._is_first = True  # request of the bytes being parsed
        self._has_turn = False  # to answer, in the next round of the loop
        self._is_reading = True
        self._is_ended = False  # no further request is read
        self._is_lingering = False
        self._was_sending = True  # when looked at last, while lingering
        self._is_peer_done = False
        self._has_asked = False  # a head was complete
        self._has_moved = False  # something was complete in the bytes being parsed
        self._unseen_bytes = 0
        self._write_blocked_since: float | None = None
        self._idle_since = time.monotonic()
        self._reset()

    def _reset(self) -> None:
        """Be between two requests."""
        self._began_at: float | None = None
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
        has_room = server.has_room()
        server.connections.add(self)
        if len(server.connections) > server.limits.connections + _CONNECTIONS_BEYOND:
            self.abort()
        elif server.is_closing or not has_room:
            self._fail(503, "too many connections")
        else:
            server.waiting.meet(self, self._loop)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's
        self._server.connections.discard(self)
        self._server.waiting.leave(self)
        self._release_body()
        self._is_ended = True
        self._pending.clear()
        if self._sender is not None:
            self._sender.stop()

    def eof_received(self) -> bool:
        """The peer has sent all it will; answers that are due still go out, but no stream does."""
        self._is_ended = self._is_peer_done = True
        if self._sender is not None:
            return False
        return not self._is_lingering and bool(self._pending or self._task)

    def pause_writing(self) -> None:
        self._write_blocked_since = time.monotonic()
        if self._sender is not None:
            self._sender.pause()

    def resume_writing(self) -> None:
        self._write_blocked_since = None
        if self._sender is not None:
            self._sender.resume()
        self._answer_next()

    def data_received(self, data: bytes) -> None:
        if self._is_ended:
            return
        if self._began_at is None:
            self._began_at = time.monotonic()
        self._has_moved = False
        self._is_first = True
        try:
            self._parse(data)
        except httptools.HttpParserError as error:
            if not self._is_ended:
                self._fail(400, f"not HTTP/1.1: {error}")
        if not self._is_ended:
            self._check_growth(len(data))

    def _parse(self, data: bytes) -> None:
        while True:
            try:
                self._parser.feed_data(data)
            except httptools.HttpParserUpgrade as upgrade:
                if self._is_ended:
                    return
                data = self._ignore_upgrade() + data[upgrade.args[0] :]
            else:
                return

    def _check_growth(self, size: int) -> None:
        """Bound what the parser collects unseen, and what waits for its answer.

        A header, a trailer or a chunk extension without end calls nothing back.
        """
        self._unseen_bytes = 0 if self._has_moved else self._unseen_bytes + size
        if self._unseen_bytes > self._server.limits.header_bytes:
            self._fail(431, _HEAD_TOO_LARGE)
        elif self._pending and self._is_reading:
            self._is_reading = False
            self._transport.pause_reading()

    # --- what the parser says ----------------------------------------------------------------

    def on_message_begin(self) -> None:
        self._has_moved = True
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
        self._has_moved = self._has_asked = True
        self._server.waiting.leave(self)
        size = len(self._url) + sum(len(n) + len(v) + 4 for n, v in self._raw_headers)
        self._head = head = read_head(self._parser, self._url, self._raw_headers)
        problem = problem_of(head, self._raw_headers)
        if size > self._server.limits.header_bytes:
            problem = 431, _HEAD_TOO_LARGE
        if problem is not None:
            self._fail(*problem)
            return
        if self._parser.should_upgrade():
            self._is_upgrade = True
            return
        self._begin_body(head)

    def on_body(self, piece: bytes) -> None:
        self._has_moved = True
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
        self._has_moved = True
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
        if self._is_first:
            self._is_first = False
            self._answer_next()
        else:
            self._plan_turn()

    # --- reading a request ---------------------------------------------------------------------

    def _begin_body(self, head: Head) -> None:
        app, limits = self._server.app, self._server.limits
        expects = head.headers.get("expect", "").lower()
        refusal = self._refusal_of(head)
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

    def _refusal_of(self, head: Head) -> Response | None:
        try:
            return self._server.app.refuse(head)
        except Exception:  # noqa: BLE001 - logged; the connection lives on
            _log.exception("a request could not be judged")
            return self._server.app.failure(500, "internal error", head)

    def _send_continue(self) -> None:
        """Ask for the body, once the answers before it are out."""
        if not self._wants_continue or self._is_ended or self._transport.is_closing():
            return
        if not self._pending and self._task is None:
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

    def _ignore_upgrade(self) -> bytes:
        """Start a new parser; returns the head that it is to read in place of the old one."""
        assert self._head is not None
        keep_alive = bool(self._parser.should_keep_alive())
        head = without_upgrade(self._head, self._url, self._raw_headers, keep_alive=keep_alive)
        began_at = self._began_at
        self._reset()
        self._began_at = began_at
        self._parser = httptools.HttpRequestParser(self)
        return head

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
        """Answer what is due, in order: one now, the next when the other connections have had
        their turn."""
        if self._pending and self._task is None and self._write_blocked_since is None:
            self._answer(self._pending.popleft())
            if self._pending:
                self._plan_turn()
        if not self._pending and self._task is None:
            self._idle_since = time.monotonic()
            is_read = self._write_blocked_since is None
            if self._head is None and is_read and not self._is_lingering:
                self._server.waiting.rest(self)
            self._send_continue()
        if not self._is_reading and not self._pending:
            self._is_reading = True
            self._transport.resume_reading()

    def _plan_turn(self) -> None:
        if not self._has_turn:
            self._has_turn = True
            self._loop.call_soon(self._take_turn)

    def _take_turn(self) -> None:
        self._has_turn = False
        if not self._transport.is_closing():
            self._answer_next()

    def _answer(self, due: _Pending) -> None:
        if due.response is not None:
            self._write(due, due.response)
            return
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
        elif response.stream is not None:
            response.stream.close()

    def _write(self, due: _Pending, response: Response) -> None:
        if len(response.body) > _LARGE_BYTES and self._server.has_much_unsent():
            response = self._server.app.failure(503, "too many do not read their answers", due.head)
        is_last = (
            not due.keep_alive
            or response.close
            or response.stream is not None
            or (self._is_ended and not self._pending)
            or (self._server.is_closing and not self._pending and self._began_at is None)
        )
        is_head = due.head is not None and due.head.method == "HEAD"
        version = "1.1" if due.head is None else due.head.version
        is_chunked = response.stream is not None and version == "1.1"
        lines = [
            f"HTTP/1.1 {response.status} {_phrase(response.status)}\r\n".encode(),
            self._server.date(),
            self._server.fixed,
        ]
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
        lines.append(b"\r\n")
        body = b"" if is_head else response.body
        if len(body) <= _LARGE_BYTES:
            lines.append(body)
        self._transport.write(b"".join(lines))
        if len(body) > _LARGE_BYTES:
            self._transport.write(body)
        if response.stream is not None:
            self._begin_stream(response.stream, is_chunked=is_chunked, is_head=is_head)
        elif is_last:
            self._linger()

    def _begin_stream(self, stream: ByteStream, *, is_chunked: bool, is_head: bool) -> None:
        """Send it, then end the connection: what the peer sends meanwhile is not read."""
        self._is_ended = True
        self._sender = StreamSender(self._transport, stream, is_chunked=is_chunked and not is_head)
        self._task = self._sender.start()
        self._task.add_done_callback(self._end_stream)
        if is_head or self._is_peer_done or self._server.is_closing:
            self._sender.stop()

    def _end_stream(self, _: asyncio.Task[None]) -> None:
        self._sender = self._task = None
        if not self._transport.is_closing():
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
            return
        try:
            self._transport.write_eof()
        except OSError:  # the peer was gone before we looked
            self.abort()
            return
        if self.unsent_bytes == 0:
            self._server.waiting.part(self)

    # --- time ----------------------------------------------------------------------------------

    def check_deadline(self, now_s: float) -> None:
        limits = self._server.limits
        if self._is_lingering:
            self._check_linger(now_s)
        elif self._write_blocked_since is not None:
            allowed_s = limits.idle_timeout_s if self._sender is None else limits.stall_s
            if now_s - self._write_blocked_since > allowed_s:
                self.abort()
        elif self._pending or self._task is not None or self._is_ended:
            return
        elif self._began_at is not None:
            allowed_s = limits.header_timeout_s if self._head is None else limits.request_timeout_s
            if now_s - self._began_at > allowed_s:
                self._fail(408, f"the request took longer than {allowed_s:g} s")
        elif now_s - self._idle_since > limits.idle_timeout_s:
            self._transport.close()

    def _check_linger(self, now_s: float) -> None:
        """A long answer may take its time; once it is out, the peer has little."""
        limits = self._server.limits
        is_sending = self._transport.get_write_buffer_size() > 0
        if self._was_sending and not is_sending:
            self._idle_since = now_s
        self._was_sending = is_sending
        if now_s - self._idle_since > (limits.idle_timeout_s if is_sending else limits.linger_s):
            self.abort()

    @property
    def unsent_bytes(self) -> int:
        """Of answers, which the system has not taken yet."""
        return int(self._transport.get_write_buffer_size())

    @property
    def has_asked_nothing(self) -> bool:
        """Whether it is open, and no head of a request was ever complete."""
        return not self._has_asked and not self._is_ended and not self._transport.is_closing()

    @property
    def slow_since(self) -> float | None:
        """Since when the peer has been sending the request that we are reading, or has not read
        what it asked for; None while it is our turn, and of a stream, which takes its time."""
        if self._sender is not None or self._transport.is_closing():
            return None
        if self._write_blocked_since is not None:
            return self._write_blocked_since
        if self._is_lingering:
            return self._idle_since
        return None if self._pending or self._task is not None else self._began_at

    def cut_off(self) -> None:
        """Give its place to another, now; what it has not read is lost."""
        self._server.connections.discard(self)
        self._release_body()
        self._is_ended = True
        if self.unsent_bytes:
            self.abort()
        else:
            self._transport.close()

    def close_if_idle(self) -> None:
        """Close between requests; end a stream, which would never end by itself."""
        if self._sender is not None:
            self._sender.stop()
        elif not self._pending and self._task is None and self._began_at is None:
            self._transport.close()

    def abort(self) -> None:
        self._transport.abort()


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return ""

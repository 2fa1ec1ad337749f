"""One HTTP/1.1 connection: answers in the order of the requests, deadlines, its end."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import struct
import time
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any, TypeAlias

from otel_straggler.collector.access.roles import UNKNOWN, Peer
from otel_straggler.collector.access.tls import names_of
from otel_straggler.collector.ingest.http_bodies import Incoming
from otel_straggler.collector.ingest.http_messages import (
    ByteStream,
    Heavy,
    Request,
    Response,
    StreamSender,
    client_of,
    response_head,
)
from otel_straggler.collector.ingest.http_requests import Due, RequestReader

if TYPE_CHECKING:
    from otel_straggler.collector.ingest.http_server import HttpServer

_log = logging.getLogger(__name__)

_LARGE_BYTES = 64 * 1024
"""A larger answer is written without copying it."""
_CREDENTIALS = "iII"
"""Process, user and group."""
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_CONNECTIONS_BEYOND = 256
"""Connections above the limit that still get an answer."""
_Made: TypeAlias = Response | Awaitable[Response] | Heavy


class Connection(asyncio.Protocol):
    """Reads requests and answers them in order; lingers at its end."""

    def __init__(self, server: HttpServer, loop: asyncio.AbstractEventLoop) -> None:
        self._server = server
        self._loop = loop
        self._transport: Any = None
        self._reader = RequestReader(server, self, loop)
        self._pending = self._reader.due
        self._task: asyncio.Task[None] | None = None
        self._answering: Incoming | None = None  # by the task
        self._sender: StreamSender | None = None
        self._has_turn = False  # to answer, in the next round of the loop
        self._is_reading = True
        self._is_lingering = False
        self._was_sending = True  # at the last check, while lingering
        self._is_peer_done = False
        self._write_blocked_since: float | None = None
        self._idle_since = time.monotonic()
        self.peer = UNKNOWN
        self.client = ""

    # --- the socket ------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self.peer = peer_of(transport)
        server = self._server
        self.client = client_of(transport.get_extra_info("peername"))
        has_room = server.has_room(self.client)
        server.held.add(self)
        if len(server.connections) > server.limits.connections + _CONNECTIONS_BEYOND:
            self.abort()
        elif server.is_closing or not has_room:
            self._reader.fail(503, "too many connections")
            self._answer_next()
        else:
            server.evictions.add_new(self, self._loop)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's
        self._server.held.discard(self)
        self._server.evictions.remove(self)
        self._reader.end()
        self._drop_pending()
        if self._answering is not None:
            self._answering.drop()
        if self._sender is not None:
            self._sender.task.cancel()

    def eof_received(self) -> bool:
        """Pending answers still go out, but no stream does."""
        self._reader.is_ended = self._is_peer_done = True
        if self._sender is not None:
            return False
        if self._transport.get_extra_info("sslcontext") is not None:
            return False  # TLS has no half of a connection
        return not self._is_lingering and not self._is_free

    def pause_writing(self) -> None:
        self._write_blocked_since = time.monotonic()
        if self._sender is not None:
            self._sender.may_write.clear()

    def resume_writing(self) -> None:
        self._write_blocked_since = None
        if self._sender is not None:
            self._sender.may_write.set()
        self._answer_next()

    def data_received(self, data: bytes) -> None:
        if self._reader.is_ended:
            return
        self._reader.feed(data)
        if self._pending:
            self._answer_next()
        must_wait = self._pending or self._reader.is_in_thread
        if must_wait and self._is_reading and not self._reader.is_ended:
            self._is_reading = False
            self._transport.pause_reading()

    # --- called by the reader ------------------------------------------------------------------

    def on_head(self) -> None:
        self._server.evictions.add_busy(self)

    def on_body_changed(self) -> None:
        """A body is refused, or a thread is done with it for now."""
        if self._pending:
            self._answer_next()
        else:
            self._resume_reading()

    def send_continue(self) -> None:
        """Ask for the body, once the answers before it are out."""
        reader = self._reader
        if not reader.wants_continue or reader.is_ended or self._transport.is_closing():
            return
        if self._is_free:
            reader.wants_continue = False
            self._transport.write(_CONTINUE)

    # --- answering -------------------------------------------------------------------------------

    @property
    def _is_free(self) -> bool:
        """Whether no answer is due."""
        return not self._pending and self._task is None

    def _answer_next(self) -> None:
        """Answer one request now, the next after the other connections have had their turn."""
        if self._pending and self._task is None and self._write_blocked_since is None:
            self._answer(self._pending.popleft())
            if self._pending:
                self._plan_turn()
        if self._is_free:
            self._idle_since = time.monotonic()
            is_read = self._write_blocked_since is None
            if self._reader.head is None and is_read and not self._is_lingering:
                self._server.evictions.add_idle(self)
            self.send_continue()
        self._resume_reading()

    def _resume_reading(self) -> None:
        """Unless answers are due, or a thread is at work on the body."""
        must_wait = self._pending or self._reader.is_in_thread
        if not self._is_reading and not must_wait and not self._transport.is_closing():
            self._is_reading = True
            self._transport.resume_reading()

    def _plan_turn(self) -> None:
        if not self._has_turn:
            self._has_turn = True
            self._loop.call_soon(self._answer_in_turn)

    def _answer_in_turn(self) -> None:
        self._has_turn = False
        if not self._transport.is_closing():
            self._answer_next()

    def _answer(self, due: Due) -> None:
        if due.response is not None:
            self._write(due, due.response)
            return
        incoming = due.incoming
        assert incoming is not None
        answer = self._respond(due, incoming) if incoming.is_ready else None
        if isinstance(answer, Response):
            self._write(due, answer)
        else:
            self._answering = incoming
            self._task = self._loop.create_task(self._answer_later(due, incoming, answer))

    def _respond(self, due: Due, incoming: Incoming) -> _Made:
        assert due.head is not None
        if incoming.refusal is not None:
            return self._failure(incoming.refusal, due)
        answer: _Made
        try:
            answer = self._server.app.respond(Request(due.head, *incoming.contents()))
        except Exception:  # noqa: BLE001 - logged; the connection lives on
            answer = self._failure(None, due)
        if not isinstance(answer, Heavy):
            incoming.release()
        return answer

    async def _answer_later(self, due: Due, incoming: Incoming, answer: _Made | None) -> None:
        try:
            if answer is None:
                await incoming.wait_until_ready()
                answer = self._respond(due, incoming)
            if isinstance(answer, Heavy):
                made = await incoming.handle_in_thread(answer.make, is_slow=answer.is_slow)
                answer = made or self._failure(incoming.refusal, due)
            response = answer if isinstance(answer, Response) else await answer
        except Exception:  # noqa: BLE001 - logged; the connection lives on
            response = self._failure(None, due)
        self._task = self._answering = None
        if not self._transport.is_closing():
            self._write(due, response)
            self._answer_next()
        elif response.stream is not None:
            response.stream.close()

    def _failure(self, refusal: tuple[int, str] | None, due: Due) -> Response:
        """Why a body was refused; None: a bug of the app."""
        if refusal is None:
            _log.exception("a request could not be answered")
        return self._server.app.failure(*(refusal or (500, "internal error")), due.head)

    def _drop_pending(self) -> None:
        for due in self._pending:
            if due.incoming is not None:
                due.incoming.drop()
        self._pending.clear()

    def _write(self, due: Due, response: Response) -> None:
        if len(response.body) > _LARGE_BYTES and self._server.has_much_unsent():
            response = self._server.app.failure(503, "too many do not read their answers", due.head)
        is_last = (
            not due.keep_alive
            or response.close
            or response.stream is not None
            or (self._reader.is_ended and not self._pending)
            or (self._server.is_closing and not self._pending and self._reader.began_at is None)
        )
        is_head = due.head is not None and due.head.method == "HEAD"
        version = "1.1" if due.head is None else due.head.version
        is_chunked = response.stream is not None and version == "1.1"
        own = self._server.date() + self._server.fixed
        head = response_head(response, version, own, is_last=is_last, is_chunked=is_chunked)
        body = b"" if is_head else response.body
        if len(body) <= _LARGE_BYTES:
            self._transport.write(head + body)
        else:
            self._transport.write(head)
            self._transport.write(body)
        if response.stream is not None:
            self._begin_stream(response.stream, is_chunked=is_chunked, is_head=is_head)
        elif is_last:
            self._linger()

    def _begin_stream(self, stream: ByteStream, *, is_chunked: bool, is_head: bool) -> None:
        """Send it, then end the connection; nothing more is read."""
        self._reader.is_ended = True
        self._sender = StreamSender(self._transport, stream, is_chunked=is_chunked and not is_head)
        self._task = self._sender.task
        self._task.add_done_callback(self._end_stream)
        if is_head or self._is_peer_done or self._server.is_closing:
            self._sender.task.cancel()

    def _end_stream(self, _: asyncio.Task[None]) -> None:
        self._sender = self._task = None
        if not self._transport.is_closing():
            self._linger()

    def _linger(self) -> None:
        """Close our half, then wait a little for the peer: closing with unread bytes would reset
        the connection and destroy the answer."""
        self._reader.is_ended = self._is_lingering = True
        self._drop_pending()
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
        self._may_be_evicted()
        self._loop.call_soon(self._may_be_evicted)  # uvloop 0.19 sends at the end of its round

    def _may_be_evicted(self) -> None:
        """Once the answer is out, a lingering connection gives way to others."""
        if not self._transport.is_closing() and self.unsent_bytes == 0:
            self._server.evictions.add_ending(self)

    # --- time ----------------------------------------------------------------------------------

    def check_deadline(self, now_s: float) -> None:
        limits, reader = self._server.limits, self._reader
        if self._is_lingering:
            self._check_linger(now_s)
        elif self._write_blocked_since is not None:
            allowed_s = limits.idle_timeout_s if self._sender is None else limits.stall_s
            if now_s - self._write_blocked_since > allowed_s:
                self.abort()
        elif not self._is_free or reader.is_ended or reader.is_in_thread:
            return
        elif reader.began_at is not None:
            allowed_s = limits.header_timeout_s if reader.head is None else limits.request_timeout_s
            if now_s - reader.began_at > allowed_s:
                reader.fail(408, f"the request took longer than {allowed_s:g} s")
                self._answer_next()
            elif now_s - reader.fed_at > limits.silence_s:
                reader.fail(408, f"nothing came for {limits.silence_s:g} s")
                self._answer_next()
        elif now_s - self._idle_since > limits.idle_timeout_s:
            self._transport.close()

    def _check_linger(self, now_s: float) -> None:
        """A long answer may take its time; once it is out, the peer has little."""
        limits = self._server.limits
        is_sending = self._transport.get_write_buffer_size() > 0
        if self._was_sending and not is_sending:
            self._idle_since = now_s
            self._may_be_evicted()
        self._was_sending = is_sending
        if now_s - self._idle_since > (limits.idle_timeout_s if is_sending else limits.linger_s):
            self.abort()

    @property
    def unsent_bytes(self) -> int:
        return int(self._transport.get_write_buffer_size())

    @property
    def has_asked_nothing(self) -> bool:
        """Whether it is open, and no head was ever complete."""
        reader = self._reader
        return not reader.has_asked and not reader.is_ended and not self._transport.is_closing()

    @property
    def slow_since(self) -> float | None:
        """Since when the peer has been sending a request, or not reading an answer; None while it
        is our turn, and for a stream."""
        if self._sender is not None or self._transport.is_closing():
            return None
        if self._write_blocked_since is not None:
            return self._write_blocked_since
        if self._is_lingering:
            return self._idle_since
        is_theirs = self._is_free and not self._reader.is_in_thread
        return self._reader.began_at if is_theirs else None

    def evict(self) -> None:
        """Make room for another; unread answers are lost."""
        self._server.held.discard(self)
        self._reader.end()
        if self.unsent_bytes:
            self.abort()
        else:
            self._transport.close()

    def close_if_idle(self) -> None:
        """Close between requests; end a stream."""
        if self._sender is not None:
            self._sender.task.cancel()
        elif self._is_free and self._reader.began_at is None:
            self._transport.close()

    def abort(self) -> None:
        self._transport.abort()


def peer_of(transport: asyncio.BaseTransport) -> Peer:
    name = transport.get_extra_info("peername")
    if isinstance(name, tuple):
        address = f"{name[0]}:{name[1]}"
        return Peer(address=address, names=names_of(transport.get_extra_info("peercert")))
    uid = _uid_of(transport)
    return Peer(address=f"unix, uid {uid}", uid=uid)


def _uid_of(transport: asyncio.BaseTransport) -> int | None:
    """The user of the process at the other end of a Unix socket; None where none is known."""
    try:
        descriptor = os.dup(transport.get_extra_info("socket").fileno())
        with socket.socket(fileno=descriptor) as connected:
            size = struct.calcsize(_CREDENTIALS)
            packed = connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
    except (AttributeError, OSError):  # only Linux has them; or the peer has gone
        return None
    return int(struct.unpack(_CREDENTIALS, packed)[1])

"""One HTTP/1.1 connection: answers in the order of the requests, deadlines, its end. It knows no
OTLP.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Awaitable
from functools import cache
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from otel_straggler.receive.http_bodies import Incoming
from otel_straggler.receive.http_messages import ByteStream, Heavy, Request, Response
from otel_straggler.receive.http_requests import Due, RequestReader

if TYPE_CHECKING:
    from otel_straggler.receive.http_server import HttpServer

_log = logging.getLogger(__name__)

_LARGE_BYTES = 64 * 1024
"""An answer that is written without copying it: peers that do not read share one."""
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_CONNECTIONS_BEYOND = 256
"""Connections above the limit that are still told so; beyond them they are cut."""


class Connection(asyncio.Protocol):
    """One connection: it reads and answers, and lingers at its end."""

    def __init__(self, server: HttpServer, loop: asyncio.AbstractEventLoop) -> None:
        self._server = server
        self._loop = loop
        self._transport: Any = None
        self._reader = RequestReader(server, self, loop)
        self._pending: deque[Due] = deque()
        self._task: asyncio.Task[None] | None = None
        self._answering: Incoming | None = None  # by the task
        self._sender: StreamSender | None = None
        self._is_first = True  # request of the bytes being parsed
        self._has_turn = False  # to answer, in the next round of the loop
        self._is_reading = True
        self._is_lingering = False
        self._was_sending = True  # when looked at last, while lingering
        self._is_peer_done = False
        self._write_blocked_since: float | None = None
        self._idle_since = time.monotonic()

    # --- the socket ------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        server = self._server
        has_room = server.has_room()
        server.connections.add(self)
        if len(server.connections) > server.limits.connections + _CONNECTIONS_BEYOND:
            self.abort()
        elif server.is_closing or not has_room:
            self._reader.fail(503, "too many connections")
        else:
            server.waiting.meet(self, self._loop)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's
        self._server.connections.discard(self)
        self._server.waiting.leave(self)
        self._reader.end()
        self._drop_pending()
        if self._answering is not None:
            self._answering.let_go()
        if self._sender is not None:
            self._sender.stop()

    def eof_received(self) -> bool:
        """The peer has sent all it will; answers that are due still go out, but no stream does."""
        self._reader.is_ended = self._is_peer_done = True
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
        if self._reader.is_ended:
            return
        self._is_first = True
        self._reader.feed(data)
        must_wait = self._pending or self._reader.is_in_thread
        if must_wait and self._is_reading and not self._reader.is_ended:
            self._is_reading = False
            self._transport.pause_reading()

    # --- what the reader says ------------------------------------------------------------------

    def asked(self) -> None:
        self._server.waiting.leave(self)

    def take(self, due: Due) -> None:
        self._pending.append(due)
        if self._is_first or self._reader.is_ended:
            self._is_first = False
            self._answer_next()
        else:
            self._plan_turn()

    def send_continue(self) -> None:
        """Ask for the body, once the answers before it are out."""
        reader = self._reader
        if not reader.wants_continue or reader.is_ended or self._transport.is_closing():
            return
        if not self._pending and self._task is None:
            reader.wants_continue = False
            self._transport.write(_CONTINUE)

    # --- answering -------------------------------------------------------------------------------

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
            if self._reader.head is None and is_read and not self._is_lingering:
                self._server.waiting.rest(self)
            self.send_continue()
        self.go_on()

    def go_on(self) -> None:
        must_wait = self._pending or self._reader.is_in_thread
        if not self._is_reading and not must_wait and not self._transport.is_closing():
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

    def _respond(self, due: Due, incoming: Incoming) -> Response | Awaitable[Response] | Heavy:
        """What the app says, or why it is not asked."""
        app, head = self._server.app, due.head
        assert head is not None
        if incoming.refusal is not None:
            return app.failure(*incoming.refusal, head)
        try:
            answer = app.respond(Request(head, *incoming.contents()))
        except Exception:  # noqa: BLE001 - logged; the connection lives on
            _log.exception("a request could not be answered")
            answer = app.failure(500, "internal error", head)
        if not isinstance(answer, Heavy):
            incoming.release()
        return answer

    async def _answer_later(
        self, due: Due, incoming: Incoming, answer: Awaitable[Response] | Heavy | None
    ) -> None:
        try:
            response = await self._made(due, incoming, answer)
        except Exception:  # noqa: BLE001 - logged; the connection lives on
            _log.exception("a request could not be answered")
            response = self._server.app.failure(500, "internal error", due.head)
        self._task = self._answering = None
        if not self._transport.is_closing():
            self._write(due, response)
            self._answer_next()
        elif response.stream is not None:
            response.stream.close()

    async def _made(
        self, due: Due, incoming: Incoming, answer: Awaitable[Response] | Heavy | None
    ) -> Response:
        made: Response | Awaitable[Response] | Heavy | None = answer
        if made is None:
            await incoming.ready()
            made = self._respond(due, incoming)
        if isinstance(made, Heavy):
            made = await incoming.taken(made.make)
            if made is None:
                assert incoming.refusal is not None
                return self._server.app.failure(*incoming.refusal, due.head)
        return made if isinstance(made, Response) else await made

    def _drop_pending(self) -> None:
        for due in self._pending:
            if due.incoming is not None:
                due.incoming.let_go()
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
        lines = [
            _status_line(response.status),
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
        self._reader.is_ended = True
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
        self._part()
        self._loop.call_soon(self._part)  # uvloop 0.19 sends at the end of its round

    def _part(self) -> None:
        """Once the answer is out: who lingers gives way."""
        if not self._transport.is_closing() and self.unsent_bytes == 0:
            self._server.waiting.part(self)

    # --- time ----------------------------------------------------------------------------------

    def check_deadline(self, now_s: float) -> None:
        limits, reader = self._server.limits, self._reader
        if self._is_lingering:
            self._check_linger(now_s)
        elif self._write_blocked_since is not None:
            allowed_s = limits.idle_timeout_s if self._sender is None else limits.stall_s
            if now_s - self._write_blocked_since > allowed_s:
                self.abort()
        elif self._pending or self._task is not None or reader.is_ended or reader.is_in_thread:
            return
        elif reader.began_at is not None:
            allowed_s = limits.header_timeout_s if reader.head is None else limits.request_timeout_s
            if now_s - reader.began_at > allowed_s:
                reader.fail(408, f"the request took longer than {allowed_s:g} s")
        elif now_s - self._idle_since > limits.idle_timeout_s:
            self._transport.close()

    def _check_linger(self, now_s: float) -> None:
        """A long answer may take its time; once it is out, the peer has little."""
        limits = self._server.limits
        is_sending = self._transport.get_write_buffer_size() > 0
        if self._was_sending and not is_sending:
            self._idle_since = now_s
            self._part()
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
        reader = self._reader
        return not reader.has_asked and not reader.is_ended and not self._transport.is_closing()

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
        is_ours = self._pending or self._task is not None or self._reader.is_in_thread
        return None if is_ours else self._reader.began_at

    def cut_off(self) -> None:
        """Give its place to another, now; what it has not read is lost."""
        self._server.connections.discard(self)
        self._reader.end()
        if self.unsent_bytes:
            self.abort()
        else:
            self._transport.close()

    def close_if_idle(self) -> None:
        """Close between requests; end a stream, which would never end by itself."""
        if self._sender is not None:
            self._sender.stop()
        elif not self._pending and self._task is None and self._reader.began_at is None:
            self._transport.close()

    def abort(self) -> None:
        self._transport.abort()


@cache
def _status_line(status: int) -> bytes:
    try:
        phrase = HTTPStatus(status).phrase
    except ValueError:
        phrase = ""
    return f"HTTP/1.1 {status} {phrase}\r\n".encode()


_END = b"0\r\n\r\n"


class StreamSender:
    """Sends one stream over a transport; belongs to one connection.

    The next piece is asked for when the one before has left our buffer (below asyncio's high-water
    mark), so a peer that does not read holds at most one piece and that mark.

    Args:
        transport: asyncio's.
        stream: what to send.
        is_chunked: in chunks (HTTP/1.1); else until the connection closes.
    """

    def __init__(self, transport: Any, stream: ByteStream, *, is_chunked: bool) -> None:
        self._transport = transport
        self._stream = stream
        self._is_chunked = is_chunked
        self._may_write = asyncio.Event()
        self._may_write.set()
        self._is_whole = True
        self._task: asyncio.Task[None] | None = None

    def start(self) -> asyncio.Task[None]:
        """Begin; the task ends when the stream has, or after :meth:`stop`. It raises nothing but
        the cancellation."""
        self._task = asyncio.get_running_loop().create_task(self._send())
        self._task.add_done_callback(lambda _: self._close())
        return self._task

    def pause(self) -> None:
        """The system takes no more for now."""
        self._may_write.clear()

    def resume(self) -> None:
        self._may_write.set()

    def stop(self) -> None:
        """End it now, in good order; may be called at any time."""
        if self._task is not None:
            self._task.cancel()

    async def _send(self) -> None:
        try:
            async for piece in self._stream:
                await self._may_write.wait()
                if self._transport.is_closing():
                    return
                self._transport.write(self._framed(piece))
        except Exception:  # noqa: BLE001 - logged; the peer sees that the stream broke off
            self._is_whole = False
            _log.exception("a stream could not be continued")

    def _close(self) -> None:
        """Also of a stream that was stopped before its first piece."""
        if self._is_whole and self._is_chunked and not self._transport.is_closing():
            self._transport.write(_END)
        try:
            self._stream.close()
        except Exception:  # noqa: BLE001 - logged; the connection ends all the same
            _log.exception("a stream could not be closed")

    def _framed(self, piece: bytes) -> bytes:
        return b"%x\r\n%b\r\n" % (len(piece), piece) if self._is_chunked else piece

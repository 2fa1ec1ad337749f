"""One HTTP/2 connection of gRPC clients: calls of one message each, deadlines, its end.

h2 reads and writes the frames. Messages are inflated here, within the limit and in every coding of
the OpenTelemetry Collector's exporters: gRPC's own library ends a call whose coding it does not
know, and inflates before it looks at a limit.
"""

from __future__ import annotations

import asyncio
import logging
import time
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import h2.config
import h2.connection
import h2.errors
import h2.events
import h2.exceptions
import h2.settings

from otel_straggler.collector.access.roles import UNKNOWN
from otel_straggler.collector.ingest import codings
from otel_straggler.collector.ingest.grpc_messages import (
    PREFIX_BYTES,
    Headers,
    Refusal,
    framed,
    initial_headers,
    trailers_of,
)
from otel_straggler.collector.ingest.http_bodies import Incoming
from otel_straggler.collector.ingest.http_connection import peer_of
from otel_straggler.collector.ingest.http_messages import client_of
from otel_straggler.otlp.answers import Code

if TYPE_CHECKING:
    from otel_straggler.collector.ingest.grpc import Opened, OtlpGrpc
    from otel_straggler.collector.ingest.http_server import HttpServer

_log = logging.getLogger(__name__)

_CALLS: Final = 64
"""At once of one connection; further ones wait in the client."""
_WINDOW_BYTES: Final = 1024 * 1024
_GZIP_MAGIC: Final = b"\x1f\x8b"
"""No OTLP message begins so: field 3 with a wire type that does not exist."""
_HEAD_BYTES: Final = PREFIX_BYTES + len(_GZIP_MAGIC)
_MAX_RESETS: Final = 256
"""Calls that a client may cancel before they are answered, beyond those that are."""
_MAX_UNSENT_BYTES: Final = 1024 * 1024
_CODES: Final = {400: Code.INVALID_ARGUMENT, 413: Code.RESOURCE_EXHAUSTED, 503: Code.UNAVAILABLE}


class Call:
    """One call until it is answered.

    Attributes:
        fed_at: when bytes of it came last.
        is_whole: its message is complete, and it is our turn.
    """

    def __init__(self, number: int, opened: Opened) -> None:
        self.number = number
        self.opened = opened
        self.coding = opened.coding
        self.head = b""
        self.left_bytes = 0
        self.body: Incoming | None = None
        self.task: asyncio.Task[None] | None = None
        self.is_whole = False
        self.began_at = self.fed_at = time.monotonic()

    @property
    def is_theirs(self) -> bool:
        in_thread = self.body is not None and self.body.is_in_thread
        return not self.is_whole and not in_thread

    def drop(self) -> None:
        if self.task is not None:
            self.task.cancel()
        if self.body is not None:
            self.body.drop()


class GrpcConnection(asyncio.Protocol):
    """Reads calls and answers each when it is done; the server sees it as it sees one of HTTP/1.1.

    Attributes:
        client: see :func:`client_of`.
    """

    def __init__(self, server: HttpServer, app: OtlpGrpc, loop: asyncio.AbstractEventLoop) -> None:
        self._server = server
        self._app = app
        self._loop = loop
        self._transport: Any = None
        self._calls: dict[int, Call] = {}
        self._n_ended = self._n_reset = 0
        self._has_asked = self._is_ending = False
        self._since = time.monotonic()
        self.client = ""
        self._peer = UNKNOWN
        config = h2.config.H2Configuration(client_side=False, header_encoding="utf-8")
        self._h2 = h2.connection.H2Connection(config)
        codes = h2.settings.SettingCodes
        self._h2.local_settings = h2.settings.Settings(
            client=False,
            initial_values={
                codes.MAX_CONCURRENT_STREAMS: _CALLS,
                codes.MAX_HEADER_LIST_SIZE: server.limits.header_bytes,
                codes.INITIAL_WINDOW_SIZE: _WINDOW_BYTES,
            },
        )

    # --- the socket ------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        server = self._server
        self._peer = peer_of(transport)
        self.client = client_of(transport.get_extra_info("peername"))
        has_room = server.has_room(self.client)
        server.held.add(self)
        if server.is_closing or not has_room:
            self.abort()
            return
        server.evictions.add_new(self, self._loop)
        self._h2.initiate_connection()
        self._h2.increment_flow_control_window(_WINDOW_BYTES)
        self._flush()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's
        self._server.held.discard(self)
        self._server.evictions.remove(self)
        for call in tuple(self._calls.values()):
            call.drop()
        self._calls.clear()

    def data_received(self, data: bytes) -> None:
        if self._transport.is_closing():
            return
        try:
            for event in self._h2.receive_data(data):
                self._on_event(event)
        except h2.exceptions.ProtocolError:  # h2 has said goodbye
            self._flush()
            self._transport.close()
        self._flush()

    def _flush(self) -> None:
        data = self._h2.data_to_send()
        if data and not self._transport.is_closing():
            self._transport.write(data)
            if self.unsent_bytes > _MAX_UNSENT_BYTES:
                self.abort()

    def _end(self, code: int = h2.errors.ErrorCodes.NO_ERROR) -> None:
        """Say goodbye, and close what has been written."""
        if not self._transport.is_closing():
            self._h2.close_connection(code)
            self._flush()
            self._transport.close()

    # --- frames --------------------------------------------------------------------------------

    def _on_event(self, event: h2.events.Event) -> None:
        if isinstance(event, h2.events.RequestReceived):
            self._begin(event.stream_id, event.headers)
        elif isinstance(event, h2.events.DataReceived):
            size = event.flow_controlled_length
            call = self._calls.get(event.stream_id)
            if call is not None:
                self._feed(call, event.data)
            if size and event.stream_id is not None:
                self._acknowledge(size, event.stream_id)
        elif isinstance(event, h2.events.StreamEnded):
            call = self._calls.get(event.stream_id)
            if call is not None:
                self._complete(call)
        elif isinstance(event, h2.events.StreamReset):
            self._on_reset(event.stream_id)
        elif isinstance(event, h2.events.ConnectionTerminated):
            self._is_ending = True
            self._rest()

    def _acknowledge(self, size: int, number: int) -> None:
        try:
            self._h2.acknowledge_received_data(size, number)
        except h2.exceptions.ProtocolError:  # the call has ended meanwhile
            return

    def _on_reset(self, number: int) -> None:
        self._n_reset += 1
        call = self._calls.pop(number, None)
        if call is not None:
            call.drop()
        if self._n_reset > _MAX_RESETS + self._n_ended:
            self._end(h2.errors.ErrorCodes.ENHANCE_YOUR_CALM)
        self._rest()

    # --- calls ---------------------------------------------------------------------------------

    def _begin(self, number: int, headers: Any) -> None:
        self._has_asked = True
        if not self._calls:
            self._server.evictions.add_busy(self)
        opened = self._app.open(dict(headers), self._peer, is_closing=self._server.is_closing)
        if isinstance(opened, Refusal):
            self._send(number, trailers_of(opened), None)
            return
        self._calls[number] = Call(number, opened)

    def _feed(self, call: Call, data: bytes) -> None:
        call.fed_at = time.monotonic()
        if call.body is None:
            call.head += data
            if len(call.head) < _HEAD_BYTES:
                return
            data = self._begin_message(call)
        body = call.body
        if body is None or not data:
            return
        if len(data) > call.left_bytes:
            self._refuse(call, Refusal(Code.INVALID_ARGUMENT, "a call has one message"))
            return
        call.left_bytes -= len(data)
        if body.refusal is None:
            body.feed(data, _WINDOW_BYTES)

    def _begin_message(self, call: Call) -> bytes:
        """Read what is before the message; what there is of the message."""
        head, call.head = call.head, b""
        is_compressed = head[0] == 1
        size, limit = int.from_bytes(head[1:PREFIX_BYTES], "big"), self._app.max_bytes
        if size > limit:
            text = f"the message is larger than {limit} bytes"
            self._refuse(call, Refusal(Code.RESOURCE_EXHAUSTED, text))
            return b""
        is_gzip = head[PREFIX_BYTES:].startswith(_GZIP_MAGIC)
        coding = codings.GZIP if is_gzip else codings.IDENTITY
        call.coding = call.coding if is_compressed else coding
        call.left_bytes = size
        call.body = Incoming(
            self._server.bodies,
            limit,
            partial(self._changed, call),
            coding=call.coding,
            keep_raw=self._app.keep_raw,
        )
        return head[PREFIX_BYTES:]

    def _complete(self, call: Call) -> None:
        """The client has sent all."""
        if call.body is None and len(call.head) >= PREFIX_BYTES:
            self._feed(call, self._begin_message(call))
        if call.number not in self._calls:
            return
        body = call.body
        if body is None or call.left_bytes:
            what = "no message" if body is None else "an incomplete message"
            self._refuse(call, Refusal(Code.INVALID_ARGUMENT, f"the call had {what}"))
            return
        call.is_whole = True
        body.end()
        self._changed(call, body)

    def _changed(self, call: Call, body: Incoming) -> None:
        """A body is refused, or a thread is done with it for now."""
        call.fed_at = time.monotonic()
        if call.number not in self._calls or call.task is not None:
            return
        if body.refusal is not None:
            status, text = body.refusal
            retry_s = 1 if status == 503 else None
            self._refuse(call, Refusal(_CODES.get(status, Code.INTERNAL), text, retry_s))
            self._app.count_refused(call.opened.signal, "busy" if retry_s else "malformed")
            self._flush()
        elif call.is_whole and body.is_ready:
            call.task = self._loop.create_task(self._answer(call, body))

    async def _answer(self, call: Call, body: Incoming) -> None:
        result: bytes | Refusal
        try:
            result = await self._app.answer(call.opened, call.coding, body)
        except asyncio.CancelledError:
            return
        except Exception:  # noqa: BLE001 - logged; the server lives on
            _log.exception("a call could not be answered")
            result = Refusal(Code.INTERNAL, "internal error")
        if self._calls.pop(call.number, None) is None or self._transport.is_closing():
            return
        if isinstance(result, Refusal):
            self._send(call.number, trailers_of(result), None)
        else:
            self._send(call.number, [("grpc-status", "0")], framed(result))
        self._rest()
        self._flush()

    def _refuse(self, call: Call, refusal: Refusal) -> None:
        self._calls.pop(call.number, None)
        call.drop()
        self._send(call.number, trailers_of(refusal), None)
        self._rest()

    def _send(self, number: int, trailers: Headers, message: bytes | None) -> None:
        """The whole answer; what the client still sends of the call is not read any more."""
        connection, own = self._h2, initial_headers()
        self._n_ended += 1
        try:
            if message is None:
                connection.send_headers(number, [*own, *trailers], end_stream=True)
            elif len(message) > connection.local_flow_control_window(number):
                connection.reset_stream(number, h2.errors.ErrorCodes.FLOW_CONTROL_ERROR)
            else:
                connection.send_headers(number, own)
                connection.send_data(number, message)
                connection.send_headers(number, trailers, end_stream=True)
            if not connection.streams[number].closed:
                connection.reset_stream(number, h2.errors.ErrorCodes.NO_ERROR)
        except (h2.exceptions.ProtocolError, KeyError):  # it has ended meanwhile
            return

    def _rest(self) -> None:
        if self._calls or self._transport.is_closing():
            return
        self._since = time.monotonic()
        if self._is_ending or self._server.is_closing:
            self._end()
        else:
            self._server.evictions.add_idle(self)

    # --- time and eviction ------------------------------------------------------------------------

    def check_deadline(self, now_s: float) -> None:
        limits = self._server.limits
        allowed_s = limits.idle_timeout_s if self._has_asked else limits.header_timeout_s
        if not self._calls and now_s - self._since > allowed_s:
            self._end()
        for call in tuple(self._calls.values()):
            if not call.is_theirs:
                continue
            is_late = now_s - call.began_at > limits.request_timeout_s
            if is_late or now_s - call.fed_at > limits.silence_s:
                text = "the message did not come in time; send it again"
                self._refuse(call, Refusal(Code.UNAVAILABLE, text, 1))
                self._flush()

    @property
    def unsent_bytes(self) -> int:
        return int(self._transport.get_write_buffer_size())

    @property
    def has_asked_nothing(self) -> bool:
        return not self._has_asked and not self._transport.is_closing()

    @property
    def slow_since(self) -> float | None:
        """Since when the client has been sending a message; None while it is our turn."""
        if not self._calls or not all(call.is_theirs for call in self._calls.values()):
            return None
        return min(call.began_at for call in self._calls.values())

    def evict(self) -> None:
        self._server.held.discard(self)
        self._end()

    def close_if_idle(self) -> None:
        if not self._calls:
            self._end()

    def abort(self) -> None:
        self._transport.abort()

"""A receiver process: takes OTLP over HTTP, decodes spans, and asks the scoring process.

    python -m otel_straggler.collector.processes.receiver FD

``FD`` is one end of a Unix socket; the first frame on it says where to listen. The process ends
when it is told to, or when the other end is gone. A sender gets its answer only once the scoring
process has the rows.
"""

from __future__ import annotations

import asyncio
import dataclasses
import signal
import socket
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Mapping
from typing import Any

from otel_straggler.collector.admission import Admission
from otel_straggler.collector.loops import new_loop
from otel_straggler.collector.processes.frames import (
    HEAD,
    Json,
    Kind,
    dump,
    encode_request,
    encode_spans,
    frame,
    load,
    read_answer,
    read_head,
)
from otel_straggler.collector.settings import AttributeSettings, CollectorSettings, SpanSettings
from otel_straggler.errors import InputError
from otel_straggler.receive.handler import JSON, Answer, Request, Signal
from otel_straggler.receive.http import OtlpHttp, Polls
from otel_straggler.receive.http1 import HttpLimits, HttpServer
from otel_straggler.receive.http_messages import Heavy, Response
from otel_straggler.receive.http_messages import Request as HttpRequest
from otel_straggler.receive.tokens import POLLS, TokenGuard
from otel_straggler.wire.decode_spans import SpanDecoder
from otel_straggler.wire.span_rules import DecodedSpans

_COUNTS_EVERY_S = 0.25
_OFF_LOOP_BYTES = 1024 * 1024
_BUSY_S = 0.1
"""How long "busy" is believed without asking again."""
NOTHING, RAW, CONTENT = "nothing", "raw", "content"
"""What of a trace request goes along to be forwarded."""


def settings_for(settings: CollectorSettings, host: str, port: int) -> Json:
    """What a receiver must know."""
    receivers, forward = settings.receivers, settings.forward
    original = RAW if forward.is_on else NOTHING
    return {
        "host": host,
        "port": port,
        "body_bytes": receivers.max_body_bytes,
        "waiting_bytes": max(1, receivers.max_waiting_bytes // receivers.processes),
        "original": CONTENT if forward.is_sampled else original,
        "attributes": dataclasses.asdict(settings.attributes),
        "spans": dataclasses.asdict(settings.spans),
        "commands_token": settings.commands.token if settings.commands.enabled else "",
    }


class Relay:
    """Decodes spans here, and has everything else done by the scoring process.

    Args:
        settings: as :func:`settings_for` gives them.
        channel: to the scoring process.
    """

    def __init__(self, settings: Json, channel: Channel) -> None:
        attributes = AttributeSettings(**_tuples(settings["attributes"]))
        names = SpanSettings(**_tuples(settings["spans"]))
        self._decoder = SpanDecoder(attributes.aliases(), names.names())
        self._original = settings["original"]
        self._channel = channel
        self._asked = Admission(int(settings["waiting_bytes"]))
        self._busy_until_s: dict[Signal, float] = {}
        self.answers: Counter[tuple[str, str]] = Counter()

    def is_busy(self, signal: Signal) -> bool:
        return (
            self._channel.is_closed
            or self._asked.is_full(signal)
            or time.monotonic() < self._busy_until_s.get(signal, 0.0)
        )

    def handle(self, request: Request) -> Answer:
        raise NotImplementedError("a receiver process answers through ask()")

    async def ask(self, request: Request) -> Answer:
        """The scoring process's answer."""
        size = len(request.body)
        if not self._asked.reserve(size, request.signal):
            return self._own(request, "busy", "too much waits to be scored; send it again later")
        try:
            return await self._ask(request)
        except InputError as error:
            return self._own(request, "malformed", str(error))
        finally:
            self._asked.release(size)

    async def _ask(self, request: Request) -> Answer:
        if request.signal == "traces":
            spans = await self._decode(request)
            original = {RAW: request.raw_body, CONTENT: request.body}.get(self._original, b"")
            answer = self._channel.ask(Kind.SPANS, encode_spans(spans, request), original)
        else:
            answer = self._channel.ask(Kind.REQUEST, *encode_request(request))
        told = await answer
        if told is None:
            return self._own(request, "stopping", "the collector is shutting down")
        if told.status == "busy":
            self._busy_until_s[request.signal] = time.monotonic() + _BUSY_S
        return told

    async def _decode(self, request: Request) -> DecodedSpans:
        is_json = request.content_type == JSON
        decode = self._decoder.decode_json if is_json else self._decoder.decode
        if len(request.body) < _OFF_LOOP_BYTES:
            return decode(request.body)
        return await asyncio.get_running_loop().run_in_executor(None, decode, request.body)

    def _own(self, request: Request, status: Any, message: str) -> Answer:
        """An answer that the scoring process does not know of."""
        self.answers[request.signal, status] += 1
        return Answer(status=status, message=message)


def _tuples(values: Json) -> dict[str, Any]:
    return {name: tuple(value) for name, value in values.items()}


class RelayHttp(OtlpHttp):
    """The app behind the port."""

    def __init__(self, relay: Relay, *, keep_raw: bool, polls: Polls | None = None) -> None:
        super().__init__(relay, keep_raw=keep_raw, polls=polls)
        self._relay = relay

    def respond(self, request: HttpRequest) -> Response | Awaitable[Response] | Heavy:
        if self.is_poll(request.head):
            return super().respond(request)
        return self._respond(request)

    async def _respond(self, request: HttpRequest) -> Response:
        return self.worded(await self._relay.ask(self.otlp_of(request)), request.head)


class RelayPolls:
    """Has polls of ranks answered by the scoring process.

    Args:
        token: that they must show.
        channel: to the scoring process.
    """

    def __init__(self, token: str, channel: Channel) -> None:
        self._guard = TokenGuard(token, POLLS)
        self._channel = channel

    def refusal(self, headers: Mapping[str, str]) -> tuple[int, str] | None:
        return self._guard.refusal(headers)

    async def answer(self, query: str) -> bytes:
        told = await self._channel.ask(Kind.POLL, dump({"query": query}), b"")
        return b'{"commands":[]}' if told is None else told.message.encode()


class Channel(asyncio.Protocol):
    """The Unix socket to the scoring process. Everything is on the event loop.

    Attributes:
        settings, stopped: set when the scoring process has said so.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._buffer = bytearray()
        self._waiting: dict[int, asyncio.Future[Answer | None]] = {}
        self._number = 0
        self._transport: Any = None
        self.settings: asyncio.Future[Json] = loop.create_future()
        self.stopped: asyncio.Future[float] = loop.create_future()
        self.lost: asyncio.Future[None] = loop.create_future()

    @property
    def is_closed(self) -> bool:
        return self.lost.done() or self._transport.is_closing()

    def ask(self, kind: Kind, part: bytes, original: bytes) -> asyncio.Future[Answer | None]:
        """Send a request; the answer is None if the other end is gone."""
        answer: asyncio.Future[Answer | None] = self._loop.create_future()
        if self.is_closed:
            answer.set_result(None)
            return answer
        self._number = (self._number + 1) % 2**32
        self._waiting[self._number] = answer
        self._transport.write(frame(kind, self._number, part, original))
        return answer

    def tell(self, kind: Kind, part: bytes = b"") -> None:
        if not self.is_closed:
            self._transport.write(frame(kind, 0, part))

    def close(self) -> None:
        """What was written is still sent."""
        self._transport.close()

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while len(self._buffer) >= HEAD.size:
            kind, number, size, _ = read_head(bytes(self._buffer[: HEAD.size]))
            end = HEAD.size + size
            if len(self._buffer) < end:
                return
            part = bytes(self._buffer[HEAD.size : end])
            del self._buffer[:end]
            self._take(kind, number, part)

    def _take(self, kind: Kind, number: int, part: bytes) -> None:
        if kind == Kind.ANSWER:
            answer = self._waiting.pop(number, None)
            if answer is not None and not answer.done():
                answer.set_result(read_answer(part))
        elif kind == Kind.SETTINGS:
            self.settings.set_result(load(part))
        elif kind == Kind.STOP and not self.stopped.done():
            self.stopped.set_result(float(load(part)["deadline_s"]))

    def connection_lost(self, _exc: Exception | None) -> None:
        self.lost.set_result(None)
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_result(None)
        self._waiting.clear()
        if not self.settings.done():
            self.settings.cancel()
        if not self.stopped.done():
            self.stopped.set_result(0.0)


async def serve(fd: int) -> None:
    """Listen until told to stop, or until the scoring process is gone."""
    loop = asyncio.get_running_loop()
    channel = Channel(loop)
    await loop.create_unix_connection(lambda: channel, sock=socket.socket(fileno=fd))
    try:
        settings = await channel.settings
    except asyncio.CancelledError:
        return
    relay = Relay(settings, channel)
    token = settings["commands_token"]
    polls = RelayPolls(token, channel) if token else None
    relay_http = RelayHttp(relay, keep_raw=settings["original"] == RAW, polls=polls)
    app: Any = relay_http
    limits = HttpLimits(
        body_bytes=settings["body_bytes"], buffered_bytes=max(settings["waiting_bytes"], 1)
    )
    server = HttpServer(app, limits)
    await server.start(settings["host"], settings["port"], is_shared=True)
    channel.tell(Kind.READY)
    told = _Told(channel, relay_http, relay, server)
    counting = loop.create_task(told.keep_telling())
    deadline_s = await channel.stopped
    await server.stop(deadline_s)
    counting.cancel()
    told.tell()
    channel.close()
    await channel.lost


class _Told:
    """Counts of answers, of which the scoring process is told what is new."""

    def __init__(self, channel: Channel, app: RelayHttp, relay: Relay, server: HttpServer) -> None:
        self._channel = channel
        self._server = server
        self._cut = 0
        self._app = app
        self._relay = relay
        self._http: Counter[tuple[str, int]] = Counter()
        self._answers: Counter[tuple[str, str]] = Counter()

    async def keep_telling(self) -> None:
        while True:
            await asyncio.sleep(_COUNTS_EVERY_S)
            self.tell()

    def tell(self) -> None:
        http, answers = Counter(self._app.answers), Counter(self._relay.answers)
        new_http, new_answers = http - self._http, answers - self._answers
        new_cut = self._server.waiting.cut - self._cut
        if not new_http and not new_answers and not new_cut:
            return
        self._http, self._answers, self._cut = http, answers, self._cut + new_cut
        news = {
            "http": [[*key, count] for key, count in new_http.items()],
            "answers": [[*key, count] for key, count in new_answers.items()],
            "cut": new_cut,
        }
        self._channel.tell(Kind.COUNTS, dump(news))


def main() -> None:
    """The process. Signals are the business of the scoring process, which then says stop."""
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):
        if hasattr(signal, name):  # Windows has no SIGHUP
            signal.signal(getattr(signal, name), signal.SIG_IGN)
    loop = new_loop()
    asyncio.set_event_loop(loop)
    try:
        loop.run_until_complete(serve(int(sys.argv[1])))
        loop.run_until_complete(loop.shutdown_default_executor())
    finally:
        loop.close()


if __name__ == "__main__":
    main()

"""OTLP over gRPC: the same intake as over HTTP, on a server and an event loop of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final, cast

from otel_straggler.collector.access.guard import Guard
from otel_straggler.collector.access.roles import Peer, Principal
from otel_straggler.collector.access.tls import ServerTls
from otel_straggler.collector.ingest import codings
from otel_straggler.collector.ingest.grpc_connection import GrpcConnection
from otel_straggler.collector.ingest.grpc_messages import (
    METHODS,
    Refusal,
    coding_of,
    problem_of_head,
)
from otel_straggler.collector.ingest.http_bodies import Incoming, OffLoop
from otel_straggler.collector.ingest.http_messages import App, HttpLimits
from otel_straggler.collector.ingest.http_server import HttpServer
from otel_straggler.collector.ingest.intake import (
    NOT_STORED,
    PROTOBUF,
    Answer,
    Intake,
    Request,
    is_stored_soon,
)
from otel_straggler.collector.ingest.loop_thread import LoopThread
from otel_straggler.otlp.answers import Code, Signal, success
from otel_straggler.otlp.decoder import SlowError

_THREADS: Final = 4
"""Messages handled at once; slow ones have all but one."""
_SLOW_BYTES: Final = 64 * 1024
_CONNECTIONS: Final = 2048
_HANDSHAKE_S: Final = 5.0
"""For a client to begin a first call."""
_IDLE_S: Final = 300.0
"""Longer than any pause between two requests of a rank; clients reconnect silently."""
_SILENCE_S: Final = 10.0
_BUFFERED_BYTES: Final = 256 * 1024 * 1024
_GRACE_S: Final = 1.0
_CODE_OF: Final = {
    "malformed": Code.INVALID_ARGUMENT,
    "forbidden": Code.PERMISSION_DENIED,
    "limited": Code.RESOURCE_EXHAUSTED,
}
_RETRIED: Final = (Code.UNAVAILABLE, Code.RESOURCE_EXHAUSTED)
"""With the time to wait, which makes the second one retryable."""


@dataclass(frozen=True, slots=True)
class Opened:
    """A call that may go on: ``coding`` of a compressed message, who ``sender`` is, and where."""

    signal: Signal
    coding: str
    sender: Principal
    peer: Peer


class OtlpGrpc:
    """What calls mean.

    Args:
        refused: called with signal and answer for each call refused before the handler.
    """

    def __init__(
        self,
        handler: Intake,
        max_bytes: int,
        refused: Callable[[Signal, str], None],
        *,
        keep_raw: bool,
        guard: Guard | None = None,
    ) -> None:
        self._handler = handler
        self._guard = guard or Guard()
        self.max_bytes = max_bytes
        self.count_refused = refused
        self.keep_raw = keep_raw
        self.fixed_headers: dict[str, str] = {}

    def open(self, headers: Mapping[str, str], peer: Peer, *, is_closing: bool) -> Opened | Refusal:
        """A call, or why it is refused before its message."""
        problem = problem_of_head(headers)
        if problem is not None:
            return problem
        signal, coding = METHODS[headers[":path"]], coding_of(headers)
        sender = self._admitted(signal, headers, peer)
        if isinstance(sender, Refusal):
            self.count_refused(signal, "forbidden")
            return sender
        if isinstance(coding, Refusal):
            self.count_refused(signal, "malformed")
            return coding
        if is_closing or self._handler.is_busy(signal):
            self.count_refused(signal, "stopping" if is_closing else "busy")
            text = "not able to take requests now; send it again later"
            return Refusal(Code.UNAVAILABLE, text, 1)
        return Opened(signal, coding, sender, peer)

    def _admitted(
        self, signal: Signal, headers: Mapping[str, str], peer: Peer
    ) -> Principal | Refusal:
        """Who calls, if they may. No browser speaks gRPC; what carries an Origin is no client."""
        authorization = headers.get("authorization", "")
        who = self._guard.identify(peer, authorization)
        refused = self._guard.refusal_of(who, "ingest", peer, f"gRPC {signal}", authorization)
        if refused is not None:
            is_unknown = refused.status == 401
            code = Code.UNAUTHENTICATED if is_unknown else Code.PERMISSION_DENIED
            return Refusal(code, refused.message)
        if "origin" in headers:
            self._guard.audit.refused(who, peer, f"gRPC {signal}", 403, "origin")
            return Refusal(Code.PERMISSION_DENIED, "a web page may not send telemetry")
        return who

    async def answer(self, opened: Opened, coding: str, body: Incoming) -> bytes | Refusal:
        """The answer to a complete message, made in a thread."""
        signal = opened.signal
        content, original = body.contents()
        request = Request(
            signal=signal,
            content_type=PROTOBUF,
            body=content,
            raw_body=original,
            content_encoding="gzip" if coding == codings.GZIP and self.keep_raw else "",
            sender=opened.sender,
        )
        try:
            quick = partial(self._handler.handle, request, _SLOW_BYTES)
            answer = await body.handle_in_thread(quick, is_slow=False)
        except SlowError:
            slow = partial(self._handler.handle, request)
            answer = await body.handle_in_thread(slow, is_slow=True)
        if answer is None:
            return Refusal(Code.UNAVAILABLE, "too much is being received; send it again later", 1)
        if answer.status == "forbidden":
            who, what = opened.sender, f"gRPC {signal}"
            audit = self._guard.audit
            audit.refused(who, opened.peer, what, 403, answer.reason, answer.run_id)
        if answer.stored is not None and not await is_stored_soon(answer.stored):
            return Refusal(Code.UNAVAILABLE, NOT_STORED, 1)
        return _result_of(signal, answer)


def _result_of(signal: Signal, answer: Answer) -> bytes | Refusal:
    if answer.status == "ok":
        return success(signal, answer.rejected, answer.message, is_json=False)
    code = _CODE_OF.get(answer.status, Code.UNAVAILABLE)
    retry_after_s = answer.retry_after_s if code in _RETRIED else None
    return Refusal(code, answer.message, retry_after_s)


class GrpcServer:
    """The OTLP/gRPC services.

    Args:
        max_bytes: largest message, on the wire and decompressed.
        buffered_bytes: of incomplete messages; beyond it the largest is refused.
        connections: open at once; beyond it one of the client that has the most is closed.
        handshake_s: for a new connection, until its first call.
        silence_s: within a message.
        keep_raw: keep gzip as received, for forwarding.
        refused: called with signal and answer for each request refused before the handler.
        guard: who may send; all methods need the role ingest.
        tls: of HTTP/2; None: in the clear.
    """

    def __init__(
        self,
        handler: Intake,
        *,
        max_bytes: int,
        buffered_bytes: int = _BUFFERED_BYTES,
        connections: int = _CONNECTIONS,
        handshake_s: float = _HANDSHAKE_S,
        silence_s: float = _SILENCE_S,
        keep_raw: bool = True,
        refused: Callable[[Signal, str], None] = lambda *_: None,
        guard: Guard | None = None,
        tls: ServerTls | None = None,
    ) -> None:
        limits = HttpLimits(
            body_bytes=max_bytes,
            buffered_bytes=buffered_bytes,
            connections=connections,
            header_timeout_s=handshake_s,
            silence_s=silence_s,
            idle_timeout_s=_IDLE_S,
        )
        app = OtlpGrpc(handler, max_bytes, refused, keep_raw=keep_raw, guard=guard)
        self._server = HttpServer(
            cast("App", app),
            limits,
            tls,
            connect=lambda server, loop: GrpcConnection(server, app, loop),
        )
        self._server.bodies.off_loop = OffLoop(_THREADS)
        self._loop = LoopThread("otlp-grpc")

    @property
    def connections_cut(self) -> int:
        return self._server.evictions.count

    def start(self, host: str, port: int) -> tuple[str, int]:
        """Listen; returns the address with its real port.

        Raises:
            OSError: the address is taken.
        """
        self._loop.start()
        try:
            bound: tuple[str, int] = self._loop.call(self._server.start(host, port), None)
        except BaseException:
            self._loop.stop(_GRACE_S)
            raise
        return bound

    def stop(self, deadline_s: float) -> None:
        """Accept nothing more and let running calls finish. Safe to call twice."""
        if self._loop.is_running:
            try:
                self._loop.call(self._server.stop(deadline_s), deadline_s + _GRACE_S)
            finally:
                self._loop.stop(_GRACE_S)

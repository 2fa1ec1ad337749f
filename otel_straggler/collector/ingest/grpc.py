"""OTLP over gRPC: generic handlers on raw bytes, decoded as over HTTP.

gRPC checks its size limit before it inflates, so a small message could fill the memory: its
decompression is off, and messages are inflated here, within the limit.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any, NoReturn, TypeVar

import grpc

from otel_straggler import semconv
from otel_straggler.collector.ingest.body import inflate
from otel_straggler.collector.ingest.codings import GZIP, BadBodyError, BodyTooLargeError
from otel_straggler.collector.ingest.intake import PROTOBUF, Answer, Intake, Request
from otel_straggler.otlp.answers import Code, Signal, success

_log = logging.getLogger(__name__)

_METHODS: dict[str, Signal] = {
    "/opentelemetry.proto.collector.trace.v1.TraceService/Export": "traces",
    "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export": "metrics",
    "/opentelemetry.proto.collector.logs.v1.LogsService/Export": "logs",
}
_GZIP_MAGIC = b"\x1f\x8b"
"""No OTLP message begins so: field 3 with a wire type that does not exist."""
_AT_WORK = 4
"""Messages inflated and handled at once."""
_THREADS = 16
"""Calls at once; each may have a message of the maximum size."""
_SLOW_S = 1.0
"""For a message to come, where other calls wait for a thread."""
_MESSAGE_S = 60.0
"""For a message to come, as over HTTP."""
_STREAMS = 64
"""Calls at once of one client; further ones wait in the client."""
_CONNECTIONS = 2048
_HANDSHAKE_S = 5.0
"""For a client to begin. With gRPC's default of two minutes some thousand silent ones would hold
all connections."""
_IDLE_S = 300.0
"""Longer than any pause between two requests of a rank; clients reconnect silently."""
_HAND_OVER_S = 1.0
"""Beyond a deadline, for cancelled calls."""
_STOPPING = Answer(status="stopping", message="the collector is shutting down")
_BUSY = Answer(status="busy", message="not able to take requests now; send it again later")


class GrpcServer:
    """The OTLP/gRPC services.

    Args:
        max_bytes: largest message, on the wire and decompressed.
        connections: open at once; further ones are closed.
        handshake_s: for a new connection.
        slow_s: for a message to come, where other calls wait.
        refused: called with signal and answer for each request refused before the handler.
    """

    def __init__(
        self,
        handler: Intake,
        *,
        max_bytes: int,
        connections: int = _CONNECTIONS,
        handshake_s: float = _HANDSHAKE_S,
        slow_s: float = _SLOW_S,
        refused: Callable[[Signal, str], None] = lambda *_: None,
    ) -> None:
        self._handler = handler
        self._max_bytes = max_bytes
        self._connections = connections
        self._handshake_s = handshake_s
        self._slow_s = slow_s
        self._refused = refused
        self._at_work = threading.BoundedSemaphore(_AT_WORK)
        self._server: Any = None
        self._threads: CallThreads | None = None

    def start(self, host: str, port: int) -> tuple[str, int]:
        """Listen; returns the address with its real port.

        Raises:
            OSError: the address is taken.
        """
        self._threads = CallThreads(_THREADS, slow_s=self._slow_s, max_s=_MESSAGE_S)
        try:
            address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
            return host, self._listen(address)
        except BaseException:
            self._threads.end()
            raise

    def _listen(self, address: str) -> int:
        self._server = grpc.server(
            self._threads,
            handlers=[_Handlers(self._export)],
            options=[
                ("grpc.max_receive_message_length", self._max_bytes),
                ("grpc.per_message_decompression", 0),
                ("grpc.so_reuseport", 0),
                ("grpc.max_concurrent_streams", _STREAMS),
                ("grpc.max_metadata_size", 32 * 1024),
                ("grpc.max_allowed_incoming_connections", self._connections),
                ("grpc.server_handshake_timeout_ms", int(self._handshake_s * 1000)),
                ("grpc.max_connection_idle_ms", int(_IDLE_S * 1000)),
            ],
        )
        try:
            bound: int = self._server.add_insecure_port(address)
        except RuntimeError as error:
            raise OSError(str(error)) from error
        if bound == 0:
            raise OSError(f"cannot listen on {address}")
        self._server.start()
        return bound

    def stop(self, deadline_s: float) -> None:
        """Accept nothing more and let running calls finish. Safe to call twice."""
        server, self._server = self._server, None
        if server is not None:
            server.stop(deadline_s).wait(deadline_s + _HAND_OVER_S)
        threads, self._threads = self._threads, None
        if threads is not None:
            threads.end()

    def _export(
        self, signal: Signal, messages: Iterator[bytes], context: grpc.ServicerContext
    ) -> bytes:
        """Answer one call; as a stream method it starts before its message has come."""
        context.send_initial_metadata(((semconv.SCORER_HEADER, semconv.WIRE_VERSION),))
        threads = self._threads
        if threads is None or self._handler.is_busy(signal):
            answer = _STOPPING if threads is None else _BUSY
            self._refused(signal, answer.status)
            _refuse(context, answer)
        with threads.waiting(context):
            message = next(messages, None)
        if message is None:
            _abort(context, Code.INVALID_ARGUMENT, "the call had no message")
        with self._at_work:
            return self._answer(signal, message, context)

    def _answer(self, signal: Signal, message: bytes, context: grpc.ServicerContext) -> bytes:
        is_gzip = message.startswith(_GZIP_MAGIC)
        try:
            payload = inflate(message, self._max_bytes, GZIP) if is_gzip else message
        except BodyTooLargeError:
            self._refused(signal, "malformed")
            text = f"the message is larger than {self._max_bytes} bytes"
            _abort(context, Code.RESOURCE_EXHAUSTED, text)
        except BadBodyError as error:
            self._refused(signal, "malformed")
            _abort(context, Code.INVALID_ARGUMENT, str(error))
        request = Request(
            signal=signal,
            content_type=PROTOBUF,
            body=payload,
            raw_body=message,
            content_encoding="gzip" if is_gzip else "",
        )
        answer = self._ask(request, context)
        if answer.status == "malformed":
            _abort(context, Code.INVALID_ARGUMENT, answer.message)
        if answer.status != "ok":
            _refuse(context, answer)
        return success(signal, answer.rejected, answer.message, is_json=False)

    def _ask(self, request: Request, context: grpc.ServicerContext) -> Answer:
        try:
            return self._handler.handle(request)
        except Exception:  # noqa: BLE001 - logged; the server lives on
            _log.exception("a request could not be answered")
            _abort(context, Code.INTERNAL, "internal error")


def _refuse(context: grpc.ServicerContext, answer: Answer) -> NoReturn:
    """UNAVAILABLE with RetryInfo: in the status, as in OTLP, and where gRPC looks."""
    from google.protobuf.duration_pb2 import Duration
    from google.rpc.error_details_pb2 import RetryInfo
    from google.rpc.status_pb2 import Status

    retry = RetryInfo(retry_delay=Duration(seconds=answer.retry_after_s))
    status = Status(code=int(Code.UNAVAILABLE), message=answer.message)
    status.details.add().Pack(retry)
    context.set_trailing_metadata(
        (
            ("grpc-status-details-bin", status.SerializeToString()),
            ("google.rpc.retryinfo-bin", retry.SerializeToString()),  # where Python's SDK looks
            ("grpc-retry-pushback-ms", str(answer.retry_after_s * 1000)),
        )
    )
    _abort(context, Code.UNAVAILABLE, answer.message)


def _abort(context: grpc.ServicerContext, code: Code, message: str) -> NoReturn:
    context.abort(grpc.StatusCode[code.name], message)
    raise AssertionError  # abort raises


class _Handlers(grpc.GenericRpcHandler):  # type: ignore[misc]
    def __init__(self, export: Callable[[Signal, Any, Any], bytes]) -> None:
        self._by_method = {
            method: grpc.stream_unary_rpc_method_handler(partial(export, signal))
            for method, signal in _METHODS.items()
        }

    def service(self, call: Any) -> Any:
        return self._by_method.get(call.method)


_Result = TypeVar("_Result")
_CHECK_S = 0.1


class CallThreads(ThreadPoolExecutor):
    """The threads of a gRPC server. A call whose message has not come occupies one; some that never
    send one would keep everybody else out, so they are cancelled.

    Args:
        slow_s: after which a call may be cancelled where others wait for a thread.
        max_s: after which it is cancelled in any case.
    """

    def __init__(self, threads: int, *, slow_s: float, max_s: float) -> None:
        super().__init__(threads, thread_name_prefix="otlp-grpc")
        self._max_calls = threads
        self._slow_s, self._max_s = slow_s, max_s
        self._calls = 0
        self._since: dict[grpc.ServicerContext, float] = {}
        self._lock = threading.Lock()
        self._has_ended = threading.Event()
        self._watch = threading.Thread(
            target=self._cancel_late, name="otlp-grpc-watch", daemon=True
        )
        self._watch.start()

    def submit(self, fn: Callable[..., _Result], /, *args: Any, **kwargs: Any) -> Future[_Result]:
        with self._lock:
            self._calls += 1
        try:
            future = super().submit(fn, *args, **kwargs)
        except BaseException:
            self._end_one()
            raise
        future.add_done_callback(self._end_one)
        return future

    @property
    def waited_for(self) -> int:
        return len(self._since)

    @contextmanager
    def waiting(self, call: grpc.ServicerContext) -> Iterator[None]:
        with self._lock:
            self._since[call] = time.monotonic()
        try:
            yield
        finally:
            with self._lock:
                del self._since[call]

    def end(self) -> None:
        self._has_ended.set()
        self.shutdown(wait=False)

    def _end_one(self, _: Any = None) -> None:
        with self._lock:
            self._calls -= 1

    def _cancel_late(self) -> None:
        while not self._has_ended.wait(_CHECK_S):
            for call in self._late(time.monotonic()):
                call.cancel()

    def _late(self, now_s: float) -> list[grpc.ServicerContext]:
        """Calls to cancel: all that take too long, and one for each that waits for a thread."""
        with self._lock:
            n_waiting = max(0, self._calls - self._max_calls)
            slow = [call for call, since in self._since.items() if now_s - since > self._slow_s]
            gone = [call for call in slow if now_s - self._since[call] > self._max_s]
        return slow[: max(n_waiting, len(gone))]  # in the order in which they began

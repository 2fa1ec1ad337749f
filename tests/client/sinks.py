"""Sinks for both transports that behave alike, so that one test can hold for both."""

from __future__ import annotations

import contextlib
import gzip
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
from google.protobuf.duration_pb2 import Duration
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status

from otel_straggler import semconv
from otel_straggler.config import Endpoint, OtlpProtocol
from otel_straggler.testing import Behaviour, CapturedRequest, CapturedRequests

TRACES = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
METRICS = "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export"
_PATHS = {TRACES: "/v1/traces", METRICS: "/v1/metrics"}
_CODES = {
    301: grpc.StatusCode.FAILED_PRECONDITION,
    400: grpc.StatusCode.INVALID_ARGUMENT,
    401: grpc.StatusCode.UNAUTHENTICATED,
    404: grpc.StatusCode.UNIMPLEMENTED,
    413: grpc.StatusCode.RESOURCE_EXHAUSTED,
    429: grpc.StatusCode.RESOURCE_EXHAUSTED,
    500: grpc.StatusCode.INTERNAL,
    502: grpc.StatusCode.ABORTED,
    503: grpc.StatusCode.UNAVAILABLE,
    504: grpc.StatusCode.DEADLINE_EXCEEDED,
}
"""What a gRPC server says where an HTTP server gives this status."""
_GZIP_MAGIC = b"\x1f\x8b"


class HttpSink(CapturedRequests):
    """A sink over HTTP."""

    protocol: OtlpProtocol = "http/protobuf"

    def endpoint(self, signal: str, **more: Any) -> Endpoint:
        return Endpoint(url=f"{self.url}/v1/{signal}", **more)


class GrpcSink(CapturedRequests):
    """A sink over gRPC, with the same behaviour.

    In front of it stands a relay, which can drop connections as the HTTP sink does.
    """

    protocol: OtlpProtocol = "grpc"

    def __init__(self) -> None:
        self.behaviour = Behaviour()
        self.requests: list[CapturedRequest] = []
        self._changed = threading.Condition()
        self._grpc_server = grpc.server(
            ThreadPoolExecutor(4), handlers=[_Handlers(self)], options=[("grpc.so_reuseport", 0),
            ("grpc.per_message_decompression", 0)],
        )  # fmt: skip
        port = self._grpc_server.add_insecure_port("127.0.0.1:0")
        self._grpc_server.start()
        self._relay = Relay(port, lambda: self.behaviour.drops_connections)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._relay.port}"

    def endpoint(self, signal: str, **more: Any) -> Endpoint:
        return Endpoint(url=self.url, protocol="grpc", **more)

    def close(self) -> None:
        self._relay.close()
        self._grpc_server.stop(0).wait()

    def answer(self, path: str, message: bytes, context: grpc.ServicerContext) -> bytes:
        behaviour = self.behaviour
        time.sleep(behaviour.delay_s)
        statuses = behaviour.next_statuses
        status = statuses.pop(0) if statuses else behaviour.status
        self.remember(_captured(path, message, context, status))
        if behaviour.is_scorer:
            context.send_initial_metadata(((semconv.SCORER_HEADER, semconv.WIRE_VERSION),))
        if status != 200:
            context.set_trailing_metadata(_details(status, behaviour.headers))
            context.abort(_CODES[status], "as told")
        return behaviour.body


class _Handlers(grpc.GenericRpcHandler):  # type: ignore[misc]
    def __init__(self, sink: GrpcSink) -> None:
        self._sink = sink

    def service(self, call: Any) -> Any:
        path = _PATHS[call.method]
        return grpc.unary_unary_rpc_method_handler(
            lambda message, context: self._sink.answer(path, message, context)
        )


def _captured(path: str, message: bytes, context: Any, status: int) -> CapturedRequest:
    headers = dict(context.invocation_metadata())
    if message.startswith(_GZIP_MAGIC):
        headers["content-encoding"] = "gzip"
        message = gzip.decompress(message)
    return CapturedRequest(path, headers, message, status)


def _details(status: int, headers: dict[str, str]) -> tuple[tuple[str, bytes], ...]:
    """RetryInfo where HTTP would say Retry-After, and for 429, which means nothing else."""
    if "Retry-After" not in headers and status != 429:
        return ()
    delay = Duration(seconds=int(headers.get("Retry-After", "0")))
    reported = Status(code=14)
    reported.details.add().Pack(RetryInfo(retry_delay=delay))
    return (("grpc-status-details-bin", reported.SerializeToString()),)


class Relay:
    """Passes bytes to a port of this machine, unless told to drop connections."""

    def __init__(self, to_port: int, drops: Any = lambda: False) -> None:
        self._to_port = to_port
        self._drops = drops
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._open: list[socket.socket] = []
        threading.Thread(target=self._accept, name="relay", daemon=True).start()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for side in self._open:
            _shut(side)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if self._drops():
                client.close()
                continue
            server = socket.create_connection(("127.0.0.1", self._to_port))
            self._open += [client, server]
            for one, other in ((client, server), (server, client)):
                threading.Thread(target=self._pass, args=(one, other), daemon=True).start()

    def _pass(self, one: socket.socket, other: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while (data := one.recv(65_536)) and not self._drops():
                other.sendall(data)
        _shut(one)
        _shut(other)


def _shut(side: socket.socket) -> None:
    with contextlib.suppress(OSError):
        side.shutdown(socket.SHUT_RDWR)
    side.close()

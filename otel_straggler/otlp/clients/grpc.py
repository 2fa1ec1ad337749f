"""The same client over gRPC: raw OTLP bytes to one method, no generated stubs.

gRPC's core and fork (grpc#13873 and its kin), in a training process whose DataLoader forks:

- The exporter's thread is the only one that calls into a channel, and a forked child has no such
  thread. The session is kept there, so that the channel is not even collected.
- The core's own fork handlers are switched off while it is loaded and initialised. With them, as is
  its default under Linux, processes that forked 40 workers while calls were running died of SIGSEGV
  or hung in 11 of 30 tries (grpcio 1.70.0), and up to 3 of 60 workers died (1.85.1); with
  ``GRPC_ENABLE_FORK_SUPPORT=1`` the parent hung. Without them: 0 of 60 tries each with 1.60.0 and
  1.85.1, 0 of 120 with 1.70.0, and nothing on standard error.
- A process that has loaded gRPC itself, with those handlers, is refused, as is a forked child of
  one that has had a channel: a channel of its own hung there always, or crashed.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any, Final
from urllib.parse import urlsplit

from google.protobuf.message import DecodeError
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status

from otel_straggler.config import Compression
from otel_straggler.errors import ConfigError
from otel_straggler.otlp.clients.client import NO_ANSWER, TOO_MANY_REQUESTS, Response
from otel_straggler.otlp.clients.http import CONNECT_TIMEOUT_S, MAX_ANSWER_BYTES
from otel_straggler.regular_files import read_small
from otel_straggler.secret import reveal

EXPORT_METHODS: Final = {
    "traces": "/opentelemetry.proto.collector.trace.v1.TraceService/Export",
    "metrics": "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export",
    "logs": "/opentelemetry.proto.collector.logs.v1.LogsService/Export",
}
_MAX_PEM_BYTES: Final = 16 << 20
_STATUS: Final = {
    "OK": 200,
    "INVALID_ARGUMENT": 400,
    "FAILED_PRECONDITION": 400,
    "UNAUTHENTICATED": 401,
    "PERMISSION_DENIED": 403,
    "NOT_FOUND": 404,
    "UNIMPLEMENTED": 404,
    "ALREADY_EXISTS": 409,
    "RESOURCE_EXHAUSTED": 413,
    "UNKNOWN": 500,
    "INTERNAL": 500,
    "CANCELLED": 503,
    "ABORTED": 503,
    "OUT_OF_RANGE": 503,
    "UNAVAILABLE": 503,
    "DATA_LOSS": 503,
    "DEADLINE_EXCEEDED": 504,
}
"""The HTTP status that means the same: those that OTLP calls retryable are 503 and 504."""
_OPTIONS: Final = (
    # A connection of our own: neither its waits nor its end are shared with the user's channels.
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.min_reconnect_backoff_ms", round(CONNECT_TIMEOUT_S * 1000)),
    ("grpc.max_receive_message_length", MAX_ANSWER_BYTES),
)
_MAX_TEXT = 300
_FORK_SUPPORT = "GRPC_ENABLE_FORK_SUPPORT"
_OFF = frozenset({"0", "false", "no", "off"})
_CORE = "grpc._cython.cygrpc"
_users: set[int] = set()
"""Process ids that have had a channel of ours: this process, and those it was forked from."""


def why_unusable() -> str:
    """Why gRPC cannot be used in this process, with the way out; empty if it can."""
    if find_spec("grpc") is None:
        return "grpcio is not installed. Run: pip install 'otel-straggler[grpc]'"
    if _users - {os.getpid()}:
        return (
            "the process that forked this one uses gRPC, whose core does not work in a child. "
            "Start ranks with torchrun or the start method 'spawn', or use http/protobuf"
        )
    if not _users and _has_fork_handlers():
        return (
            "gRPC's fork handlers are on, with which forked workers of a DataLoader can crash. "
            f"Start the program with {_FORK_SUPPORT}=0, or use http/protobuf"
        )
    return ""


def _has_fork_handlers() -> bool:
    """Whether gRPC is configured to use them, or was loaded by others and not configured."""
    value = os.environ.get(_FORK_SUPPORT, "").lower()
    return value not in _OFF and (bool(value) or _CORE in sys.modules)


def _load() -> Any:
    """gRPC, without its fork handlers. The Python part reads the variable when it is loaded, the
    core when the first channel is made."""
    is_reported = _FORK_SUPPORT in os.environ
    os.environ.setdefault(_FORK_SUPPORT, "0")
    try:
        import grpc

        grpc.insecure_channel("127.0.0.1:1", options=_OPTIONS).close()  # connects to nobody
    finally:
        if not is_reported:
            del os.environ[_FORK_SUPPORT]
    return grpc


class GrpcClient:
    """Calls one method of one server over a kept connection. For one thread at a time.

    Args:
        url: ``http://host:port`` in the clear, ``https://host:port`` for TLS.
        method: full name of a unary method.
        timeout_s: for one request as a whole, connecting included.
        ca_file: PEM file of the authorities to trust instead of gRPC's own list.
        client_cert_file, client_key_file: for mutual TLS; the key may be in the first.

    Raises:
        ConfigError: gRPC cannot be used here.
    """

    def __init__(
        self,
        url: str,
        method: str,
        *,
        headers: Mapping[str, str] | None = None,
        timeout_s: float = 10.0,
        compression: Compression = "none",
        ca_file: str | None = None,
        client_cert_file: str | None = None,
        client_key_file: str | None = None,
    ) -> None:
        if reason := why_unusable():
            raise ConfigError(reason + ".")
        _users.add(os.getpid())
        grpc = _load()  # now: a fork while a thread imports leaves the child half of it
        self.url = url
        self.timeout_s = timeout_s
        self._grpc = grpc
        self._method = method
        self._metadata = tuple((k.lower(), reveal(v)) for k, v in (headers or {}).items())
        is_gzip = compression == "gzip"
        self._compression = grpc.Compression.Gzip if is_gzip else grpc.Compression.NoCompression
        self._ca_file = ca_file
        self._client_cert_file = client_cert_file
        self._client_key_file = client_key_file or client_cert_file
        self._channel: Any = None
        self._call: Any = None

    def post(
        self,
        body: bytes,
        *,
        content_type: str,  # noqa: ARG002  gRPC has one
        content_encoding: str | None = None,
        timeout_s: float | None = None,
    ) -> Response:
        """Send ``body`` and wait for the answer; ``timeout_s`` shortens this one request."""
        if content_encoding:
            return Response(NO_ANSWER, error=f"a body in {content_encoding}: gRPC compresses")
        limit_s = self.timeout_s if timeout_s is None else min(timeout_s, self.timeout_s)
        try:
            answer, call = self._connected().with_call(
                body,
                timeout=max(limit_s, 0.001),
                metadata=self._metadata,
                compression=self._compression,
            )
        except self._grpc.RpcError as error:
            return self._refusal(error)
        except (OSError, ValueError) as error:
            self.close()
            return Response(NO_ANSWER, error=f"{type(error).__name__}: {error}")
        return Response(200, _headers(call), answer)

    def close(self) -> None:
        """Drop the connection; the next post opens a fresh one. Safe to call twice."""
        channel, self._channel, self._call = self._channel, None, None
        if channel is not None:
            channel.close()

    def _connected(self) -> Any:
        if self._call is None:
            self._channel = self._open()
            self._call = self._channel.unary_unary(self._method)
        return self._call

    def _open(self) -> Any:
        target, is_secure = _target(self.url)
        if not is_secure:
            return self._grpc.insecure_channel(target, options=_OPTIONS)
        credentials = self._grpc.ssl_channel_credentials(
            _contents(self._ca_file),
            _contents(self._client_key_file),
            _contents(self._client_cert_file),
        )
        return self._grpc.secure_channel(target, credentials, options=_OPTIONS)

    def _refusal(self, error: Any) -> Response:
        """An error status as an HTTP status.

        A connection that failed and a deadline that passed here look like a server's UNAVAILABLE
        and DEADLINE_EXCEEDED, except that no metadata came along.
        """
        name = error.code().name
        headers = _headers(error)
        text = f"{name}: {error.details() or ''}".replace("\n", " ")[:_MAX_TEXT]
        retry_after = _retry_after(error)
        if retry_after is not None:
            headers["retry-after"] = str(retry_after)
            if name == "RESOURCE_EXHAUSTED":
                return Response(TOO_MANY_REQUESTS, headers, error=text)  # it says when
        if name in {"UNAVAILABLE", "DEADLINE_EXCEEDED"} and not headers:
            self.close()
            return Response(NO_ANSWER, error=text)
        return Response(_STATUS.get(name, 500), headers, error=text)


def _target(url: str) -> tuple[str, bool]:
    """Address as gRPC wants it, and whether it is spoken to over TLS.

    >>> _target("https://[::1]:4317"), _target("http://gateway")
    (('[::1]:4317', True), ('gateway:80', False))
    """
    parts = urlsplit(url)
    is_secure = parts.scheme == "https"
    host = parts.hostname or ""
    port = parts.port or (443 if is_secure else 80)
    return (f"[{host}]:{port}" if ":" in host else f"{host}:{port}"), is_secure


def _contents(path: str | None) -> bytes | None:
    return read_small(path, _MAX_PEM_BYTES, follow=True) if path else None


def _headers(call: Any) -> dict[str, str]:
    """Metadata of the answer, before and after it; without binary values."""
    pairs = [*(call.initial_metadata() or ()), *(call.trailing_metadata() or ())]
    return {key: value for key, value in pairs if isinstance(value, str)}


def _retry_after(error: Any) -> int | None:
    """Seconds that the server asked to wait, rounded up; None if it did not ask (RetryInfo)."""
    details = dict(error.trailing_metadata() or ()).get("grpc-status-details-bin")
    if not isinstance(details, bytes):
        return None
    retry = RetryInfo()
    try:
        if any(detail.Unpack(retry) for detail in Status.FromString(details).details):
            return int(retry.retry_delay.seconds) + int(retry.retry_delay.nanos > 0)
    except DecodeError:  # a proxy's idea of details
        return None
    return None

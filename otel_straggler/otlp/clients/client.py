"""One face for every transport, the choice between them, and whether and when to retry.

Status and headers are HTTP's, whatever the transport: a rule is written once.
"""

from __future__ import annotations

import gzip
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from typing import Any, Literal, Protocol

from otel_straggler.config import Endpoint

NO_ANSWER = 0
TOO_MANY_REQUESTS = 429
RETRYABLE_STATUS = frozenset({TOO_MANY_REQUESTS, 502, 503, 504})
FIRST_DELAY_S = 1.0
MAX_DELAY_S = 30.0
MAX_RETRY_AFTER_S = 300.0


@dataclass(frozen=True, slots=True)
class Response:
    """An answer, or why there was none.

    Attributes:
        status: HTTP status, or the one that means the same; ``NO_ANSWER`` if there was none.
        headers: response headers or gRPC metadata, names in lower case.
        body: at most 4 MiB of it.
        error: why there was no answer, or gRPC's text for a refusal, for a log; else empty.
    """

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    error: str = ""

    @property
    def is_success(self) -> bool:
        return 200 <= self.status < 300

    @property
    def retry_after_s(self) -> float | None:
        """The server's Retry-After, in seconds from now; None if absent or unreadable."""
        return parse_retry_after(self.headers.get("retry-after", ""), time.time())


def parse_retry_after(value: str, now_s: float) -> float | None:
    """Read a Retry-After header: seconds, or a date.

    >>> parse_retry_after("7", 0.0)
    7.0
    >>> parse_retry_after("Thu, 01 Jan 1970 00:01:00 GMT", 20.0)
    40.0
    >>> parse_retry_after("soon", 0.0)
    """
    if not value:
        return None
    try:
        wait_s = float(int(value))
    except (ValueError, OverflowError):
        try:
            wait_s = parsedate_to_datetime(value).timestamp() - now_s
        except (ValueError, OverflowError):
            return None
    return min(max(wait_s, 0.0), MAX_RETRY_AFTER_S)


def is_retryable(response: Response) -> bool:
    """Whether the same request may be sent again (OTLP specification, plus lost connections)."""
    return response.status == NO_ANSWER or response.status in RETRYABLE_STATUS


def retry_delay_s(
    attempt: int, retry_after_s: float | None = None, rng: Callable[[], float] | None = None
) -> float:
    """Seconds to wait before try number ``attempt + 1``: exponential, jittered, capped.

    Args:
        attempt: failed tries so far, from 1.
        retry_after_s: what the server asked for; the wait is never shorter.
        rng: numbers in [0, 1), for jitter; the middle if left out.

    >>> [retry_delay_s(n) for n in (1, 2, 3, 99)]
    [0.75, 1.5, 3.0, 22.5]
    >>> retry_delay_s(1, retry_after_s=10.0)
    10.0
    """
    ceiling_s = min(FIRST_DELAY_S * 2.0 ** min(attempt - 1, 30), MAX_DELAY_S)
    jitter = 0.5 if rng is None else rng()
    return max(ceiling_s * (0.5 + 0.5 * jitter), retry_after_s or 0.0)


Signal = Literal["traces", "metrics", "logs"]


class Client(Protocol):
    """Sends OTLP requests of one signal to one address. For one thread at a time."""

    def post(
        self,
        body: bytes,
        *,
        content_type: str,
        content_encoding: str | None = None,
        timeout_s: float | None = None,
    ) -> Response:
        """Send ``body`` and wait for the answer. Never raises: a failure is an answer."""

    def close(self) -> None:
        """Drop the connection; the next post opens a fresh one. Safe to call twice."""


def client_for(endpoint: Endpoint, signal: Signal) -> Client:
    """A client for one signal.

    Raises:
        ConfigError: the endpoint wants gRPC, and that cannot be used here.
    """
    if endpoint.protocol == "grpc":
        from otel_straggler.otlp.clients.grpc import EXPORT_METHODS, GrpcClient

        return GrpcClient(
            endpoint.url,
            EXPORT_METHODS[signal],
            compression=endpoint.compression,
            **connection_options(endpoint),
        )
    from otel_straggler.otlp.clients.http import HttpClient

    return HttpClient(endpoint.url, **connection_options(endpoint))


def connection_options(endpoint: Endpoint) -> dict[str, Any]:
    return {
        "headers": dict(endpoint.headers),
        "timeout_s": endpoint.timeout_s,
        "ca_file": endpoint.ca_file or None,
        "client_cert_file": endpoint.client_cert_file or None,
        "client_key_file": endpoint.client_key_file or None,
    }


def encoded_body(endpoint: Endpoint, body: bytes) -> tuple[bytes, str | None]:
    """The body and its content encoding. Speed matters more than the last byte. gRPC compresses
    each message itself."""
    if endpoint.compression == "gzip" and endpoint.protocol != "grpc":
        return gzip.compress(body, compresslevel=1), "gzip"
    return body, None

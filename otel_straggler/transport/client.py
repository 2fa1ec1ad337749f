"""One face for every transport, and the choice between them by ``Endpoint.protocol``."""

from __future__ import annotations

import gzip
from typing import Literal, Protocol

from otel_straggler.config import Endpoint
from otel_straggler.transport.response import Response

Signal = Literal["traces", "metrics"]


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
        from otel_straggler.transport.grpc import EXPORT_METHODS, GrpcClient

        return GrpcClient(
            endpoint.url,
            EXPORT_METHODS[signal],
            headers=dict(endpoint.headers),
            timeout_s=endpoint.timeout_s,
            compression=endpoint.compression,
            ca_file=endpoint.ca_file or None,
            client_cert_file=endpoint.client_cert_file or None,
            client_key_file=endpoint.client_key_file or None,
        )
    from otel_straggler.transport.http import HttpClient

    return HttpClient(
        endpoint.url,
        headers=dict(endpoint.headers),
        timeout_s=endpoint.timeout_s,
        ca_file=endpoint.ca_file or None,
        client_cert_file=endpoint.client_cert_file or None,
        client_key_file=endpoint.client_key_file or None,
    )


def encoded_body(endpoint: Endpoint, body: bytes) -> tuple[bytes, str | None]:
    """The body as it waits, and its content encoding. Speed matters more than the last byte.

    gRPC compresses each message itself, when it is sent.
    """
    if endpoint.compression == "gzip" and endpoint.protocol != "grpc":
        return gzip.compress(body, compresslevel=1), "gzip"
    return body, None

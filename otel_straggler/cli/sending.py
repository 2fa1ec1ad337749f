"""Requests of a simulated run to a collector: addressed, secured, compressed and repeated as those
of a rank."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Final
from urllib.parse import urlsplit

import click

from otel_straggler.client.endpoints import resolve_endpoints
from otel_straggler.client.start_line import is_page_address, other_protocol, with_port
from otel_straggler.collector.alerting.posting import answer_of, tried_once
from otel_straggler.config import Endpoint
from otel_straggler.errors import UnavailableError, describe
from otel_straggler.otlp.clients.client import (
    NO_ANSWER,
    Response,
    Signal,
    client_for,
    encoded_body,
    is_retryable,
    retry_delay_s,
)
from otel_straggler.otlp.clients.tls import tls_advice
from otel_straggler.secret import without_secrets

PATIENCE_S: Final = 300.0
"""A request is repeated for so long: a collector that restarts, or is busy, is back by then."""
_CA: Final = (
    "The CA of its certificate is set by export OTEL_EXPORTER_OTLP_CERTIFICATE=/path/to/ca.pem"
)
_OWN: Final = (
    "export OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE and OTEL_EXPORTER_OTLP_CLIENT_KEY, PEM files."
)
_OTLP_HTTP: Final = 4318
_PROTOBUF: Final = "application/x-protobuf"


class Poster:
    """Sends requests, one connection per signal.

    Args:
        url: base URL of a collector; empty: the one that a rank would use.

    Raises:
        ConfigError: a variable of ours is wrong.
    """

    def __init__(
        self,
        url: str,
        env: Mapping[str, str] | None = None,
        sleep: Callable[[float], None] = time.sleep,
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        named = url.rstrip("/").removesuffix("/v1/traces") or None
        self._endpoints = resolve_endpoints(os.environ if env is None else env, named).by_signal
        self._clients = {
            signal: client_for(endpoint, signal) for signal, endpoint in self._endpoints.items()
        }
        self._sleep, self._monotonic_s = sleep, monotonic_s
        self._rng = random.Random().random
        self._was_there = False

    @property
    def address(self) -> str:
        """Of the traces, without a path."""
        parts = urlsplit(self._endpoints["traces"].url)
        return without_secrets(f"{parts.scheme}://{parts.netloc}")

    def post(self, signal: Signal, body: bytes) -> None:
        """Send a request; again, if the collector is busy, or has gone since it answered.

        Raises:
            UnavailableError: it is refused for good, nobody was ever there, or for
                :data:`PATIENCE_S` it could not be sent.
        """
        began_s, failures = self._monotonic_s(), 0
        while not (answer := self._try(signal, body)).is_success:
            may_return = self._was_there or answer.status != NO_ANSWER
            is_late = self._monotonic_s() - began_s > PATIENCE_S
            if not (is_retryable(answer) and may_return) or is_late:
                raise UnavailableError(f"--send: {_why(answer, self._endpoints[signal])}")
            failures += 1
            if failures == 1:
                click.echo(f"{self.address} {_said(answer)}; waiting for it", err=True)
            self._sleep(retry_delay_s(failures, answer.retry_after_s, self._rng))
        self._was_there = True
        if failures:
            click.echo(f"{self.address} takes data again", err=True)

    def _try(self, signal: Signal, body: bytes) -> Response:
        content, encoding = encoded_body(self._endpoints[signal], body)
        return self._clients[signal].post(
            content, content_type=_PROTOBUF, content_encoding=encoding
        )

    def __enter__(self) -> Poster:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for client in self._clients.values():
            client.close()


def _said(answer: Response) -> str:
    return "does not answer" if answer.status == NO_ANSWER else f"answers {answer.status}"


def _why(answer: Response, endpoint: Endpoint) -> str:
    """Why the request failed; TLS errors with the variables that apply here."""
    url = without_secrets(endpoint.url)
    if is_page_address(answer):
        remedy = f"Send to its OTLP port: {with_port(endpoint.url, _OTLP_HTTP)}"
        value = "the address of a collector's page and metrics, which takes no data"
        return describe(where=url, value=value, expected="a collector's OTLP port", remedy=remedy)
    if why := other_protocol(endpoint, answer):
        return f"{url} {why.partition(', or set')[0]}."
    if advice := tls_advice(endpoint.url, answer.error, ca=_CA, own=_OWN):
        return describe(where=url, value=answer.error, expected="a collector", remedy=advice)
    return f"{tried_once(answer_of(answer, url).why)} A collector is expected there."

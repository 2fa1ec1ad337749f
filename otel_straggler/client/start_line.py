"""The line that rank 0 prints at the start: name of the run, where to watch it, who listens."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, urlsplit

from otel_straggler import semconv
from otel_straggler.config import ClientSettings, Endpoint, unknown_variables
from otel_straggler.model.names import visible
from otel_straggler.otlp.clients.client import NO_ANSWER, Response, client_for, connection_options
from otel_straggler.otlp.clients.tls import tls_advice
from otel_straggler.secret import without_secrets

if TYPE_CHECKING:
    from otel_straggler.client.gpu.reasons import GpuTimingState

_LOG = logging.getLogger("otel_straggler")
_WAIT_S: Final = 3.0
_PAGE_PORT: Final = 9464
_NOT_FOUND: Final = 404
_MAX_CHARS: Final = 1_000
_UNAUTHORIZED: Final = frozenset({401, 403})
_OTLP_PORTS: Final = {"http/protobuf": 4318, "grpc": 4317}
_SPOKEN: Final = {"http/protobuf": "HTTP", "grpc": "gRPC"}
_HTTP_2: Final = "not HTTP/1.1"
_UNRESOLVED: Final = (
    "name or service not known",
    "name resolution",
    "no address associated",
    "nodename nor servname",
    "dns resolution failed",
    "domain name not found",
)
"""Words of glibc, macOS and gRPC for a name without an address, in lower case."""
_CA: Final = "Set OTEL_EXPORTER_OTLP_CERTIFICATE to a file with the CA of its certificate."
_OWN_CERTIFICATE: Final = (
    "set OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE and OTEL_EXPORTER_OTLP_CLIENT_KEY."
)


def announce(settings: ClientSettings, gpu: GpuTimingState) -> None:
    """Ask who listens, for 3 s at most, and log the line; on rank 0 only."""
    if settings.rank != 0:
        return
    _warn_of_unknown_variables()
    response = None
    if settings.traces.is_enabled:
        response = _ask(settings)
    elif settings.metrics.is_enabled:
        return  # there is no one address to name
    text = start_line(settings, response, gpu)
    if response is not None and _trouble(settings, response):
        _LOG.warning(text)
    elif _LOG.hasHandlers():
        _LOG.info(text)
    else:  # without logging set up, Python shows warnings only
        sys.stderr.write(f"{text}\n")


def _warn_of_unknown_variables() -> None:
    """One line for each, once in a process: a misspelled one has no effect, and says so nowhere."""
    for name, nearest in unknown_variables(os.environ).items():
        if name not in _WARNED:
            _WARNED.add(name)
            remedy = f"Did you mean {nearest}?" if nearest else "Correct the spelling, or unset it."
            _LOG.warning("otel-straggler: %s is set, and nothing reads it. %s", name, remedy)


_WARNED: Final[set[str]] = set()


def start_line(settings: ClientSettings, response: Response | None, gpu: GpuTimingState) -> str:
    """The line itself.

    Args:
        response: to a request without content; None: spans go to the application's own provider.
    """
    world = f" of {settings.world_size}" if settings.world_size else ""
    group = f", group {settings.group}" if settings.group else ""
    timing = f"GPU timing {gpu.tier}"
    if gpu.tier != gpu.wanted and not _is_no_news(settings, gpu):
        timing += f" ({gpu.reason})"
    head = f"otel-straggler: run {settings.run_id}, rank {settings.rank}{world}{group}, {timing}"
    return visible(f"{head}: {_listener(settings, response)}")[:_MAX_CHARS]


def _listener(settings: ClientSettings, response: Response | None) -> str:
    if response is None:
        return "spans go to the application's TracerProvider; no collector scores them"
    if trouble := _trouble(settings, response):
        return trouble
    if semconv.SCORER_HEADER in response.headers:
        return f"watch it at {_page(settings, response)}"
    address = without_secrets(_base(settings.traces.url))
    return (
        f"{address} answers, but not as an otel-straggler collector: nobody scores this run "
        "unless it forwards to one"
    )


def _trouble(settings: ClientSettings, response: Response) -> str:
    """Why nothing arrives there, and what to do; empty where it does, as far as that shows."""
    endpoint = settings.traces
    address = without_secrets(_base(endpoint.url))
    if is_page_address(response):
        otlp = with_port(address, _OTLP_PORTS[endpoint.protocol])
        return (
            f"{address} is the address of a collector's page and metrics, and takes no data. "
            f"Send to its OTLP port: OTEL_STRAGGLER_ENDPOINT={otlp}"
        )
    if response.status in _UNAUTHORIZED:
        return (
            f"{address} answers {response.status}: it wants a token that may send, or another one. "
            "Set OTEL_STRAGGLER_HEADERS=authorization=Bearer%20TOKEN"
        )
    is_scorer = semconv.SCORER_HEADER in response.headers
    if not is_scorer and (why := other_protocol(endpoint, response)):
        return f"{address} {why}"
    if response.status == NO_ANSWER:
        return f"{_silence(endpoint, response.error, address)}; data is kept and sent later"
    if settings.is_trusted and not response.is_success and not is_scorer:
        return f"{address} answers {response.status}; 'otel-straggler doctor' says what is wrong"
    return ""


def _silence(endpoint: Endpoint, error: str, address: str) -> str:
    """Why there was no answer, and what to do."""
    host = urlsplit(endpoint.url).hostname
    if any(text in error.lower() for text in _UNRESOLVED):
        return (
            f"the name {host} has no address here ({error}). Correct the endpoint, or the resolver "
            f"('getent hosts {host}' shows what it finds)"
        )
    if advice := tls_advice(endpoint.url, error, ca=_CA, own=_OWN_CERTIFICATE):
        return f"{address} cannot be talked to ({error}). {advice.rstrip('.')}"
    if "refused" in error.lower() or not error:
        return (
            f"nobody listens at {address}. Start 'otel-straggler collector' there or set "
            "OTEL_STRAGGLER_ENDPOINT"
        )
    return (
        f"no answer from {address} ({error}). Is 'otel-straggler collector' there, and no firewall "
        "between? Else set OTEL_STRAGGLER_ENDPOINT"
    )


def other_protocol(endpoint: Endpoint, response: Response) -> str:
    """That the other form of OTLP is spoken there, and what to do; empty if nothing says so."""
    own, port = endpoint.protocol, urlsplit(endpoint.url).port
    other = next(name for name in _OTLP_PORTS if name != own)
    if port == _OTLP_PORTS[other]:
        why = f"port {port} is that of OTLP over {_SPOKEN[other]}"
    elif own != "grpc" and _HTTP_2 in response.error:
        why = "it answers as OTLP over gRPC does"
    else:
        return ""
    return (
        f"does not speak {_SPOKEN[own]}: {why}. Name the port of {_SPOKEN[own]} (usually "
        f"{_OTLP_PORTS[own]}), or set OTEL_STRAGGLER_PROTOCOL={other}"
    )


def is_page_address(response: Response) -> bool:
    """Whether a collector answers that has no OTLP at this path: its address for people."""
    return response.status == _NOT_FOUND and semconv.SCORER_HEADER in response.headers


def with_port(address: str, port: int) -> str:
    """
    >>> with_port("http://[::1]:9464", 4318)
    'http://[::1]:4318'
    """
    parts = urlsplit(address)
    host = parts.hostname or ""
    return f"{parts.scheme}://{f'[{host}]' if ':' in host else host}:{port}"


def _page(settings: ClientSettings, response: Response) -> str:
    """With the host that this process knows, where the collector names none."""
    page = urlsplit(f"//:{_PAGE_PORT}/")
    with contextlib.suppress(ValueError):
        named = urlsplit(response.headers.get(semconv.PAGE_HEADER, ""))
        page = named if named.netloc and named.scheme in ("", "http", "https") else page
    endpoint = urlsplit(settings.traces.url)
    scheme = page.scheme or ("https" if endpoint.scheme == "https" else "http")
    host = page.netloc
    if not page.hostname:
        known = endpoint.hostname or "localhost"
        host = (f"[{known}]" if ":" in known else known) + page.netloc
    return f"{scheme}://{host}{page.path or '/'}#run={quote(settings.run_id, safe='')}"


def _ask(settings: ClientSettings) -> Response:
    """A GET is refused by whoever takes OTLP over HTTP, and sends nothing; gRPC has only calls."""
    endpoint = settings.traces
    if endpoint.protocol == "grpc":
        grpc = client_for(endpoint, "traces")
        try:
            return grpc.post(b"", content_type="application/x-protobuf", timeout_s=_WAIT_S)
        finally:
            grpc.close()
    from otel_straggler.otlp.clients.http import HttpClient

    http = HttpClient(endpoint.url, **connection_options(endpoint))
    try:
        return http.get(timeout_s=_WAIT_S)
    finally:
        http.close()


def _base(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"


def _is_no_news(settings: ClientSettings, gpu: GpuTimingState) -> bool:
    """Whether nobody asked for a tier, and there is no GPU."""
    from otel_straggler.client.gpu.reasons import WITHOUT_GPU

    return settings.gpu_timing == "auto" and gpu.reason in WITHOUT_GPU

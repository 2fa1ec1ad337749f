"""The line that rank 0 prints at the start: name of the run, where to watch it, who listens."""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, urlsplit

from otel_straggler import semconv
from otel_straggler.config import ClientSettings
from otel_straggler.otlp.clients.client import NO_ANSWER, Response, client_for, connection_options
from otel_straggler.secret import without_secrets

if TYPE_CHECKING:
    from otel_straggler.client.gpu.reasons import GpuTimingState

_LOG = logging.getLogger("otel_straggler")
_WAIT_S: Final = 3.0
_PAGE_PORT: Final = 9464


def announce(settings: ClientSettings, gpu: GpuTimingState) -> None:
    """Ask who listens, for 3 s at most, and log the line; on rank 0 only."""
    if settings.rank != 0:
        return
    response = None
    if settings.traces.is_enabled:
        response = _ask(settings)
    elif settings.metrics.is_enabled:
        return  # there is no one address to name
    text = start_line(settings, response, gpu)
    if response is not None and response.status == NO_ANSWER:
        _LOG.warning(text)
    elif _LOG.hasHandlers():
        _LOG.info(text)
    else:  # without logging set up, Python shows warnings only
        sys.stderr.write(f"{text}\n")


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
    return f"{head}: {_listener(settings, response)}"


def _listener(settings: ClientSettings, response: Response | None) -> str:
    if response is None:
        return "spans go to the application's TracerProvider; no collector scores them"
    address = without_secrets(_base(settings.traces.url))
    if response.status == NO_ANSWER:
        return (
            f"nobody listens at {address}. Start 'otel-straggler collector' there or set "
            "OTEL_STRAGGLER_ENDPOINT; data is kept and sent later"
        )
    if semconv.SCORER_HEADER in response.headers:
        return f"watch it at {_page(settings, response)}"
    if settings.is_trusted and not response.is_success:
        return f"{address} answers {response.status}; 'otel-straggler doctor' says what is wrong"
    return (
        f"{address} answers, but not as an otel-straggler collector: nobody scores this run "
        "unless it forwards to one"
    )


def _page(settings: ClientSettings, response: Response) -> str:
    """With the host that this process knows, where the collector names none."""
    page = urlsplit(response.headers.get(semconv.PAGE_HEADER, f"//:{_PAGE_PORT}/"))
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

"""The listening sockets of a collector, on one event loop in a thread of its own."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from otel_straggler import semconv
from otel_straggler.collector.access.guard import Guard
from otel_straggler.collector.access.settings import is_loopback, parse_address
from otel_straggler.collector.access.tls import ServerTls
from otel_straggler.collector.api.commands import Commands
from otel_straggler.collector.ingest.intake import Intake
from otel_straggler.collector.ingest.loop_thread import LoopThread, listen
from otel_straggler.collector.settings import CollectorSettings
from otel_straggler.errors import UnavailableError

if TYPE_CHECKING:
    from otel_straggler.collector.ingest.http_server import HttpServer

_GRACE_S = 1.0
"""For a request that is being decoded, beyond the deadline."""
_MAX_PAGE_REQUEST_BYTES = 8_192
MAX_PAGE_CONNECTIONS = 512
"""Of the metrics address: descriptors are for ranks; a browser takes six."""
_MAX_HTTP, _MAX_GRPC = 4096, 2048
_OF_DESCRIPTORS = {"http": 0.5, "grpc": 0.25, "pages": 0.1}
"""Maximum parts; the rest is for files and outgoing connections."""


class Servers:
    """OTLP over HTTP and gRPC, and the metrics address.

    ``start`` gives the addresses; ``stop_receiving`` and ``stop`` may be called in any state.
    """

    def __init__(
        self,
        settings: CollectorSettings,
        handler: Intake,
        api: Any,
        commands: Commands,
        guard: Guard | None = None,
    ) -> None:
        from otel_straggler.collector.ingest.grpc import GrpcServer
        from otel_straggler.collector.ingest.http import OtlpHttp
        from otel_straggler.collector.ingest.http_messages import HttpLimits
        from otel_straggler.collector.ingest.http_server import HttpServer

        receivers = settings.receivers
        guard = guard or Guard(settings.auth, settings.metrics.allowed_hosts)
        tls = ServerTls(settings.tls) if settings.tls.is_on else None
        limits = HttpLimits(
            body_bytes=receivers.max_body_bytes,
            buffered_bytes=max(receivers.max_body_bytes, receivers.max_waiting_bytes // 2),
            connections=max_connections(_MAX_HTTP, _OF_DESCRIPTORS["http"]),
        )
        self._otlp = OtlpHttp(
            handler,
            keep_raw=settings.forward.is_on and not settings.forward.is_sampled,
            commands=commands if settings.commands.enabled else None,
            guard=guard,
            checks_host=is_loopback(parse_address(receivers.otlp_http, where="")[0]),
        )
        self._settings = settings
        self._http = HttpServer(self._otlp, limits, tls)
        self._api = api
        page_limits = HttpLimits(
            body_bytes=_MAX_PAGE_REQUEST_BYTES,
            connections=max_connections(MAX_PAGE_CONNECTIONS, _OF_DESCRIPTORS["pages"]),
        )
        self._metrics = HttpServer(api, page_limits, tls)
        self._grpc = GrpcServer(
            handler,
            max_bytes=receivers.max_body_bytes,
            buffered_bytes=limits.buffered_bytes,
            keep_raw=self._otlp.keep_raw,
            connections=max_connections(_MAX_GRPC, _OF_DESCRIPTORS["grpc"]),
            refused=lambda signal, answer: handler.count_answers({(signal, answer): 1}),
            guard=guard,
            tls=ServerTls(settings.tls, protocol="h2") if settings.tls.is_on else None,
        )
        self._loop = LoopThread("straggler-servers")

    @property
    def http_answers(self) -> dict[tuple[str, int], int]:
        """Answers of the OTLP/HTTP port by (signal, status)."""
        return self._otlp.answers

    @property
    def connections_cut(self) -> dict[str, int]:
        """Evicted connections, by address."""
        return {
            "otlp_http": self._http.evictions.count,
            "otlp_grpc": self._grpc.connections_cut,
            "metrics": self._metrics.evictions.count,
        }

    def _announce_page(self, address: str) -> None:
        """To ranks, which print it. Other hosts reach it by the name by which they know this one,
        unless it is for this host only or people know it by another."""
        settings = self._settings
        url = settings.alerts.notify.external_url
        if not url:
            host, _, port = address.rpartition(":")
            scheme = "https" if settings.tls.is_on else "http"
            url = f"{scheme}://{host if is_loopback(host.strip('[]')) else ''}:{port}/"
        self._otlp.fixed_headers = {**self._otlp.fixed_headers, semconv.PAGE_HEADER: url}
        self._http.fix_headers()

    def start(self) -> dict[str, str]:
        """Listen on all addresses; returns them with their real ports.

        Raises:
            UnavailableError: an address is taken, or a package is missing.
        """
        self._loop.start()
        receivers, pages = self._settings.receivers, self._settings.metrics
        try:
            addresses = {
                "otlp_http": self._listen(self._http, receivers.otlp_http, "--otlp-http"),
                "otlp_grpc": listen(self._grpc.start, receivers.otlp_grpc, "--otlp-grpc"),
                "metrics": self._listen(self._metrics, pages.listen, "--metrics"),
            }
            self._announce_page(addresses["metrics"])
            if pages.socket:
                addresses["metrics_socket"] = self._listen_unix(pages.socket)
            return addresses
        except BaseException:
            self.stop_receiving(0.0)
            self.stop()
            raise

    def stop_receiving(self, deadline_s: float) -> None:
        """Accept no more telemetry; begun requests are finished within the deadline."""
        until_s = time.monotonic() + deadline_s
        try:
            if self._loop.is_running:
                self._loop.call(self._http.stop(deadline_s), deadline_s + _GRACE_S)
        finally:
            self._grpc.stop(max(0.0, until_s - time.monotonic()))

    def stop(self) -> None:
        """Stop the metrics address and the loop, without waiting for a large request that is being
        decoded: its sender was not answered."""
        try:
            if self._loop.is_running:
                self._loop.call(self._metrics.stop(1.0), 1.0 + _GRACE_S)
        finally:
            self._api.close()
            self._loop.stop()

    def _listen(self, server: HttpServer, address: str, flag: str) -> str:
        return listen(lambda host, port: self._loop.call(server.start(host, port)), address, flag)

    def _listen_unix(self, path: str) -> str:
        try:
            self._loop.call(self._metrics.start_unix(path))
        except OSError as error:
            expected = "a path of at most 107 bytes that nobody serves, in a folder of this user"
            remedy = f"Choose another path ({error})."
            raise UnavailableError.of("metrics.socket", path, expected, remedy) from None
        return path


def max_connections(limit: int, part: float) -> int:
    """``limit``, or the part of all descriptors if that is less; at least 8: a flood of one address
    must not take the descriptors of the others.

    >>> max_connections(4096, 0.0), max_connections(4, 1.0)
    (8, 4)
    """
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return limit
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return limit
    return min(limit, max(8, int(soft * part)))

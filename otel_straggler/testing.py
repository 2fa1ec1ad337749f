"""For tests of code that uses this package: a sink that remembers what it got, and a clock.

>>> from otel_straggler.testing import CapturedRequests
>>> with CapturedRequests() as sink:
...     sink.url.startswith("http://127.0.0.1:")
True
"""

from __future__ import annotations

import gzip
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from otel_straggler import semconv

TRACES_PATH = "/v1/traces"
METRICS_PATH = "/v1/metrics"


@dataclass(frozen=True, slots=True)
class CapturedRequest:
    """One request as it arrived. ``body`` is uncompressed."""

    path: str
    headers: Mapping[str, str]
    body: bytes
    answered: int

    def decode(self) -> Any:
        """The OTLP message, as opentelemetry-proto reads it."""
        return _message_of(self.path).FromString(self.body)


@dataclass(frozen=True, slots=True)
class CapturedSpan:
    """A span with its resource, attributes as plain dictionaries."""

    name: str
    trace_id: bytes
    span_id: bytes
    parent_id: bytes
    start_ns: int
    end_ns: int
    attributes: dict[str, Any]
    resource: dict[str, Any]
    is_error: bool


@dataclass(frozen=True, slots=True)
class CapturedPoint:
    """A data point of a gauge or a sum with its resource."""

    metric: str
    unit: str
    value: float
    attributes: dict[str, Any]
    resource: dict[str, Any]


@dataclass(slots=True)
class Behaviour:
    """How the sink answers; may be changed at any time.

    Attributes:
        status: HTTP status.
        headers: further response headers.
        body: response body.
        delay_s: wait before answering.
        drops_connections: close without an answer.
        is_scorer: send the header by which a collector says that it scores.
        next_statuses: statuses of the next requests, before ``status`` counts again.
    """

    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    delay_s: float = 0.0
    drops_connections: bool = False
    is_scorer: bool = True
    next_statuses: list[int] = field(default_factory=list)


class CapturedRequests:
    """An OTLP/HTTP server on a free port of this machine that remembers what it got.

    Attributes:
        behaviour: how it answers.
        requests: what arrived, in order.
    """

    def __init__(self) -> None:
        self.behaviour = Behaviour()
        self.requests: list[CapturedRequest] = []
        self._changed = threading.Condition()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler_for(self))
        self._server.daemon_threads = True
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.01,), name="captured-requests", daemon=True
        )
        self._thread.start()

    @property
    def url(self) -> str:
        """What to give to ``configure(endpoint=...)``."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def spans(self) -> list[CapturedSpan]:
        """All spans of requests that were taken, in order."""
        return [s for r in self._taken(TRACES_PATH) for s in _spans_of(r.decode())]

    def points(self, metric: semconv.Metric | None = None) -> list[CapturedPoint]:
        """All points of gauges and sums, of one metric if given."""
        points = [p for r in self._taken(METRICS_PATH) for p in _points_of(r.decode())]
        return [p for p in points if metric is None or p.metric == metric.name]

    def wait_for(
        self, is_enough: Callable[[CapturedRequests], bool], timeout_s: float = 20.0
    ) -> None:
        """Wait until ``is_enough(self)``; an AssertionError after ``timeout_s``."""
        with self._changed:
            if not self._changed.wait_for(lambda: is_enough(self), timeout_s):
                msg = f"not seen within {timeout_s} s; {len(self.requests)} requests arrived"
                raise AssertionError(msg)

    def remember(self, request: CapturedRequest) -> None:
        with self._changed:
            self.requests.append(request)
            self._changed.notify_all()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def __enter__(self) -> CapturedRequests:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def _taken(self, path: str) -> list[CapturedRequest]:
        return [r for r in self.requests if r.path == path and r.answered == 200]


class FakeClock:
    """A clock that stands still until it is advanced."""

    def __init__(self, *, monotonic_s: float = 1_000.0, wall_s: float = 1_700_000_000.0) -> None:
        self._monotonic_s = monotonic_s
        self._wall_ns = round(wall_s * 1e9)
        self._perf_ns = time.perf_counter_ns()

    def monotonic_s(self) -> float:
        return self._monotonic_s

    def wall_ns(self) -> int:
        return self._wall_ns

    def perf_ns(self) -> int:
        return self._perf_ns

    def advance(self, seconds: float) -> None:
        """Let all three clocks go on."""
        self._monotonic_s += seconds
        self._wall_ns += round(seconds * 1e9)
        self._perf_ns += round(seconds * 1e9)

    def set_wall(self, wall_s: float) -> None:
        """Jump with the wall clock alone, as an administrator or NTP would."""
        self._wall_ns = round(wall_s * 1e9)


def _handler_for(sink: CapturedRequests) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            """Refuse, as OTLP servers do."""
            self._answer(405, sink.behaviour)

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
            behaviour = sink.behaviour
            if behaviour.delay_s:
                time.sleep(behaviour.delay_s)
            if behaviour.drops_connections:
                self.close_connection = True
                return
            statuses = behaviour.next_statuses
            status = statuses.pop(0) if statuses else behaviour.status
            sink.remember(_captured(self.path, dict(self.headers.items()), body, status))
            self._answer(status, behaviour)

        def _answer(self, status: int, behaviour: Behaviour) -> None:
            self.send_response(status)
            if behaviour.is_scorer:
                self.send_header(semconv.SCORER_HEADER, semconv.WIRE_VERSION)
            for name, value in behaviour.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(behaviour.body)))
            self.end_headers()
            self.wfile.write(behaviour.body)

        def log_message(self, *args: Any) -> None:
            """Say nothing on standard error."""

    return Handler


def _captured(path: str, headers: dict[str, str], body: bytes, status: int) -> CapturedRequest:
    lower = {name.lower(): value for name, value in headers.items()}
    if lower.get("content-encoding") == "gzip":
        body = gzip.decompress(body)
    return CapturedRequest(path, lower, body, status)


def _message_of(path: str) -> Any:
    from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2
    from opentelemetry.proto.collector.trace.v1 import trace_service_pb2

    if path.endswith("/traces"):
        return trace_service_pb2.ExportTraceServiceRequest
    return metrics_service_pb2.ExportMetricsServiceRequest


def _spans_of(message: Any) -> list[CapturedSpan]:
    return [
        CapturedSpan(
            name=span.name,
            trace_id=span.trace_id,
            span_id=span.span_id,
            parent_id=span.parent_span_id,
            start_ns=span.start_time_unix_nano,
            end_ns=span.end_time_unix_nano,
            attributes=_plain(span.attributes),
            resource=_plain(of_resource.resource.attributes),
            is_error=span.status.code == 2,
        )
        for of_resource in message.resource_spans
        for of_scope in of_resource.scope_spans
        for span in of_scope.spans
    ]


def _points_of(message: Any) -> list[CapturedPoint]:
    return [
        CapturedPoint(
            metric=metric.name,
            unit=metric.unit,
            value=getattr(point, point.WhichOneof("value")),
            attributes=_plain(point.attributes),
            resource=_plain(of_resource.resource.attributes),
        )
        for of_resource in message.resource_metrics
        for of_scope in of_resource.scope_metrics
        for metric in of_scope.metrics
        for point in [*metric.gauge.data_points, *metric.sum.data_points]
    ]


def _plain(attributes: Any) -> dict[str, Any]:
    return {a.key: getattr(a.value, a.value.WhichOneof("value")) for a in attributes}

"""What arrived, and how often: every span by session, section and number, parsed generically.

Requests are parsed by opentelemetry-proto, not by the code under test.
"""

from __future__ import annotations

import gzip
import queue
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from otel_straggler import semconv

Series = tuple[int, str]
"""A rank and one of its sections; each process is one rank."""


@dataclass(slots=True)
class Arrivals:
    """What became of each number of one series; zeros where nothing came.

    Attributes:
        times: deliveries.
        ended_s: Unix time of the run's end.
        first_by, last_by: which collector passed it on, from 1, the first and the last time.
    """

    times: np.ndarray = field(default_factory=lambda: np.zeros(1024, np.uint8))
    ended_s: np.ndarray = field(default_factory=lambda: np.zeros(1024))
    first_by: np.ndarray = field(default_factory=lambda: np.zeros(1024, np.uint8))
    last_by: np.ndarray = field(default_factory=lambda: np.zeros(1024, np.uint8))

    def add(self, first: int, count: int, ended_s: float, by: int) -> None:
        """Runs ``first`` to ``first + count - 1`` came together."""
        self._make_room(first + count)
        come = slice(first, first + count)
        self.times[come] += 1
        self.ended_s[come] = ended_s
        self.first_by[come][self.first_by[come] == 0] = by
        self.last_by[come] = by

    def whole(self, recorded: int) -> Arrivals:
        """Numbers 0 to ``recorded - 1``, whatever came."""
        self._make_room(recorded)
        return Arrivals(*(getattr(self, one.name)[:recorded] for one in fields(self)))

    def beyond(self, recorded: int) -> int:
        """Deliveries of numbers that were never recorded."""
        return int(self.times[recorded:].sum())

    def _make_room(self, size: int) -> None:
        while size > len(self.times):
            for one in fields(self):
                column = getattr(self, one.name)
                setattr(self, one.name, np.concatenate([column, np.zeros_like(column)]))


class Ledger:
    """All that was forwarded, over all collectors.

    Attributes:
        arrivals: of each series.
        sessions: that each rank had: one.
        dropped: what each rank says it has dropped, by reason.
        bad: names of spans without a number.
        collector: which one is passing on now, from 1.
    """

    def __init__(self) -> None:
        self.collector = 0
        self.arrivals: dict[Series, Arrivals] = {}
        self.sessions: dict[int, set[str]] = {}
        self.dropped: dict[int, dict[str, int]] = {}
        self.bad: list[str] = []
        self._lock = threading.Lock()

    def ingest_traces(self, body: bytes, collector: int) -> None:
        request = ExportTraceServiceRequest.FromString(body)
        with self._lock:
            for of_resource in request.resource_spans:
                if all(a.key != semconv.RANK for a in of_resource.resource.attributes):
                    continue  # roots of steps, which the collector makes
                rank = self._rank_of(of_resource.resource.attributes)
                for scope in of_resource.scope_spans:
                    for span in scope.spans:
                        self._take_span(rank, span, collector)

    def ingest_metrics(self, body: bytes) -> None:
        """Remember what each rank says it has dropped so far: the newest word counts."""
        request = ExportMetricsServiceRequest.FromString(body)
        with self._lock:
            for of_resource in request.resource_metrics:
                rank = self._rank_of(of_resource.resource.attributes)
                for metric in (m for scope in of_resource.scope_metrics for m in scope.metrics):
                    if metric.name == semconv.RECORDS_DROPPED.name:
                        self.dropped[rank] = {
                            p.attributes[0].value.string_value: p.as_int
                            for p in metric.sum.data_points
                        }

    def _rank_of(self, attributes: Any) -> int:
        result = dict(_plain(attributes))
        rank = int(result[semconv.RANK])
        self.sessions.setdefault(rank, set()).add(str(result[semconv.SESSION_ID]))
        return rank

    def _take_span(self, rank: int, span: Any, collector: int) -> None:
        result = dict(_plain(span.attributes))
        name = result.get(semconv.SECTION, "step")
        number = result.get(semconv.SEQ if name != "step" else semconv.STEP)
        if not isinstance(number, int):
            self.bad.append(span.name)
            return
        series = self.arrivals.setdefault((rank, str(name)), Arrivals())
        count = int(result.get(semconv.FOLD_COUNT, 1))
        series.add(number, count, span.end_time_unix_nano / 1e9, collector)


def _plain(attributes: Any) -> Iterator[tuple[str, str | int]]:
    for one in attributes:
        value = one.value
        yield one.key, value.string_value or value.int_value


_Waiting = queue.SimpleQueue["tuple[str, bytes, int] | None"]


class Sink:
    """A backend on a port of its own that enters what it gets into a ledger: it answers at once
    and reads later, so that no collector waits for it."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._waiting: _Waiting = queue.SimpleQueue()
        self._server = _Server(("127.0.0.1", 0), _handler_of(ledger, self._waiting))
        self._threads = [
            threading.Thread(target=self._server.serve_forever, args=(0.05,)),
            threading.Thread(target=self._read),
        ]
        for thread in self._threads:
            thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def close(self) -> None:
        """Returns when all is entered."""
        self._server.shutdown()
        self._waiting.put(None)
        for thread in self._threads:
            thread.join()
        self._server.server_close()

    def _read(self) -> None:
        while (item := self._waiting.get()) is not None:
            path, body, collector = item
            if path == "/v1/traces":
                self._ledger.ingest_traces(body, collector)
            elif path == "/v1/metrics":
                self._ledger.ingest_metrics(body)


class _Server(ThreadingHTTPServer):
    def handle_error(self, *_: object) -> None:
        """A connection that breaks is that of a killed collector; others show in the account."""


def _handler_of(ledger: Ledger, waiting: _Waiting) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            length = int(self.headers["Content-Length"])
            body = self.rfile.read(length)
            if len(body) < length:  # its collector was killed
                self.close_connection = True
                return
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            waiting.put((self.path, body, ledger.collector))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    return Handler

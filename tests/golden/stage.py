"""One collector that is fed all recorded runs at once, on a clock that only the test moves.

What the product does between two moments is waited for: a marker, which is a run of its own, goes
behind all that is sent, and its step stands in /metrics when everything before it is published; an
evaluation of the alerts has taken place when the watchdog was sent again.
"""

from __future__ import annotations

import contextlib
import functools
import http.client
import itertools
import json
import os
import pickle
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import quote

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from ..waiting import eventually
from .clocked import Clock
from .plain import alerts_by_run
from .scenarios import ARGUMENTS, CHANGES, CHANGES_OF_SPANS, START_S

_ROOT = Path(__file__).parents[2]
_MODULE = (sys.executable, "-m")
_SEEDED = {**os.environ, "PYTHONHASHSEED": "0"}
PROTOBUF = "application/x-protobuf"
CHUNK_S = 5.0
"""The clock moves by so much, and what was sent meanwhile comes at its end."""
_PUBLISHED_S = 2.5
_EVALUATED_S = 2.5625  # too early for another publication
MARKER = "marker"
_MARKED = re.compile(rb'\nstraggler_rank_step\{[^}]*run_id="marker"[^}]*\} (\S+)')
_PUBLISHED = re.compile(rb"\nstraggler_collector_pages(?:\{[^}]*\})? (\S+)")
_WAITING = re.compile(rb"\nstraggler_collector_queue_bytes(?:\{[^}]*\})? (\S+)")
Json = dict[str, Any]
Request = tuple[float, str, bytes]

SETTINGS: Json = {
    "metrics": {"collector_id": "golden", "cluster": "here"},
    "scoring": {"window_steps": 20, "window_seconds": 10.0, "grace_seconds": 6.0},
    "history": {"save_every_seconds": 4.5},  # so that it is always due when all is published
    "alerts": {
        "mode": "page",
        "score_for_seconds": 13.0,
        "straggling_for_seconds": 8.0,
        "hang_for_seconds": 8.0,
        "missing_for_seconds": 33.0,
        "no_data_seconds": 63.0,
        "run_slow_for_seconds": 13.0,
        "keep_firing_seconds": 23.0,
        "evaluation_seconds": CHUNK_S,
        "dashboard_url": "https://grafana.example/d/run",
        "runbook_url": "https://docs.example/RUNBOOK.md",
        "notify": {"external_url": "http://collector.example", "resend_seconds": 1.0},
    },
}


# --- what is sent -------------------------------------------------------------------------------


def record(folder: Path) -> None:
    """Let the simulator send every run, in two processes."""
    names = list(ARGUMENTS)
    halves = (names[::2], names[1::2])
    commands = [[*_MODULE, "tests.golden.record", folder, *half] for half in halves]
    processes = [
        subprocess.Popen(command, stderr=subprocess.PIPE, cwd=_ROOT, env=_SEEDED)
        for command in commands
    ]
    for process in processes:
        _, errors = process.communicate(timeout=300)
        assert process.returncode == 0, errors.decode()


def read_record(folder: Path, name: str) -> list[Request]:
    requests: list[Request] = pickle.loads((folder / f"{name}.record").read_bytes())
    return [(at_s, signal, _changed(name, signal, body)) for at_s, signal, body in requests]


def _changed(name: str, signal: str, body: bytes) -> bytes:
    if name not in CHANGES and (signal != "traces" or name not in CHANGES_OF_SPANS):
        return body
    traces = signal == "traces"
    message = (ExportTraceServiceRequest if traces else ExportMetricsServiceRequest)()
    message.ParseFromString(body)
    for part in message.resource_spans if traces else message.resource_metrics:
        CHANGES.get(name, lambda _: None)(part)
        if traces:
            CHANGES_OF_SPANS.get(name, lambda _: None)(part)
    changed: bytes = message.SerializeToString(deterministic=True)
    return changed


def chunks(records: list[list[Request]]) -> list[list[tuple[str, bytes]]]:
    """What is sent in each piece of time; of a run in its order, joined where that is possible:
    protobuf reads messages in a row as one."""
    count = 1 + max(_chunk(at_s) for requests in records for at_s, *_ in requests)
    result: list[list[tuple[str, bytes]]] = [[] for _ in range(count)]
    for requests in records:
        for (number, signal), group in itertools.groupby(requests, lambda r: (_chunk(r[0]), r[1])):
            result[number].append((signal, b"".join(body for *_, body in group)))
    return result


def came_s(number: int) -> float:
    """When what was sent in a piece of time comes."""
    return START_S + CHUNK_S * (number + 1)


def before_s(number: int) -> float:
    """When a collector is started whose alerts are looked at once in each piece from this one on:
    so long before the first look."""
    return came_s(number) + _EVALUATED_S - CHUNK_S


def _chunk(at_s: float) -> int:
    return int((at_s - START_S) // CHUNK_S)


def marker(number: int, now_s: float) -> bytes:
    """A sign of life of the marker's only rank; its step is the number."""
    request = ExportMetricsServiceRequest()
    part = request.resource_metrics.add()
    texts = {"service.name": "marker", "host.name": "node-m", "straggler.session.id": "ab" * 8,
             "training.run.id": MARKER}  # fmt: skip
    for key, text in texts.items():
        part.resource.attributes.add(key=key).value.string_value = text
    for key, value in {"training.rank": 0, "training.world_size": 1}.items():
        part.resource.attributes.add(key=key).value.int_value = value
    scope = part.scope_metrics.add()
    scope.scope.name = "otel_straggler"
    for name in ("straggler.heartbeat.timestamp", "straggler.progress.timestamp"):
        point = scope.metrics.add(name=name, unit="s").gauge.data_points.add()
        point.time_unix_nano, point.as_double = int(now_s * 1e9), now_s
    point = scope.metrics.add(name="straggler.progress.step").gauge.data_points.add()
    point.time_unix_nano, point.as_int = int(now_s * 1e9), number
    encoded: bytes = request.SerializeToString(deterministic=True)
    return encoded


# --- who is told --------------------------------------------------------------------------------


class Reported:
    """An Alertmanager that remembers the first start and the newest word of every alert."""

    def __init__(self) -> None:
        self.alerts: dict[str, Json] = {}
        self.watchdog_ends = ""

    def take(self, posted: list[Json]) -> None:
        for alert in posted:
            if alert["labels"]["alertname"].endswith("Watchdog"):
                self.watchdog_ends = alert["endsAt"]
            self.alerts[json.dumps(alert["labels"], sort_keys=True)] = alert

    def by_run(self, clock: Clock) -> Json:
        """All that was told until now, once the collector has ended; the next one begins anew."""
        reported, self.alerts = self.alerts, {}
        return alerts_by_run(reported, clock.now_rfc3339, START_S)


@contextlib.contextmanager
def running_alertmanager(reported: Reported) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            reported.take(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self._answer(b"{}")

        def do_GET(self) -> None:
            self._answer(b"[]")

        def _answer(self, body: bytes) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


# --- the collector ------------------------------------------------------------------------------


class Collector:
    """The real one, in a process of its own, with a history."""

    def __init__(self, folder: Path, clock: Clock, reported: Reported, alertmanager: str) -> None:
        self.clock = clock
        self._folder = folder
        self._reported = reported
        settings = json.loads(json.dumps(SETTINGS))
        settings["alerts"]["notify"]["alertmanagers"] = [alertmanager]
        config = folder / "collector.yaml"
        config.write_text(json.dumps(settings))
        ports = [f"--{name}=127.0.0.1:0" for name in ("otlp-http", "otlp-grpc", "metrics")]
        with (folder / "collector.log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    *(*_MODULE, "tests.golden.clocked", folder / "clock", "collector", *ports),
                    *("--history", folder / "history.db", "--config", config),
                ],
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=_ROOT,
                env=_SEEDED,
            )
        assert self._process.stdout is not None
        self._addresses: dict[str, str] = json.loads(self._process.stdout.readline())

    @functools.cached_property
    def _otlp(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection(self._addresses["otlp_http"], timeout=60)

    @functools.cached_property
    def _pages(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection(self._addresses["metrics"], timeout=60)

    def __enter__(self) -> Collector:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Stop in order, as a service manager does it; after a failure at once."""
        try:
            if kind is None:
                self._process.terminate()
                assert self._process.wait(60) == 0
        finally:
            self._process.kill()
            self._process.communicate()
            self._otlp.close()
            self._pages.close()

    def say(self, records: Path) -> None:
        """Write what commands print about the runs."""
        url = f"http://{self._addresses['metrics']}"
        command = [*_MODULE, "tests.golden.texts", self._folder, records, url]
        subprocess.run(command, check=True, cwd=_ROOT, env=_SEEDED, timeout=120)

    def post(self, signal: str, body: bytes) -> None:
        self._otlp.request("POST", f"/v1/{signal}", body, {"Content-Type": PROTOBUF})
        answer = self._otlp.getresponse()
        assert answer.status == 200, answer.read()
        answer.read()

    def get(self, path: str, **query: object) -> bytes:
        asked = "&".join(f"{name}={quote(str(value))}" for name, value in query.items())
        self._pages.request("GET", f"{path}?{asked}" if asked else path)
        answer = self._pages.getresponse()
        body = answer.read()
        assert answer.status == 200, (path, query, body)
        return body

    def json(self, path: str, **query: object) -> Any:
        return json.loads(self.get(path, **query))

    def begin(self, number: int) -> None:
        """Wait for the first publication, which nothing keeps from being before or after the first
        request, and let the clock come to where this piece of time is passed."""
        eventually(lambda: self._number(_PUBLISHED) is not None)
        self._wait_until_published(2 * number + 2, came_s(number))

    def pass_time(self, sent: list[tuple[str, bytes]], number: int) -> None:
        """What was sent comes at the end of this piece of time; it is scored, published and looked
        at by the alerts before the next. While the clock stands nothing is published, so nobody
        sees half of it."""
        now_s = came_s(number)
        assert self.clock.now_s == now_s
        for signal, body in sent:
            self.post(signal, body)
            self._wait_until_scored()
        self._wait_until_published(2 * number + 3, now_s + _PUBLISHED_S)
        before = self._reported.watchdog_ends
        self.clock.set(now_s + _EVALUATED_S)
        eventually(lambda: self._reported.watchdog_ends > before)
        self._wait_until_published(2 * number + 4, now_s + CHUNK_S)

    def _wait_until_published(self, number: int, at_s: float) -> None:
        self.post("metrics", marker(number, self.clock.now_s))
        self._wait_until_scored()
        self.clock.set(at_s)
        eventually(lambda: self._number(_MARKED) == number)

    def _wait_until_scored(self) -> None:
        """One request after the other: how many are scored together is seen in the order of
        sections."""
        while self._number(_WAITING) != 0:
            assert self._process.poll() is None
            time.sleep(0.001)

    def _number(self, sample: re.Pattern[bytes]) -> float | None:
        result = sample.search(self.get("/metrics"))
        return None if result is None else float(result[1])

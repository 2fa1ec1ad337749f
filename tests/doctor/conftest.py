"""What the doctor's tests share: examinations of an environment, and servers of every kind."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from otel_straggler.collector.service import Collector
from otel_straggler.collector.settings import (
    CollectorSettings,
    MetricsSettings,
    ReceiverSettings,
    ScoringSettings,
)
from otel_straggler.doctor import examination
from otel_straggler.doctor.examination import Options, examine
from otel_straggler.doctor.findings import Finding

FREE = "127.0.0.1:0"
Findings = dict[str, Finding]
Examine = Callable[..., Findings]


def by_id(findings: Any) -> Findings:
    """Findings by id. What holds for all of them is checked here."""
    listed = list(findings)
    for finding in listed:
        assert finding.sentence.endswith((".", "...")), finding
        assert finding.remedy or finding.status in {"ok", "info"}, finding
    return {finding.id: finding for finding in listed}


@pytest.fixture(autouse=True)
def _no_collector_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test asks a collector that happens to run on this machine at the usual port."""
    monkeypatch.setattr(examination, "METRICS_PORT", 1)


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test sees the environment of the machine: a proxy, a job."""
    for name in list(os.environ):
        prefixes = ("OTEL_", "SLURM_", "TORCHELASTIC_", "MASTER_", "RANK", "WORLD_SIZE", "LOCAL_")
        if name.startswith(prefixes) or name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)


@pytest.fixture
def examined(monkeypatch: pytest.MonkeyPatch) -> Examine:
    """Examine an environment: findings by id."""

    def run(env: Mapping[str, str] | None = None, **options: Any) -> Findings:
        for name, value in (env or {}).items():
            monkeypatch.setenv(name, value)
        return by_id(examine(Options(**{"timeout_s": 2.0, **options}), os.environ))

    return run


@dataclass
class Answer:
    """What a plain HTTP server answers to everything."""

    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    ahead_s: float = 0.0


@pytest.fixture
def serve() -> Iterator[Callable[..., str]]:
    """Start a plain HTTP server; gives its URL."""
    servers: list[ThreadingHTTPServer] = []

    def start(**given: Any) -> str:
        answer = Answer(**given)

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length", "0")))
                self.do_GET()

            def do_GET(self) -> None:
                self.send_response_only(answer.status)
                self.send_header("Date", formatdate(time.time() + answer.ahead_s, usegmt=True))
                for name, value in answer.headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(answer.body)))
                self.end_headers()
                self.wfile.write(answer.body)

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        server.daemon_threads = True
        servers.append(server)
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        return f"http://127.0.0.1:{server.server_address[1]}"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.fixture
def black_hole() -> Iterator[str]:
    """An address that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        yield f"http://127.0.0.1:{silent.getsockname()[1]}"


@pytest.fixture
def collector() -> Iterator[dict[str, str]]:
    """URLs of a real collector with short windows."""
    service = Collector(
        CollectorSettings(
            receivers=ReceiverSettings(otlp_http=FREE, otlp_grpc=FREE),
            metrics=MetricsSettings(listen=FREE),
            scoring=ScoringSettings(window_steps=4, grace_s=0.3),
        )
    )
    yield {name: f"http://{address}" for name, address in service.start().items()}
    service.stop()

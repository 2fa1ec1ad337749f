"""Runs that bring every panel into the situation that it is for, fed to a real collector.

=========  =============================================================================
steady     64 ranks in 4 stages; rank 37's GPU is slow; kernels, sensors, checkpoints
stuck      16 ranks; after 45 steps rank 5 does not come to the collective
hot-node   16 ranks, 4 on a host; node-2 is slow; its verdict is muted for a second
(strange)  one rank that has lost records; its names have all that could break a query; another
           sender sends what is no OTLP
=========  =============================================================================

The collector forwards samples, and its budget of series has no room for all sensors of steady.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest

from benchmarks.alert_delay import servers
from otel_straggler import semconv
from otel_straggler.collector.metrics.families import labels
from otel_straggler.demo.processes import Collector
from otel_straggler.model.rank import Source
from otel_straggler.model.rank_metrics import Heartbeat
from otel_straggler.otlp.encode_metrics import encode_heartbeat
from otel_straggler.simulate.auxiliary_metrics import gpu_uuid
from otel_straggler.simulate.writers import resource_of

from .conftest import DCGM

STEADY, STUCK, HOT_NODE = "steady", "stuck", "hot-node"
LOSSY = r"""exp+1 (v2) 'it"s' \d \n $x ${run_id} a.b* c|d {e} [f]^ g/h? 100%, é&#;"""
STRANGE_NODE, STRANGE_SECTION = rf"node {LOSSY}", rf"section {LOSSY}"
SLOW_RANK, STUCK_RANK = 37, 5
_RUNS = {
    STEADY: (
        *("--layout", "pp4,dp16", "--steps", "90"),
        *("--fault", f"compute:1.5@rank{SLOW_RANK}:step0"),
        *("--gpu-timing", "cupti", "--report-hardware", "--checkpoint-every", "20"),
    ),
    STUCK: (
        *("--layout", "dp16", "--fault", f"hang_never_joined@rank{STUCK_RANK}:step45"),
        *("--hold-s", "300", "--steps", "60"),
    ),
    HOT_NODE: (
        *("--layout", "dp16", "--ranks-per-node", "4", "--fault", "compute:1.5@host2:step0"),
        *("--steps", "100"),
    ),
}  # fmt: skip
_FAST = ("--microbatches", "2", "--speed", "10")
"""Ten seconds of a run in one: whatever is lost in a second is ten times as much as it could be."""
_SETTINGS: dict[str, Any] = {
    "metrics": {"series_budget": 6_000},
    "scoring": {"window_steps": 10, "grace_seconds": 0.5},
    "liveness": {
        "lost_after_seconds": 12.0,
        "min_timeout_seconds": 6.0,
        "unknown_timeout_seconds": 12.0,
        "max_timeout_seconds": 24.0,
        "start_timeout_seconds": 24.0,
    },
}


@contextlib.contextmanager
def running_feed(folder: Path, unseen: str) -> Iterator[Feed]:
    """A feed that has begun, and ends with the block. Skips without Prometheus, saying what was
    ``unseen``; under CI that is a failure."""
    try:
        feed = Feed(folder)
    except FileNotFoundError as missing:
        sentence = f"{missing}: {unseen}"
        pytest.fail(sentence) if os.environ.get("CI") else pytest.skip(sentence)
    try:
        feed.begin()
        yield feed
    finally:
        feed.close()


class Feed:
    """Started with :meth:`begin`; :meth:`close` ends all of it.

    Args:
        folder: for files of the servers.

    Raises:
        FileNotFoundError: Prometheus is not installed.
    """

    def __init__(self, folder: Path) -> None:
        program = shutil.which("prometheus")
        if program is None:
            raise FileNotFoundError("prometheus is not installed (make servers)")
        self._folder = folder
        self._closing = contextlib.ExitStack()
        self.began_s = time.time()
        with self._closing:
            nobody = "http://127.0.0.1:9"
            self._behind = self._serve("")
            self._dcgm = self._serve(_dcgm_page())
            prometheus = servers.start_prometheus(
                program, folder / "prometheus", servers.rules(), nobody
            )
            self._closing.callback(prometheus.close)
            self.url = prometheus.url
            self._collector = self._start_collector()
            self._scrape()
            self._closing = self._closing.pop_all()

    def begin(self) -> None:
        """Let all runs run, each in a process of its own."""
        for run_id, flags in _RUNS.items():
            command = [
                *(sys.executable, "-m", "otel_straggler.cli", "simulate", "--run-id", run_id),
                *("--send", self._collector.endpoint, *flags, *_FAST),
            ]
            process = subprocess.Popen(command, stderr=subprocess.DEVNULL, start_new_session=True)
            self._closing.callback(_end, process)
        beat = threading.Thread(target=self._lose, name="lossy", daemon=True)
        self._closing.callback(beat.join, 10.0)
        self._stopping = threading.Event()
        self._closing.callback(self._stopping.set)
        beat.start()

    def close(self) -> None:
        self._closing.close()

    def _lose(self) -> None:
        """A rank that loses some records a second, and says so; a sender of something else, and
        somebody who mutes a verdict for a second once there is one."""
        otlp, has_muted = f"{self._collector.endpoint}/v1", False
        mute = {"action": "mute", "run_id": HOT_NODE, "subject_id": "host/node-2"}
        muting = json.dumps({**mute, "reason": "tried", "seconds": 1.0}).encode()
        source = Source(run_id=LOSSY, rank=0, job=LOSSY, node=STRANGE_NODE, world_size=1)
        began_s = time.time()
        while not self._stopping.wait(1.0):
            now_s = time.time()
            lost = {"ring_full": 10 + int(now_s - began_s)}
            beat = Heartbeat(source=source, sent_at_s=now_s, progress_at_s=now_s, dropped=lost)
            body = encode_heartbeat(
                beat, resource=resource_of(source), info={}, started_at_s=began_s
            )
            _post(f"{otlp}/metrics", body)
            _post(f"{otlp}/traces", b"no OTLP")
            if not has_muted:
                has_muted = _post(f"{self._collector.url}/v1/decisions", muting, "json")

    def _start_collector(self) -> Collector:
        settings = {
            **_SETTINGS,
            "history": {"path": str(self._folder / "history.db")},
            "forward": {"url": self._behind, "mode": "sampled"},
            "alerts": {
                **{k: v for k, v in servers.ALERTS.items() if k != "give_up_seconds"},
                "mode": "page",
                "notify": {"webhook": self._behind, "interval_seconds": 1.0},
            },
        }
        file = self._folder / "collector.yaml"
        file.write_text(json.dumps(settings))
        collector = Collector(f"--config={file}")
        self._closing.callback(collector.close)
        return collector

    def _scrape(self) -> None:
        addresses = [self._collector.addresses["metrics"], self._dcgm.removeprefix("http://")]
        file = self._folder / "prometheus" / "targets.json"
        waiting = file.with_suffix(".new")
        waiting.write_text(json.dumps([{"targets": addresses}]))
        waiting.rename(file)

    def _serve(self, page: str) -> str:
        """A server that gives the page, and takes whatever is sent."""
        server = ThreadingHTTPServer(("127.0.0.1", 0), type("Told", (_Anything,), {"page": page}))
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self._closing.callback(server.server_close)
        self._closing.callback(server.shutdown)
        return f"http://127.0.0.1:{server.server_address[1]}"


def _post(url: str, body: bytes, kind: str = "x-protobuf") -> bool:
    """Whether it was taken."""
    request = urllib.request.Request(url, body, {"Content-Type": f"application/{kind}"})
    try:
        with urllib.request.urlopen(request, timeout=10):
            return True
    except OSError:
        return False


class _Anything(BaseHTTPRequestHandler):
    page: ClassVar[str] = ""
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._answer(self.page.encode())

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self._answer(b"")

    def _answer(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None: ...


def _dcgm_page() -> str:
    """What DCGM exporter would say of the GPUs of the steady run."""
    lines = []
    for name in DCGM:
        lines.append(f"# TYPE {name} gauge\n")
        for rank in range(64):
            index = Source(run_id=STEADY, rank=rank, node=f"node-{rank // 8}", local_rank=rank % 8)
            value = 79 if name.endswith("XID_ERRORS") else 40 + rank % 8
            labels = f'gpu="{rank % 8}",UUID="{gpu_uuid(index)}",modelName="NVIDIA H100"'
            lines.append(f"{name}{{{labels}}} {value}\n")
    assert str(semconv.GPU_UUID) == "hw.id"
    return "".join(lines) + _scores_of_a_strange_section()


def _scores_of_a_strange_section() -> str:
    """As a collector would tell them; beside it one that is called otherwise."""
    lines = []
    for section in (STRANGE_SECTION, "another"):
        about = labels(run_id=LOSSY, job_name=LOSSY, section=section)
        of_rank = labels(rank=0, node=STRANGE_NODE)
        lines.append(f"{semconv.SECTION_INFO.prometheus_name}{{{about}}} 1\n")
        lines.append(f"{semconv.SECTION_RELATIVE.prometheus_name}{{{about},{of_rank}}} 0.5\n")
    return "".join(lines)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()

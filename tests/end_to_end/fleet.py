"""Collectors in this process, simulated runs sent to them, and what they report."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np

from otel_straggler.cli import main
from otel_straggler.collector.service import Collector
from otel_straggler.collector.settings import (
    CollectorSettings,
    ForwardSettings,
    MetricsSettings,
    ReceiverSettings,
)
from otel_straggler.demo.processes import Collector as Process

Json = dict[str, Any]
FREE = "127.0.0.1:0"
STEPS = 100
SCORES = ("section_relative_scores", "section_individual_scores", "section_medians_s")


class Views:
    """What a collector reports; ``otlp`` and ``page`` are its addresses."""

    otlp: str
    page: str

    def close(self) -> None: ...

    def get(self, path: str) -> Json:
        with urllib.request.urlopen(self.page + path, timeout=30) as answer:
            result: Json = json.load(answer)
        return result

    def runs(self) -> Json:
        result: Json = self.get("/v1/report")["runs"]
        return result

    def ranks(self, run_id: str) -> list[str]:
        """Ranks with scores in the newest window."""
        windows = self.runs().get(run_id, {}).get("windows", [])
        return list(windows[-1]["section_relative_scores"]["forward"]) if windows else []

    def last_window(self, run_id: str, last_step: int = STEPS - 1, within_s: float = 60.0) -> Json:
        """The window that ends with this step, once it is there."""

        until_s = time.monotonic() + within_s
        while True:
            run = self.runs().get(run_id, {})
            windows = run.get("windows", [])
            if windows and windows[-1]["last_step"] == last_step:
                result: Json = windows[-1]
                return result
            spans = [(each["first_step"], each["last_step"]) for each in windows]
            state = [(each["state"], each["group"]) for each in run.get("liveness", [])]
            assert time.monotonic() < until_s, (run_id, self.page, spans, state)
            time.sleep(0.05)

    def columns(self, run_id: str) -> list[tuple[int, int]]:
        """First and last step of each window."""
        timeline = self.get(f"/v1/timeline?run={run_id}&section=forward")
        return [(each["first_step"], each["last_step"]) for each in timeline["columns"]]


class Shard(Views):
    """A collector in this process."""

    def __init__(
        self,
        forward: str | ForwardSettings = "",
        otlp_http: str = FREE,
        metrics: MetricsSettings | None = None,
        **changes: Any,
    ) -> None:
        self.collector = Collector(
            CollectorSettings(
                receivers=ReceiverSettings(otlp_http=otlp_http, otlp_grpc=FREE),
                metrics=metrics or MetricsSettings(listen=FREE),
                forward=ForwardSettings(url=forward) if isinstance(forward, str) else forward,
                **changes,
            )
        )
        self._is_closed = False
        self.addresses = self.collector.start()
        self.otlp = f"http://{self.addresses['otlp_http']}"
        self.page = f"http://{self.addresses['metrics']}"

    def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self.collector.stop(5.0)


class ProcessShard(Views):
    """A collector that can be killed. Its settings are those of ``config``."""

    def __init__(self, addresses: dict[str, str], config: Path) -> None:
        self._process = Process(f"--config={config}", addresses=addresses)
        self.otlp, self.page = self._process.endpoint, self._process.url

    def kill(self) -> None:
        """As ``kill -9``."""
        self._process.kill()

    def close(self) -> None:
        self._process.close()


def send_run(url: str, run_id: str, *, slow_rank: int = 2, steps: int = STEPS) -> None:
    """Eight ranks with a known slow one, spans and heartbeats, as fast as they are taken."""
    arguments = ["--ranks", "8", "--steps", str(steps), "--slow-rank", str(slow_rank)]
    sent = ["--send", url, "--speed", "0", "--run-id", run_id]
    assert main(["simulate", *arguments, *sent]) == 0


def send_live_run(url: str, run_id: str, *more: str) -> None:
    """In real time: 100 steps of about a tenth of a second."""
    arguments = more or ("--ranks", "8", "--steps", "100", "--slow-rank", "2")
    sent = ("--run-id", run_id, "--send", url, "--speed", "1")
    assert main(["simulate", *arguments, *sent]) == 0


def assert_same_scores(one: Json, other: Json) -> None:
    """To 1e-9, of windows of the same steps."""
    assert [one[key] for key in ("first_step", "last_step")] == [
        other[key] for key in ("first_step", "last_step")
    ]
    for name in SCORES:
        assert one[name].keys() == other[name].keys()
        for section, by_rank in one[name].items():
            assert by_rank.keys() == other[name][section].keys()
            values = [
                [scores[rank] for rank in by_rank] for scores in (by_rank, other[name][section])
            ]
            np.testing.assert_allclose(*np.array(values, float), rtol=1e-9, err_msg=name)

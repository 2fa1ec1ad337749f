"""Timeouts that reach the collector and its alerts, and the supervisor."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from otel_straggler import semconv
from otel_straggler.agent.config import FaultToleranceConfig
from otel_straggler.agent.process import running_agent
from otel_straggler.agent.reporting import KEPT_S, TimedOut, TimeoutSender
from otel_straggler.testing import CapturedRequests

from ..waiting import eventually
from .conftest import Node

STUCK = """
import otel_straggler
otel_straggler.configure()
otel_straggler.step(7)
client.send_heartbeat()
time.sleep(600)
"""
RANK_3 = TimedOut(
    run_id="run-7", group="", rank=3, attempt=1, node="n1", reason="section_timeout", seconds=12.5
)


def sending(url: str, clock: Callable[[], float]) -> TimeoutSender:
    sender = TimeoutSender({"OTEL_STRAGGLER_ENDPOINT": url}, clock)
    sender.start()
    return sender


def test_a_timeout_is_sent_at_once_with_its_rank() -> None:
    with CapturedRequests() as sink:
        sender = sending(sink.url, lambda: 0.0)
        sender.report(RANK_3)
        sink.wait_for(lambda its: bool(its.points(semconv.RANK_TIMED_OUT)))
        sender.close()
        point = sink.points(semconv.RANK_TIMED_OUT)[0]
    assert point.value == 12.5
    assert point.attributes[semconv.REASON] == "section_timeout"


def test_a_timeout_that_cannot_be_sent_keeps_no_other_back(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    encoded = TimedOut.encoded

    def failing(self: TimedOut, now_s: float) -> bytes:
        return encoded(self, now_s) if self.rank == 4 else bytes(1 / 0)  # type: ignore[arg-type]

    monkeypatch.setattr(TimedOut, "encoded", failing)
    with CapturedRequests() as sink:
        sender = sending(sink.url, lambda: 0.0)
        sender.report(RANK_3)
        eventually(lambda: "timeouts cannot be sent" in caplog.text)
        sender.report(RANK_3._replace(rank=4))
        sink.wait_for(lambda its: bool(its.points(semconv.RANK_TIMED_OUT)))
        sender.close()


def test_it_is_sent_for_a_minute_and_the_newest_of_a_rank_counts() -> None:
    now_s = 0.0
    sender = TimeoutSender({"OTEL_STRAGGLER_ENDPOINT": "http://127.0.0.1:9"}, lambda: now_s)
    sender.report(RANK_3)
    later = RANK_3._replace(attempt=2)
    sender.report(later)
    assert sender.due() == [later]
    now_s = KEPT_S
    assert sender.due() == [later]
    now_s = KEPT_S + 1.0
    assert sender.due() == []


def test_without_a_named_collector_nothing_is_sent() -> None:
    sender = TimeoutSender({})
    sender.start()
    sender.report(RANK_3)
    sender.close()
    assert not sender._thread.is_alive()


@pytest.fixture
def collector() -> Iterator[dict[str, str]]:
    ports = [f"--{name}=127.0.0.1:0" for name in ("otlp-http", "otlp-grpc", "metrics")]
    command = [sys.executable, "-m", "otel_straggler.cli", "collector", *ports]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            yield json.loads(process.stdout.readline())
        finally:
            process.terminate()


def test_a_hang_raises_the_alert_of_a_collector_and_a_report_to_the_supervisor(
    collector: dict[str, Any], tmp_path: Path
) -> None:
    named = {
        "OTEL_STRAGGLER_ENDPOINT": f"http://{collector['otlp_http']}",
        "OTEL_STRAGGLER_RUN_ID": "run-7",
    }
    with CapturedRequests() as supervisor:
        environment = {**os.environ, **named, "OTEL_STRAGGLER_SUPERVISOR": supervisor.url}
        config = FaultToleranceConfig(workload_check_interval=0.05, rank_heartbeat_timeout=0.3)
        agent = running_agent(config, folder=tmp_path / "node", environment=environment)
        with agent as variables:
            node = Node(tmp_path / "node", variables)
            rank = node.start(3, STUCK, **named, WORLD_SIZE="4")
            metrics = eventually(lambda: _timed_out(collector["metrics"]))
            (hang,) = node.hangs
            rank.kill()
            rank.communicate()
    assert 'run_id="run-7"' in metrics
    assert hang["step"] == 7
    assert 'rank="3"' in metrics
    assert 'reason="heartbeat_timeout"' in metrics
    reports = [json.loads(one.body) for one in supervisor.requests]
    assert [one["kind"] for one in reports] == ["agent_started", "rank_hung", "agent_ended"]
    assert (reports[1]["rank"], reports[1]["reason"]) == (3, "heartbeat_timeout")


def _timed_out(address: str) -> str:
    with urllib.request.urlopen(f"http://{address}/metrics") as answer:
        text = answer.read().decode()
    name = semconv.RANK_TIMED_OUT.prometheus_name + "{"
    return next((line for line in text.splitlines() if line.startswith(name)), "")

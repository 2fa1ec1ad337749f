"""A process that ended cleanly is over, however soon it ends and whatever the collector does
meanwhile: nobody is called for it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).with_name("short_runs.py")
ENDING = Path(__file__).with_name("ending_rank.py")
LONGEST_S = 60.0
QUICK = """liveness:
  lost_after_seconds: 3
alerts:
  hang_for_seconds: 1
  evaluation_seconds: 1
scoring:
  max_runs: 5000
"""
LATER_S = 6.0
"""A process without an end is lost by then, and has its alert."""


@pytest.fixture
def collector(tmp_path: Path) -> Iterator[Any]:
    from otel_straggler.demo.processes import Collector

    file = tmp_path / "collector.yaml"
    file.write_text(QUICK)
    collector = Collector(f"--config={file}")
    yield collector
    collector.close()


def pid_of(collector: Any) -> int:
    return int(collector._process.pid)


def outcomes(collector: Any) -> tuple[Counter[str], Counter[str]]:
    """Runs by state, and what fires, once what would fire does."""
    time.sleep(LATER_S)
    with urllib.request.urlopen(f"{collector.url}/v1/report", timeout=60) as answer:
        runs = json.load(answer)["runs"].values()
    states = Counter(run["liveness"][0]["state"] if run["liveness"] else "none" for run in runs)
    return states, Counter(a["labels"]["alertname"] for run in runs for a in run["alerts"])


def test_an_end_reaches_a_collector_that_is_stopped_meanwhile(collector: Any) -> None:
    """Longer than a process waits at its end: its first heartbeat is not answered, and the end is
    sent all the same. With both exporters, with and without shutdown()."""
    os.kill(pid_of(collector), signal.SIGSTOP)
    try:
        ranks = [
            subprocess.Popen(
                [sys.executable, ENDING, collector.endpoint, f"{native}-{end}", end],
                env={**os.environ, "OTEL_STRAGGLER_NATIVE": native, "RANK": "0", "WORLD_SIZE": "1"},
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            for native in ("auto", "off")
            for end in ("shutdown", "return", "exception")
        ]
        assert [rank.wait(LONGEST_S) for rank in ranks] == [0, 0, 1] * 2
    finally:
        os.kill(pid_of(collector), signal.SIGCONT)
    states, alerts = outcomes(collector)
    assert states == {"finished": 2, "ended": 2, "failed": 2}
    assert alerts == {"StragglerRunFailed": 2}


@pytest.mark.parametrize(
    ("number", "stall_s"), [(60, 4.0), pytest.param(2_000, 30.0, marks=pytest.mark.nightly)]
)
def test_no_run_that_ended_at_once_is_lost(collector: Any, number: int, stall_s: float) -> None:
    """Thousands of processes that live for some milliseconds, and a collector that is stopped now
    and then."""
    command = [sys.executable, SCRIPT, collector.endpoint, str(pid_of(collector)), str(number)]
    subprocess.run(
        [*command, str(stall_s)], check=True, stderr=subprocess.DEVNULL, timeout=LONGEST_S + number
    )
    states, alerts = outcomes(collector)
    assert states == {"finished": number // 2, "ended": number // 2}
    assert not alerts

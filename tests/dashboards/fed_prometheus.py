"""A real Prometheus that scrapes a real collector which hears of a simulated run of 64 ranks."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
import requests

from ..collector.prometheus_server import running_prometheus  # noqa: TID252 - shared

LAYOUT: Final = "tp2,pp4,dp8"
WHO: Final = 13
"""The rank that is slow."""
RUN: Final = "slow-gpu"
_LONGEST_S: Final = 180
_CLI: Final = (sys.executable, "-m", "otel_straggler.cli")
_NEEDED: Final = (
    f'straggler_rank_straggling{{rank="{WHO}"}} == 1',
    "rate(straggler_run_gpu_time_lost_seconds_total[10s]) > 0",
    "straggler_worker_slowdown > 1.05",
)


@contextlib.contextmanager
def fed_prometheus(program: str, folder: Path) -> Iterator[str]:
    """Its URL, once the run's slow rank is known to it; the run trains on until the end."""
    settings = {
        "receivers": {"otlp_http": "127.0.0.1:0", "otlp_grpc": "127.0.0.1:0"},
        "metrics": {"listen": "127.0.0.1:0"},
        "scoring": {"window_steps": 10, "grace_seconds": 0.5},
    }
    config = folder / "collector.yaml"
    config.write_text(json.dumps(settings), encoding="utf-8")
    with contextlib.ExitStack() as stack:
        collector = stack.enter_context(_started("collector", "--config", str(config)))
        assert collector.stdout is not None
        addresses = json.loads(collector.stdout.readline())
        address = stack.enter_context(running_prometheus(program, addresses["metrics"], folder))
        stack.enter_context(
            _started(
                "simulate", "--layout", LAYOUT, "--run-id", RUN, "--gpu-timing", "cupti",
                "--fault", f"compute:1.3@rank{WHO}:step40", "--steps", "4000",
                "--send", f"http://{addresses['otlp_http']}",
                "--speed", "4", "--quick-until-step", "160", "--tells-hardware",
            )
        )  # fmt: skip
        url = f"http://{address}"
        _wait_for(url)
        yield url


@contextlib.contextmanager
def _started(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen([*_CLI, *arguments], stdout=subprocess.PIPE, text=True)
    with process:
        try:
            yield process
        finally:
            process.terminate()


def _wait_for(url: str) -> None:
    ends_at = time.monotonic() + _LONGEST_S
    missing = list(_NEEDED)
    while missing and time.monotonic() < ends_at:
        with contextlib.suppress(OSError):  # it is starting
            asked = {"query": missing[0]}
            answer = requests.get(f"{url}/api/v1/query", params=asked, timeout=30).json()
            if answer["data"]["result"]:
                missing.pop(0)
                continue
        time.sleep(0.25)
    if missing:
        pytest.fail(f"not within {_LONGEST_S} s: {missing[0]}")

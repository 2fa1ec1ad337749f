"""Ranks that share a GPU, over processes: verdicts go on after the first one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from otel_straggler.detect.hangs.states import ENDS

RANK = Path(__file__).with_name("gpu_sharing_rank.py")
RANKS, LONGEST_S = 4, 120.0


@pytest.mark.parametrize("per_gpu", [2, 4])
def test_ranks_on_one_gpu_are_named_one_after_the_other(
    start_collector: Callable[..., Any], per_gpu: int
) -> None:
    """The first slow one is named and recovers, then the second is named, each by its own id; the
    page says once that they share a GPU, and nothing has failed."""
    collector = start_collector("--window-steps=20")
    page = trained(collector, per_gpu)
    report = get(f"{collector.url}/v1/report")["runs"]["shared"]
    uuids = [f"GPU-{rank // per_gpu}#{rank}" for rank in range(RANKS)]
    states = {
        uuid: [
            verdict["state"]
            for verdict in report["verdicts"]
            if verdict["subject_id"] == f"rank/node-0/{uuid}" and verdict["state"] != "suspect"
        ]
        for uuid in uuids
    }
    assert states[uuids[2]][:2] == ["confirmed", "recovered"]
    assert "confirmed" in states[uuids[1]]
    [note] = page["notes"]
    assert note["kind"] == "shared_gpu"
    who = "Ranks 0 to 3 share a GPU. " if per_gpu == 4 else "4 ranks share 2 GPUs, such as ranks 0"
    assert note["text"].startswith(who)
    assert "GPU times are not comparable" in note["text"]
    metrics = read(f"{collector.url}/metrics").decode().splitlines()
    failures = [line for line in metrics if line.startswith("straggler_collector_failures_total{")]
    assert [line.rpartition(" ")[2] for line in failures] == ["0"]


def trained(collector: Any, per_gpu: int) -> Any:
    """What the page shows of the ranks once they have ended."""
    ranks = [
        subprocess.Popen(
            [sys.executable, RANK, collector.endpoint, "shared", f"GPU-{rank // per_gpu}"],
            env={
                **os.environ,
                "RANK": str(rank),
                "LOCAL_RANK": str(rank),
                "WORLD_SIZE": str(RANKS),
                "OTEL_RESOURCE_ATTRIBUTES": "host.name=node-0",
            },
        )
        for rank in range(RANKS)
    ]
    try:
        assert [process.wait(LONGEST_S) for process in ranks] == [0] * RANKS
    finally:
        for process in ranks:
            process.kill()
    ends_at_s = time.monotonic() + LONGEST_S
    while True:
        page = get(f"{collector.url}/v1/run?run=shared")
        named = [each["rank"] for each in page["verdicts"] if each["state"] == "confirmed"]
        if page["run"]["state"] in ENDS and 1 in named:
            return page
        assert time.monotonic() < ends_at_s, page
        time.sleep(0.1)


def get(url: str) -> Any:
    return json.loads(read(url))


def read(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=30) as answer:
        return bytes(answer.read())

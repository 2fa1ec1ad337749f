"""``step()`` alone: whole steps are compared, and the slow rank is named."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from otel_straggler.detect.hangs.states import ENDS

RANK = Path(__file__).with_name("stepping_rank.py")
LONGEST_S = 60.0


@pytest.mark.parametrize(
    "ranks",
    [
        "on their own",
        pytest.param(
            "wait for each other",
            marks=pytest.mark.skipif(
                find_spec("torch") is None,
                reason="torch is not installed: "
                "it would show that waiting in collectives is not a rank's own",
            ),
        ),
    ],
)
def test_a_rank_with_slow_steps_is_named_without_any_section(
    start_collector: Callable[..., Any], tmp_path: Path, ranks: str
) -> None:
    """On the page and in the report. Where ranks wait for each other, all steps are equally long,
    and their waiting is measured in torch's collectives."""
    collector = start_collector()
    page = trained(collector, str(tmp_path / "store") if "each other" in ranks else "")
    [verdict] = [each for each in page["verdicts"] if each["state"] == "confirmed"]
    assert (verdict["rank"], verdict["section"]) == (2, "step")
    assert 1.25 < verdict["slowdown"] < 2.5
    assert "rank 2 on node-2 was slow in step" in page["answer"]["headline"]
    assert "with ots.section('data')" in page["answer"]["advice"][-1]
    assert [section["name"] for section in page["sections"]] == ["step"]
    report = get(f"{collector.url}/v1/report")["runs"]["steps"]
    assert [v["rank"] for v in report["verdicts"] if v["state"] == "confirmed"] == [2]


def trained(collector: Any, store: str) -> Any:
    """What the page shows of four ranks that have ended."""
    ranks = [
        subprocess.Popen(
            [sys.executable, RANK, collector.endpoint, "steps", store],
            env={
                **os.environ,
                "RANK": str(rank),
                "WORLD_SIZE": "4",
                "OTEL_RESOURCE_ATTRIBUTES": f"host.name=node-{rank}",
            },
        )
        for rank in range(4)
    ]
    try:
        assert [process.wait(LONGEST_S) for process in ranks] == [0, 0, 0, 0]
    finally:
        for process in ranks:
            process.kill()
    ends_at_s = time.monotonic() + LONGEST_S
    while True:
        page = get(f"{collector.url}/v1/run?run=steps")
        is_scored = any(each["state"] == "confirmed" for each in page["verdicts"])
        if page["run"]["state"] in ENDS and is_scored:
            return page
        assert time.monotonic() < ends_at_s, page
        time.sleep(0.1)


def get(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=30) as answer:
        return json.load(answer)

"""Two real processes, an injected crash, a restart: the account is what the processes measured."""

from __future__ import annotations

import json
import os
import signal
import struct
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from otel_straggler.cli import main
from otel_straggler.testing import TRACES_PATH, CapturedRequests

RANK = Path(__file__).with_name("crashing_rank.py")
MILLISECOND = 1_000_000
Known = list[tuple[str, int, int, int, int, int]]


def run_attempt(endpoint: str, attempt: int) -> dict[int, Known]:
    """What each rank measured; all have ended."""

    def run(rank: int) -> Known:
        command = [sys.executable, str(RANK), endpoint, str(rank), str(attempt)]
        environment = os.environ | {"TORCHELASTIC_RESTART_COUNT": str(attempt)}
        ended = subprocess.run(
            command, capture_output=True, timeout=60, check=False, env=environment
        )
        assert ended.returncode == (0 if attempt else -signal.SIGKILL), ended.stderr.decode()
        known: Known = json.loads(ended.stdout)
        return known

    with ThreadPoolExecutor(2) as threads:
        return dict(enumerate(threads.map(run, range(2))))


@pytest.fixture(scope="module")
def crashed(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], list[Any]]:
    """The account of the run as JSON, and what its ranks measured in each attempt."""
    folder = tmp_path_factory.mktemp("crash")
    with CapturedRequests() as sink:
        known = [run_attempt(sink.url, attempt) for attempt in range(2)]
        bodies = [each.body for each in sink.requests if each.path == TRACES_PATH]
    recording = folder / "run.pb"
    recording.write_bytes(b"".join(struct.pack(">I", len(body)) + body for body in bodies))
    out, page = folder / "goodput.json", folder / "goodput.html"
    assert main(["goodput", str(recording), "--json", str(out), "--html", str(page)]) == 0
    assert "<svg" in page.read_text()
    [run] = json.loads(out.read_text())["runs"]
    return run, known


def sums(known: Known, name: str, first: int = -1, last: int = 99) -> tuple[int, int]:
    """Time inside of and around all activities of a name, and of steps in a range."""
    rows = [row for row in known if row[0] == name and first <= row[1] <= last]
    return sum(row[2] for row in rows), sum(row[3] for row in rows)


def test_categories_add_up_to_the_wall_time_exactly(crashed) -> None:
    run, _ = crashed
    whole_ns = sum(run["time_ns"].values())
    assert abs(whole_ns - (run["end_s"] - run["start_s"]) * 1e9) < MILLISECOND
    assert [sum(rank["time_ns"].values()) for rank in run["ranks"]] == [whole_ns] * 2


@pytest.mark.parametrize(
    "category",
    ["initialization", "preparation", "checkpoint_load", "checkpoint", "eval", "custom:log upload"],
)
def test_reported_activities_take_what_the_processes_measured(crashed, category: str) -> None:
    run, known = crashed
    for rank in run["ranks"]:
        both = [sums(attempt[rank["rank"]], category) for attempt in known]
        low, high = (sum(side) for side in zip(*both, strict=True))
        assert low - MILLISECOND <= rank["time_ns"][category] <= high + MILLISECOND


def test_steps_that_were_done_again_are_lost_and_the_others_count(crashed) -> None:
    """Steps 3 and 4 of the first attempt, without their data loading."""
    run, known = crashed
    assert (run["steps"]["productive"], run["steps"]["redone"]) == (8, 2)
    assert run["steps"]["disruptions"] == 1
    for rank in run["ranks"]:
        first, second = known[0][rank["rank"]], known[1][rank["rank"]]
        loading = [row[2:] for row in first if row[0] == "data"][3:5]
        low, high = sums(first, "step", 3, 4)
        low, high = low - sum(each[1] for each in loading), high - sum(each[0] for each in loading)
        assert low - MILLISECOND <= rank["time_ns"]["redone"] <= high + MILLISECOND
        data = sums(first, "data"), sums(second, "data")
        steps = sums(first, "step", 0, 2), sums(second, "step")
        counted = (
            steps[0][1] + steps[1][1] - (data[0][0] + data[1][0]) + sum(each[1] for each in loading)
        )
        assert rank["time_ns"]["productive"] <= counted + MILLISECOND
        starting = sum(rank["time_ns"].get(name, 0) for name in ("start_up", "reinitialization"))
        inside = steps[0][0] + steps[1][0] - (data[0][1] + data[1][1])
        assert rank["time_ns"]["productive"] + starting >= inside - MILLISECOND


def test_the_time_between_the_attempts_is_the_restart(crashed) -> None:
    """It includes the start of an interpreter."""
    run, _ = crashed
    assert len(run["attempts"]) == 2
    assert run["time_ns"]["restart"] > 10 * MILLISECOND
    assert run["recovery_s"] * 1e9 >= run["time_ns"]["restart"]

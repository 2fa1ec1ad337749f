"""A small dose of ``python -m benchmarks.checkpoints --kills``."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.checkpoints.kills import MATRIX, TIERS_MATRIX, Ledger

ROOT = Path(__file__).parents[2]


def kills(count: int, seed: int, *options: str) -> dict[str, object]:
    module = [sys.executable, "-m", "benchmarks.checkpoints"]
    command = [*module, f"--kills={count}", f"--seed={seed}", *options]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    result: dict[str, object] = json.loads(done.stdout)
    return result


def test_a_kill_in_each_phase_of_each_rank_loses_no_commit() -> None:
    """And every restore is bit-identical."""
    result = kills(len(MATRIX), seed=1)
    assert result["kills"] == len(MATRIX)
    assert (result["lost_commits"], result["differing_restores"]) == (0, 0)


def test_a_kill_in_each_phase_of_each_node_loses_no_commit() -> None:
    """Also while files are copied to a peer or to storage; every other time the node's folder is
    lost, too."""
    result = kills(len(TIERS_MATRIX), 1, "--tiers")
    assert result["kills"] == len(TIERS_MATRIX)
    assert result["lost_nodes"]
    assert (result["lost_commits"], result["differing_restores"]) == (0, 0)


@pytest.mark.nightly
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("options", [(), ("--tiers",)])
def test_two_hundred_kills_lose_no_commit(options: tuple[str, ...]) -> None:
    result = kills(200, 2, *options)
    assert (result["kills"], result["lost_commits"], result["differing_restores"]) == (200, 0, 0)


def test_at_most_the_local_interval_is_lost_with_a_node() -> None:
    """Two nodes die, one after the other, each with its folder; states are the same bit for bit."""
    program = (
        "import json; from benchmarks.checkpoints.lost_nodes import Plan, run;"
        "print(json.dumps(run(Plan(steps=12, step_s=0.0, failures={7: 1, 10: 0}, local_every=2,"
        " stored_every=100, size_bytes=4_000, is_lockstep=True))))"
    )
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    result = json.loads(done.stdout)
    assert [each["lost_steps"] for each in result["recoveries"]] == [1, 2]
    assert all("peer" in each["read"] for each in result["recoveries"])
    assert {"end", "start", "find", "verify", "read", "fetch", "redo"} == set(
        result["recoveries"][0]["phases_s"]
    )
    assert result["differing_restores"] == 0


def test_the_ledger_sees_a_lost_commit_and_a_changed_state(tmp_path: Path) -> None:
    """Else the two tests above could not fail."""
    ledger = Ledger(tmp_path / "ledger")
    ledger.add(kind="state", step=3, rank=0, digest="a")
    ledger.add(kind="commit", step=3, rank=0)
    ledger.add(kind="restore", step=3, rank=0, digest="b")
    ledger.add(kind="restore", step=2, rank=0, digest="a")
    counts = ledger.account()
    assert counts == {"restores": 1, "commits": 1, "lost_commits": 1, "differing_restores": 1}
    assert not any(ledger.account().values())

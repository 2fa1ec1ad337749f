"""A small dose of ``python -m benchmarks.checkpoints --kills``."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.checkpoints.kills import MATRIX, Ledger

ROOT = Path(__file__).parents[2]


def kills(count: int, seed: int) -> dict[str, object]:
    command = [sys.executable, "-m", "benchmarks.checkpoints", f"--kills={count}", f"--seed={seed}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    result: dict[str, object] = json.loads(done.stdout)
    return result


def test_a_kill_in_each_phase_of_each_rank_loses_no_commit() -> None:
    """And every restore is bit-identical."""
    result = kills(len(MATRIX), seed=1)
    assert result["kills"] == len(MATRIX)
    assert (result["lost_commits"], result["differing_restores"]) == (0, 0)


@pytest.mark.nightly
def test_two_hundred_kills_lose_no_commit() -> None:
    result = kills(200, seed=2)
    assert (result["kills"], result["lost_commits"], result["differing_restores"]) == (200, 0, 0)


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

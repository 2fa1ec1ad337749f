"""SIGKILL of a real supervisor at every point of an action: it is done once, or reported."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PROGRAM = Path(__file__).with_name("killed_supervisor.py")
HOSTS = {"a": "cordoned", "s": "running"}


def outcomes(folder: Path, mode: str) -> dict[str | int, Any]:
    """By point: what has been done, and what the journal says."""
    ended = subprocess.run(
        [sys.executable, str(PROGRAM), str(folder), mode],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    results = [json.loads(line) for line in ended.stdout.splitlines()]
    *killed, last = results
    assert last["exit_codes"] == [0, 0], "one was not killed: there are no more points"
    assert len(killed) > 20
    assert {tuple(each["exit_codes"]) for each in killed} == {(-signal.SIGKILL, 0)}
    assert all(each["hosts"] == HOSTS for each in results)
    return {each["point"]: each for each in results}


def test_with_a_check_the_action_is_done_exactly_once_wherever_it_is_killed(
    tmp_path: Path,
) -> None:
    """Before each write of the journal, and before, after and instead of the action itself."""
    results = outcomes(tmp_path, "check")
    assert {each["times"] for each in results.values()} == {1}
    assert {tuple(each["decisions"]) for each in results.values()} == {("done",)}


@pytest.mark.nightly
def test_without_a_check_the_action_is_done_at_most_once_and_reported_as_unknown(
    tmp_path: Path,
) -> None:
    """Only where it may have been in progress; everywhere else it is done once."""
    results = outcomes(tmp_path, "none")
    unknown = {point for point, each in results.items() if each["decisions"] == ["unknown"]}
    assert unknown >= {"before", "after", "instead"}
    assert len(unknown) <= 6, "three statements end the step and the decision, in one transaction"
    assert results["instead"]["times"] == 0
    assert {each["times"] for point, each in results.items() if point != "instead"} == {1}
    done = {tuple(each["decisions"]) for point, each in results.items() if point not in unknown}
    assert done == {("done",)}

"""The benchmark of a newcomer's wait: what it takes for an answer, and what it prepares."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec
from typing import Any

import pytest

from benchmarks import first_answer
from benchmarks.first_answer import ROOT

DEMO = """\
  0.8 s  A collector at http://127.0.0.1:46259 watches 4 ranks;
  5.8 s  Rank 1 on node-0 needs longer in forward from now on.
  9.8 s  A notification arrives, 4.0 s after the fault, through Alertmanager:
│  what   Rank {named} on node-0 slows down run demo                             │
"""


def lines(named: int) -> list[str]:
    return DEMO.format(named=named).splitlines(keepends=True)


def test_the_answer_of_the_demo_is_the_line_of_the_notification() -> None:
    """Not the line in which the demo says which rank it makes slow."""
    answer = 1, "what   Rank 1 on node-0 slows down run demo"
    assert first_answer.named_in_demo(iter(lines(1))) == answer


def test_a_notification_about_another_rank_is_no_answer() -> None:
    """Nor is the end of the output."""
    assert first_answer.named_in_demo(iter(lines(3))) == (None, "")


def test_the_training_is_the_lines_of_the_readme_with_the_collector_that_was_started() -> None:
    """After a model, an optimizer and a loader, as a newcomer has them."""
    code = first_answer.TRAINING + first_answer.lines_of_readme("http://127.0.0.1:9")
    assert 'ots.configure(endpoint="http://127.0.0.1:9")' in code
    compile(code, "train.py", "exec")


@pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed: it would be linked")
def test_torch_is_linked_with_what_it_needs_and_nothing_else() -> None:
    """So pip finds torch installed, and installs the rest as for a newcomer."""
    linked = first_answer.torch_and_needed()
    assert "torch" in linked["torch"]
    assert {"sympy", "filelock"} <= linked.keys()
    assert not linked.keys() & {"numpy", "otel-straggler", "pytest"}
    assert not [top for tops in linked.values() for top in tops if top.endswith(".pth")]


@pytest.mark.parametrize(
    ("way", "right"), [({"rank": 2, "section": "forward"}, 0), ({"rank": 1, "section": "x"}, 1)]
)
def test_the_exit_code_says_whether_the_right_rank_was_named(
    way: dict[str, Any],
    right: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A missed budget is in the JSON alone: it depends on the machine."""
    result = {"total_s": 1e4, "is_right": first_answer.is_planted(way)}
    monkeypatch.setitem(first_answer.WAYS, "with_torch", lambda folder: result)
    assert first_answer.main(["--with-torch"]) == right
    printed = json.loads(capsys.readouterr().out)
    assert printed["missed"] == ["with_torch, seconds to the named rank"]
    assert printed["with_torch"] == result


def test_the_seconds_of_the_pages_are_those_of_the_committed_measurement() -> None:
    """The README has the demo's, the page of costs both."""
    measured = json.loads((ROOT / "docs" / "measurements" / "first_answer.json").read_text())
    demo_s, training_s = (measured[way]["total_s"] for way in ("without_torch", "with_torch"))
    assert f"it took {demo_s:.0f} s" in (ROOT / "README.md").read_text()
    costs = (ROOT / "docs" / "internals" / "costs.md").read_text()
    assert f"| {demo_s:.0f} s, of which the demo" in costs
    assert f"; {training_s:.0f} s, of which the training" in costs


@pytest.mark.nightly
def test_a_newcomer_without_torch_sees_the_right_rank_named() -> None:
    """From a new environment, with what the package index has."""
    command = [sys.executable, "-m", "benchmarks.first_answer", "--without-torch"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    assert "slows down run demo" in json.loads(done.stdout)["without_torch"]["answer"]

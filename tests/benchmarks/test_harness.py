"""What benchmarks share: judging by a budget, medians with intervals, others' processor time."""

from __future__ import annotations

import json
import subprocess
import sys
import time

import pytest

from benchmarks.harness.about import about
from benchmarks.harness.budgets import judge, not_measured, print_result
from benchmarks.harness.intervals import median_of
from benchmarks.harness.processes import cpu_ns, serving
from benchmarks.harness.turns import take_turns


def test_a_result_says_what_it_was_measured_with():
    """Command, commit, machine, versions; a package that is absent is left out."""
    measured = about("numpy", "no-such-package")
    assert measured["command"].startswith("python -m benchmarks.")
    assert measured["commit"]
    assert measured["versions"].keys() == {"numpy"}
    assert {"python", "cpus", "load"} <= measured["machine"].keys()


def test_a_figure_at_its_budget_is_just_met():
    """1.0 of the budget is within it, anything above is not."""
    assert judge(100.0, 100.0, "ns")["is_met"]
    above = judge(150.0, 100.0, "ns")
    assert above["ratio_to_budget"] == 1.5
    assert not above["is_met"]


def test_a_missed_budget_is_said_in_words(capsys):
    """Standard output stays JSON; the sentence goes to standard error."""
    budgets = {"a": judge(3.0, 1.0, "us"), "b": judge(0.5, 1.0, "us"), "c": not_measured("no peer")}
    print_result({"figure": 1}, budgets)
    out, err = capsys.readouterr()
    assert json.loads(out) == {"figure": 1, "budgets": budgets, "missed": ["a"]}
    assert "budget MISSED: a: 3 us of 1 us, ratio 3.00" in err
    assert "budget met: b" in err
    assert "not measured: c: no peer" in err


def test_the_interval_of_a_median_lies_within_the_values():
    """Bootstrap: never wider than what was seen, and around the median."""
    measured = median_of([1.0, 2.0, 3.0, 4.0, 100.0])
    low, high = measured["interval_95"]
    assert 1.0 <= low <= measured["median"] == 3.0 <= high <= 100.0
    assert measured["pairs"] == 5


def test_the_cpu_time_of_another_process_is_what_it_says_itself():
    """All its threads, to the microsecond: ticks of 10 ms would be coarser than what we measure."""
    program = (
        "sum(range(3_000_000)); import time; print(time.process_time_ns(), flush=True); input()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        text_ns = int(other.stdout.readline())
        seen_ns = cpu_ns(other.pid)
        other.communicate(b"\n")
    assert text_ns <= seen_ns < text_ns + 50_000_000
    with pytest.raises(OSError, match=str(other.pid)):
        cpu_ns(other.pid)


def test_a_server_that_does_not_start_is_an_error_that_names_it():
    """Not an empty address that fails later."""
    with (
        pytest.raises(RuntimeError, match="-c pass has ended"),
        serving([sys.executable, "-c", "pass"]),
    ):
        pytest.fail("it should not have started")


def test_ways_take_turns_in_alternating_order():
    """What comes first in one round comes last in the next."""
    order = []
    ways = {"a": lambda: order.append("a"), "b": lambda: order.append("b")}
    taken = take_turns(ways, 2, time.perf_counter_ns)
    assert order == ["b", "a", "a", "b"]
    assert [len(times) for times in taken.values()] == [2, 2]

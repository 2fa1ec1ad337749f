"""What ``benchmarks.faults`` injects, what it counts as found, and that its page is up to date."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.faults import real, simulated
from benchmarks.faults.grading import CAUSES, HANGS, SECTIONS, Watch, as_json, grade, summary
from benchmarks.faults.table import markdown, render
from otel_straggler.inject.faults import KINDS


def verdict(rank: int, state: str = "confirmed", **more: Any) -> dict[str, Any]:
    return {
        "scope": "rank", "rank": rank, "node": "node-0", "state": state, "at_step": 70,
        "section": "forward", "cause": "slow_gpu", "sentence": "slow", **more,
    }  # fmt: skip


def test_a_slow_rank_is_found_by_a_verdict_on_it_and_nothing_else():
    """Delay from the onset, in seconds and steps; suspicions do not count."""
    watch = Watch()
    watch.read({"verdicts": [verdict(3, "suspect")], "liveness": [{"culprits": [3]}]}, 100.0)
    assert not grade(watch, "compute", 3, 90.0, 60)[0]["found"]
    watch.read({"verdicts": [verdict(3), verdict(1)]}, 104.0)
    watch.read({"verdicts": [verdict(3), verdict(1)]}, 109.0)
    result, others = grade(watch, "compute", 3, 90.0, 60)
    assert (result["found"], result["delay_s"], result["delay_steps"]) == (True, 14.0, 10)
    assert result["section_right"]
    assert result["cause_right"]
    assert as_json(others) == [{"way": "verdict", "who": "rank 1", "lasted_s": 5.0, "text": "slow"}]
    assert not grade(watch, "data", 3, 90.0, 60)[0]["section_right"]


def test_a_stopped_rank_is_found_as_the_one_that_others_wait_for():
    """A verdict on its speed does not count."""
    watch = Watch()
    watch.read({"verdicts": [verdict(3)]}, 100.0)
    assert not grade(watch, "rank_killed", 3, 90.0, None)[0]["found"]
    watch.read({"liveness": [{"culprits": [3], "sentence": "Rank 3"}]}, 101.0)
    assert grade(watch, "rank_killed", 3, 90.0, None)[0] == {
        "kind": "rank_killed", "rank": 3, "found": True, "delay_s": 11.0, "text": "Rank 3",
    }  # fmt: skip


def test_a_host_that_is_named_is_somebody_else():
    """A host with one slow rank is not slow."""
    watch = Watch()
    watch.read({"verdicts": [verdict(3, scope="host")]}, 100.0)
    _, others = grade(watch, "compute", 3, 90.0, 60)
    assert [each.who for each in others] == ["host node-0"]


def run(*found: bool, wrong: str = "", alerts: int = 0) -> dict[str, Any]:
    faults = [{"kind": "rank_killed", "found": f, **({"delay_s": 3.0} if f else {})} for f in found]
    named = [{"way": wrong, "who": "rank 2", "lasted_s": 0.3}] if wrong else []
    alerted = [{"alert": f"a{n}", "rank": "2"} for n in range(alerts)]
    return {"run": "r", "faults": faults, "wrong": named, "wrong_alerts": alerted}


def test_recall_and_precision_are_those_of_ranks():
    """Who is named for a moment without an alert counts apart; so do runs without a fault."""
    result = summary([run(True), run(True, wrong="hang"), run(False, wrong="verdict"), run()])
    assert result["totals"]["recall"] == round(2 / 3, 4)
    assert result["totals"]["precision"] == round(2 / 3, 4)
    assert result["totals"]["named_for_a_moment"] == 1
    assert result["healthy"] == {
        "runs": 1, "wrong_verdicts": 0, "wrong_alerts": 0, "named_for_a_moment": 0,
        "longest_moment_s": 0.0,
    }  # fmt: skip
    totals = summary([run(True, wrong="hang", alerts=2)])["totals"]
    assert (totals["precision"], totals["wrong_alerts"]) == (0.5, 1)
    assert totals["named_for_a_moment"] == 0
    assert "| `rank_killed` | 2 of 3 | 3.0 (3.0) |" in markdown({"real": result})


def test_the_deck_has_faults_that_can_be_graded():
    """Each is of a kind with an expected answer, on a rank that there is."""
    faults = real.draw(len(real.DECK), seed=1)
    assert {fault.kind for fault in faults} <= KINDS.keys() & (HANGS | CAUSES.keys())
    assert SECTIONS.keys() == CAUSES.keys()
    assert {rank for fault in faults for rank in fault.ranks} <= set(range(real.RANKS))
    assert [str(f) for f in real.draw(5, 1)] == [str(f) for f in faults[:5]]


@pytest.mark.parametrize("kind", ["crash", "forward"])
def test_a_fault_of_a_simulated_fleet_is_found_in_its_time(kind: str):
    """A crash by the default timeout of 20 s; a slow rank within 40 steps. Nobody else is named."""
    plans = (p for p in simulated.draw(100, seed=3) if p.layout.ranks == 8)
    plan = next(plan for plan in plans if plan.faults[0].kind == kind)
    result = simulated.run_one(plan)
    (fault,) = result["faults"]
    assert fault["found"]
    assert result["wrong"] == result["wrong_alerts"] == []
    if kind == "crash":
        assert 10.0 < fault["delay_s"] < 40.0
    else:
        assert fault["delay_steps"] <= 40


def test_the_page_has_the_tables_of_the_measurement():
    """``--render`` writes them."""
    assert render(check=True) == 0

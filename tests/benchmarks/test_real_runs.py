"""What the benchmark of real trainings plants, and how it judges what is said of them."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import Any

import pytest

from benchmarks.real_runs.grading import Watch, drift, grade, summary
from benchmarks.real_runs.planning import PLACES, SIZES, STEP_S, Fault, Plan, draw

Json = dict[str, Any]
FAULT = Fault(rank=2, place="backward", step=100, seconds=0.02)
PLAN = Plan(run_id="backward-0", steps=300, fault=FAULT)


def ends(steps: int, onset: int, before_s: float, after_s: float) -> list[float]:
    """When each step began, from 1,000 s on."""
    times_s = [before_s if step < onset else after_s for step in range(steps)]
    return [1_000.0, *itertools.accumulate(times_s, initial=1_000.0)][1:]


BEGUN_S = [ends(300, 100, 0.06, 0.08)] * 4


def body(state: str, headline: str, tone: str = "good", **verdict: object) -> Json:
    about = {"state": "confirmed", "scope": "rank", "rank": 2, "section": "backward",
             "since_step": 103, "since_s": 1_006.5, "sentence": "rank 2 is slow"}  # fmt: skip
    return {
        "answer": {"headline": headline, "tone": tone},
        "run": {"state": state, "waste": 0.26},
        "verdicts": [about | verdict] if verdict or state != "starting" else [],
    }


def watched(*bodies: Json) -> Watch:
    watch = Watch()
    for each in bodies:
        watch.read(each)
    return watch


def test_every_place_is_slow_by_every_size_equally_often() -> None:
    plans = list(draw(20, 20, 120.0, seed=1))
    faults = [plan.fault for plan in plans if plan.fault is not None]
    counts = Counter((fault.place, fault.seconds) for fault in faults)
    assert len(plans) == 40
    assert counts == {(place, round(size * STEP_S, 4)): 1 for place in PLACES for size in SIZES}
    assert all(450 <= fault.step <= 1_050 for fault in faults)


def test_a_plan_survives_its_file() -> None:
    assert Plan.from_json(PLAN.as_json()) == PLAN


def test_a_headline_counts_if_more_than_its_numbers_changed() -> None:
    watch = watched(
        body("starting", "Waiting for the first window", "unknown"),
        body("training", "All 4 ranks are alike"),
        body("training", "Rank 2 is slow: 1.31x"),
        body("training", "Rank 2 is slow: 1.33x"),
        body("finished", "The run has finished", "ended"),
    )
    assert watch.judged == ["All 4 ranks are alike", "Rank 2 is slow: 1.31x"]
    assert watch.headlines == [
        "Waiting for the first window",
        *watch.judged,
        "The run has finished",
    ]


def test_a_run_is_judged_by_what_its_ranks_saw() -> None:
    watch = watched(body("training", "Rank 2 is slow"), body("finished", "The run has finished"))
    graded = grade(PLAN, watch, BEGUN_S, [{"alert": "RankStraggling", "rank": "2"}])
    assert graded["found"]
    assert graded["paged"]
    assert graded["section_right"]
    assert graded["false_pages"] == 0
    assert graded["since_step_off"] == 3
    assert graded["since_off_s"] == pytest.approx(0.5)
    assert graded["true_loss"] == pytest.approx(0.25)
    totals = summary([graded])["faulty"]
    assert totals["loss_off"]["max"] == pytest.approx(0.01)


@pytest.mark.parametrize("rank", ["1", "3"])
def test_a_page_about_another_rank_is_false(rank: str) -> None:
    watch = watched(body("training", "Rank 2 is slow"))
    pages = [{"alert": "RankStraggling", "rank": rank}]
    assert grade(PLAN, watch, BEGUN_S, pages)["false_pages"] == 1


def test_every_page_about_a_healthy_run_is_false() -> None:
    healthy = Plan(run_id="healthy-0", steps=300, fault=None)
    watch = watched(body("training", "A is slow"), body("training", "B"), body("training", "C"))
    graded = grade(healthy, watch, BEGUN_S, [{"alert": "RunSlow", "rank": ""}])
    assert graded["false_pages"] == 1
    assert summary([graded])["healthy"] == {
        "runs": 1,
        "false_pages": 1,
        "called_slow": 1,
        "max_changes": 2,
        "drift": {"median": 0.25, "max": 0.25, "missing": 0},
    }


def test_a_healthy_run_says_how_exact_the_truth_is() -> None:
    """As if a fault had begun in it: here its steps take longer from step 100 of 300 on."""
    assert drift([ends(300, 112, 0.06, 0.08)]) == pytest.approx(0.25)
    assert drift([ends(300, 300, 0.06, 0.06)]) == pytest.approx(0.0)


def test_a_rank_that_was_not_named_is_not_found() -> None:
    watch = watched(body("training", "Rank 1 is slow", rank=1))
    graded = grade(PLAN, watch, BEGUN_S, [])
    assert not graded["found"]
    assert summary([graded])["faulty"]["since_step_off"] == {"missing": 0}

"""What the page says of simulated runs while they train: own time, the headline, since when."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from otel_straggler.cli.explanation import explanation
from otel_straggler.collector.views.numbers import from_bytes
from otel_straggler.collector.views.page_json import ResponseMeta
from otel_straggler.collector.views.rank_json import rank_json
from otel_straggler.collector.views.report_json import RunReport, report_json

from .virtual_run import VirtualRun

INSIDE = {"timing": "synchronised", "report_collectives": True, "step_s": 0.5, "microbatches": 2}
"""Collectives run in backward, and ranks report what they wait there."""
ONSET = 100


@pytest.fixture(scope="module")
def slow_backward() -> VirtualRun:
    """Rank 5 of 8 takes 1.25 times as long in backward."""
    return VirtualRun("dp8", f"backward:1.25@rank5:step{ONSET}", steps=300, **INSIDE)


def test_charts_show_what_the_verdict_says(slow_backward: VirtualRun) -> None:
    """By their durations all ranks are alike: page, timeline, and explanation show own time."""
    view, page = slow_backward.view, slow_backward.page
    assert view is not None
    assert page is not None
    (verdict,) = (each for each in page["verdicts"] if each["state"] == "confirmed")
    assert (verdict["rank"], verdict["section"]) == (5, "backward")
    assert verdict["slowdown"] == pytest.approx(1.25, abs=0.03)
    sections = [section["name"] for section in page["sections"]]
    at = sections.index("backward")
    said = {
        "page": page["slowdowns"]["by_section"][at][5],
        "matrix": page["heat"]["cells"][5][2],
        "rank": _of_section(rank_json(view, 5, (), ResponseMeta(version="1")), "slowdown"),
        "timeline": float(from_bytes(_newest_column(slow_backward))[5]),
        "explanation": _explained(slow_backward),
    }
    assert said == pytest.approx(dict.fromkeys(said, verdict["slowdown"]), abs=0.04)
    durations = [_of_section(_rank(view, rank), "step_s") for rank in (4, 5)]
    assert durations[1] / durations[0] == pytest.approx(1.0, abs=0.02)
    assert page["heat"]["pattern_text"].startswith("In backward: One worker is hot")
    others = np.delete(np.array(page["slowdowns"]["by_section"][at]), 5)
    assert (np.abs(others - 1.0) < 0.04).all()


def _rank(view: Any, rank: int) -> dict[str, Any]:
    return rank_json(view, rank, (), ResponseMeta(version="1"))


def _of_section(rank: dict[str, Any], field: str, section: str = "backward") -> float:
    (value,) = (each[field] for each in rank["sections"] if each["name"] == section)
    return float(value)


def _newest_column(run: VirtualRun) -> Any:
    return run.worker.snapshot.runs["run"].columns[""][-1].of_section("backward")


def _explained(run: VirtualRun) -> float:
    view = run.worker.snapshot.runs["run"]
    report = RunReport(windows=[view.windows[-1].json], run_verdicts=view.run_verdicts)
    reported = report_json({"run": report})["runs"]["run"]
    times = explanation("run", reported, reported["verdicts"][-1]).times
    own = {time.rank: time.seconds for time in times}
    return own["5"] / float(np.median([seconds for rank, seconds in own.items() if rank != "5"]))


def test_the_largest_loss_of_a_window_is_one_of_own_time(slow_backward: VirtualRun) -> None:
    """As ``report`` and ``top`` print it."""
    excess = slow_backward.worker.snapshot.runs["run"].windows[-1].json["largest_excess"]
    assert (excess["rank"], excess["section"]) == (5, "backward")
    assert excess["own_s"] / excess["role_median_s"] == pytest.approx(1.25, abs=0.04)


def test_since_is_the_onset_everywhere(slow_backward: VirtualRun) -> None:
    """Not when it was noticed; by the begin of the step."""
    page = slow_backward.page
    assert page is not None
    true_s = _begin_s(slow_backward, ONSET)
    answer = page["answer"]
    (verdict,) = (each for each in page["verdicts"] if each["state"] == "confirmed")
    assert abs(answer["since_step"] - ONSET) <= 5
    assert answer["since_s"] == pytest.approx(true_s, abs=5 * 0.6)
    assert verdict["since_s"] == answer["since_s"]
    assert f"since step {answer['since_step']}" in answer["sentence"]
    noticed_s = verdict["at_ns"] / 1e9
    assert noticed_s - true_s > 5.0


def _begin_s(run: VirtualRun, step: int) -> float:
    begins = {
        each: float(table.start_ns[at].max()) / 1e9
        for table in run.run.tables()
        for at, each in enumerate(table.steps.tolist())
    }
    return begins[step]


WILD = {"noise": "ST", "spikes": 0.02, "rank_offset": 0.02, "report_topology": False, **INSIDE}


@pytest.mark.parametrize("plan", [{"noise": "AR"}, {"noise": "SE"}, WILD])
def test_a_healthy_run_has_few_headlines(plan: dict[str, Any]) -> None:
    """In its first minute, in steps of 0.1 s: it starts, and is well, however its times scatter."""
    headlines: list[str] = []

    def look(run: VirtualRun) -> None:
        page = run.page
        if page is not None and page["answer"]["headline"] not in headlines[-1:]:
            headlines.append(page["answer"]["headline"])

    VirtualRun("dp4", look=look, **{**plan, "steps": 600, "step_s": 0.1, "microbatches": 1})
    assert len(headlines) <= 3, headlines

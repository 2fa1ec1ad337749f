"""What ``benchmarks.inside_backward`` plants, and what it counts as right."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest

from benchmarks.inside_backward import __main__ as inside_backward
from benchmarks.inside_backward.faults import DOSES, DOSES_OF_FEW, WHERE, Fault, draw
from benchmarks.inside_backward.grading import Grade, grade, totals
from benchmarks.inside_backward.rows import ROWS
from benchmarks.inside_backward.table import markdown

pytest.importorskip("torch")

BASE_S = {"data_loading": 0.008, "forward": 0.01, "backward": 0.02, "forward_backward": 0.03}
FAULT = Fault(
    where="layer", dose=0.15, rank=2, onset=70, sleeps={},
    added_s={"forward": 0.0015, "backward": 0.003},
)  # fmt: skip


def verdict(**changed: Any) -> dict[str, Any]:
    """Of the rank that is slow, right in all respects but those that are changed."""
    right = {
        "subject_id": "rank/vm/2", "scope": "rank", "rank": 2, "state": "confirmed", "at_step": 84,
        "section": "backward", "own_s": 0.0231, "peers_s": 0.02, "sentence": "rank 2 is slow",
    }  # fmt: skip
    return right | changed


OTHER = verdict(subject_id="rank/vm/1", rank=1)
RUN = verdict(subject_id="run/uniform_slowdown", scope="run", rank=None)


def graded(*verdicts: dict[str, Any], limit: float | None = None, healthy: bool = False) -> Grade:
    run = {"verdicts": list(verdicts), "run": {"resolvable_slowdown": limit}}
    return grade(run, None if healthy else FAULT)


@pytest.mark.parametrize("name", ["ddp-8", "ddp-3", "checkpointing", "no-sync", "transformers"])
def test_every_place_and_dose_is_planted_equally_often(name: str) -> None:
    """In seconds per step of its sections; of a layer in both, unless they are one."""
    row = ROWS[name]
    faults = draw(row, BASE_S, 24, seed="x")
    doses = DOSES if row.ranks == 8 else DOSES_OF_FEW
    assert Counter((f.where, f.dose) for f in faults) == {(w, d): 2 for w in WHERE for d in doses}
    for fault in faults:
        assert 0 <= fault.rank < row.ranks
        works = {"data_s": fault.sleeps["data_s"]} | {
            work: sum(fault.sleeps[work]) for work in ("forward_s", "backward_s")
        }
        again_s = works["forward_s"] if row.repeats_forward else 0.0
        planted_s = row.executions * (sum(works.values()) + again_s)
        assert sum(fault.added_s.values()) == pytest.approx(planted_s)
        for section in {row.sections[work] for work in WHERE[fault.where]}:
            extra_s = again_s * (section == "backward")
            assert fault.added_s[section] - extra_s == pytest.approx(fault.dose * BASE_S[section])


def test_a_run_is_right_by_rank_section_and_dose_alone() -> None:
    """Own time less that of the peers is compared with what was planted in that section."""
    assert graded(verdict()) == Grade(
        outcome="right", steps=14, part=pytest.approx(0.0031 / 0.003), texts=("rank 2 is slow",)
    )
    assert graded(verdict(section=None, own_s=0.0245, peers_s=0.02)).outcome == "right"
    assert graded(verdict(section="data_loading")).outcome == "wrong_section"
    assert graded(verdict(own_s=0.0237)).outcome == "wrong_dose"
    assert graded(verdict(), verdict(own_s=0.0223, at_step=90)).outcome == "wrong_dose"


def test_who_else_is_named_is_wrong() -> None:
    """At any time; a verdict on the run is somebody else."""
    assert graded(verdict(), OTHER).outcome == "others"
    assert graded(RUN, verdict()).outcome == "others"
    assert graded(OTHER).outcome == "wrong_rank"
    assert graded(OTHER, healthy=True).outcome == "others"
    assert graded(verdict(state="suspect"), healthy=True).outcome == "right"


def test_who_is_not_named_at_the_end_is_nobody() -> None:
    """A suspicion is none; nor is one that was taken back."""
    assert graded().outcome == "nobody"
    assert graded(verdict(state="suspect")).outcome == "nobody"
    assert graded(verdict(), verdict(state="recovered")).outcome == "nobody"


def test_a_limit_below_what_was_planted_is_a_false_all_clear() -> None:
    """Of a run whose slow rank is not named."""
    assert [graded(limit=limit).is_false_alike for limit in (1.1, 1.2, None)] == [
        True,
        False,
        False,
    ]
    assert not graded(verdict(), limit=1.1).is_false_alike


def test_totals_have_every_outcome_and_the_median_of_steps() -> None:
    """None if nobody was named."""
    both = totals([graded(verdict()), graded(verdict(at_step=90), OTHER), graded()])
    assert (both["runs"], both["right"], both["others"], both["nobody"]) == (3, 1, 1, 1)
    assert both["median_steps"] == 17
    assert totals([graded()])["median_steps"] is None


def test_a_row_that_is_not_run_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    """And one that does not exist is refused."""
    row = {"title": "Lightning", "ranks": 4, "not_run": "lightning is not installed"}
    assert "| Lightning | 4 | not run: lightning is not installed |" in markdown([row])
    assert inside_backward.main(["--rows", "ddp-5"]) == 2
    assert "no row ddp-5; there are: ddp-3" in capsys.readouterr().err


@pytest.mark.demo
def test_real_ranks_are_trained_and_graded(capsys: pytest.CaptureFixture[str]) -> None:
    """So few steps that nobody can be named: every run is over, scored, and in the table."""
    small = ("--runs", "1", "--healthy", "1", "--steps", "30", "--share", "--json", "-")
    assert inside_backward.main(["--rows", "ddp-3", *small]) == 0
    row = json.loads(capsys.readouterr().out)["rows"]["ddp-3"]
    assert (row["faults"]["runs"], row["healthy"]["runs"]) == (1, 1)
    assert [run["ours"]["outcome"] for run in row["runs"]] == ["nobody", "right"]
    assert sum(run["added_ms"][name] for run in row["runs"][:1] for name in run["added_ms"]) > 0
    assert markdown([row]).count("DDP, 3 ranks") == 1

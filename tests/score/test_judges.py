"""The judges of all runs: every table goes to its own, and what is new is told once."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from otel_straggler.model.step_table import StepTable
from otel_straggler.score.judges import Judges
from otel_straggler.score.settings import VerdictSettings

from .verdicts.worlds import by_hand, ranks, slower, usual

SLOW = "rank/node-0/3"
HOUR_NS = 3_600 * 10**9


def tables(run: str = "run", *, group: str = "", attempt: int = 0) -> tuple[StepTable, ...]:
    """A hundred steps with a rank that is slow from the fiftieth on."""
    sources = ranks(8, run_id=run, group=group, attempt=attempt)
    return by_hand(slower(usual(100, 8), 3, 1.3, 50), sources=sources)


@pytest.fixture
def judges() -> Judges:
    return Judges(VerdictSettings())


def test_what_is_new_is_told_once_and_stays_known(judges: Judges) -> None:
    """Changes, times of steps, and who was called."""
    judges.take_all(tables())
    new = judges.new_changes()
    assert [v.state for v in new if v.subject_id == SLOW][-1] == "confirmed"
    assert judges.new_changes() == []
    known = [(v.subject_id, v.state, v.at_step) for v in judges.judged("run").changes]
    assert known == [(v.subject_id, v.state, v.at_step) for v in new]
    assert sum(len(times.steps) for times in judges.new_step_times()) == 100
    assert judges.new_step_times() == []
    (page,) = judges.pages("run")
    assert page.verdict.subject_id == SLOW


def test_runs_and_groups_are_judged_apart(judges: Judges) -> None:
    """Also where their tables come in turn."""
    told = [tables("one"), tables("one", group="actor"), tables("two")]
    for of_each in zip(*told, strict=True):
        judges.take_all(of_each)
    assert {v.group for v in judges.judged("one").changes} == {"", "actor"}
    assert len(judges.judged("one").worlds) == 2
    assert {v.run_id for v in judges.judged("two").changes} == {"two"}
    assert len(judges.pages("one")) == 2
    at_ns = [v.at_ns for v in judges.judged("one").changes]
    assert at_ns == sorted(at_ns)
    assert judges.judged("three").worlds == ()


def test_steps_of_an_attempt_that_was_replaced_are_left_out() -> None:
    """Nobody else is given them either."""
    given: list[StepTable] = []
    judges = Judges(VerdictSettings(), given.append)
    newer, older = tables(attempt=1), tables()
    judges.take(newer[0])
    judges.take_all(older)
    judges.take(tables("other")[0])
    assert [(t.sources[0].run_id, t.sources[0].attempt) for t in given] == [
        ("run", 1),
        ("other", 0),
    ]
    assert judges.judged("run").changes == ()


def test_a_run_that_is_dropped_is_judged_anew(judges: Judges) -> None:
    """Also an older attempt of it."""
    judges.take_all(tables(attempt=3))
    judges.take_all(tables("other"))
    judges.forget("run")
    assert judges.judged("run").changes == ()
    assert judges.judged("other").changes
    judges.take_all(tables())
    assert judges.judged("run").changes


def test_runs_of_an_earlier_process_are_let_go_if_nothing_comes_for_so_long(judges: Judges) -> None:
    """Counted from the first look without rows of them."""
    for run in ("gone", "here", "back"):
        judges.take_all(tables(run))
    for now_ns, runs in ((0, ["here"]), (1, ["here", "back"]), (HOUR_NS - 1, ["here"])):
        judges.forget_all_but(runs, now_ns, HOUR_NS)
        assert judges.judged("gone").worlds
    judges.forget_all_but(["here"], HOUR_NS, HOUR_NS)
    assert [bool(judges.judged(run).worlds) for run in ("gone", "here", "back")] == [
        False,
        True,
        True,
    ]


def test_judges_go_on_after_a_restart(judges: Judges) -> None:
    """Who is slow stays so."""
    judges.take_all(tables())
    again = Judges(VerdictSettings())
    again.restore(judges.state())
    assert json.loads(next(iter(again.state()))) == ["run", ""]
    assert again.judged("run").current == judges.judged("run").current
    assert [page.verdict.subject_id for page in again.pages("run")] == [SLOW]


def test_of_too_many_changes_the_newest_are_told() -> None:
    """A reader that does not come costs no more memory."""
    judges = Judges(replace(VerdictSettings(), max_changes=1))
    judges.take_all(tables())
    assert [v.state for v in judges.new_changes()] == ["confirmed"]

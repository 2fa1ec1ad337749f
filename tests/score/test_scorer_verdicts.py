"""The verdicts of all runs: every table goes to its own world, and what is new is drained once."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace

import pytest

from otel_straggler.detect.scores.scorer import Scorer
from otel_straggler.detect.scores.settings import VerdictSettings
from otel_straggler.model.step_table import StepTable

from .verdicts.worlds import by_hand, ranks, slower, usual

SLOW = "rank/node-0/3"
HOUR_NS = 3_600 * 10**9


def tables(run: str = "run", *, group: str = "", attempt: int = 0) -> tuple[StepTable, ...]:
    """A hundred steps with a rank that is slow from the fiftieth on."""
    sources = ranks(8, run_id=run, group=group, attempt=attempt)
    return by_hand(slower(usual(100, 8), 3, 1.3, 50), sources=sources)


def evaluate(scorer: Scorer, tables: Iterable[StepTable]) -> None:
    """As if these tables were due."""
    for table in tables:
        scorer._world(table.sources[0])._evaluate([table])


@pytest.fixture
def scorer() -> Scorer:
    return Scorer()


def test_what_is_new_is_drained_once_and_stays_known(scorer: Scorer) -> None:
    """Changes, times of steps, and who was notified."""
    evaluate(scorer, tables())
    new = scorer.drain_changes()
    assert [v.state for v in new if v.subject_id == SLOW][-1] == "confirmed"
    assert scorer.drain_changes() == []
    known = [(v.subject_id, v.state, v.at_step) for v in scorer.verdicts("run").changes]
    assert known == [(v.subject_id, v.state, v.at_step) for v in new]
    assert sum(len(times.steps) for times in scorer.drain_step_times()) == 100
    assert scorer.drain_step_times() == []
    (page,) = scorer.notifications("run")
    assert page.verdict.subject_id == SLOW


def test_runs_and_groups_are_evaluated_apart(scorer: Scorer) -> None:
    """Also where their tables come in turn."""
    all_tables = [tables("one"), tables("one", group="actor"), tables("two")]
    for of_each in zip(*all_tables, strict=True):
        evaluate(scorer, of_each)
    assert {v.group for v in scorer.verdicts("one").changes} == {"", "actor"}
    assert len(scorer.verdicts("one").worlds) == 2
    assert {v.run_id for v in scorer.verdicts("two").changes} == {"two"}
    assert len(scorer.notifications("one")) == 2
    at_ns = [v.at_ns for v in scorer.verdicts("one").changes]
    assert at_ns == sorted(at_ns)
    assert scorer.verdicts("three").worlds == ()


def test_steps_of_an_attempt_that_was_replaced_are_left_out() -> None:
    """Nobody else is given them either."""
    given: list[StepTable] = []
    scorer = Scorer(on_table=given.append)
    newer, older = tables(attempt=1), tables()
    evaluate(scorer, (newer[0], *older, tables("other")[0]))
    assert [(t.sources[0].run_id, t.sources[0].attempt) for t in given] == [
        ("run", 1),
        ("other", 0),
    ]
    assert scorer.verdicts("run").changes == ()


def test_a_run_that_was_evicted_begins_again(scorer: Scorer) -> None:
    """Also an older attempt of it."""
    evaluate(scorer, tables(attempt=3))
    evaluate(scorer, tables("other"))
    scorer.evict("run")
    assert scorer.verdicts("run").changes == ()
    assert scorer.verdicts("other").changes
    evaluate(scorer, tables())
    assert scorer.verdicts("run").changes


def test_runs_of_an_earlier_process_are_evicted_if_nothing_comes_for_so_long(
    scorer: Scorer,
) -> None:
    """Counted from the first time that nothing was due."""
    evaluate(scorer, tables("gone"))
    again = Scorer()
    again.restore(scorer.state())
    for now_ns in (5, 6, HOUR_NS + 4):
        again.close_due(now_ns)
        assert again.verdicts("gone").changes
        assert again.runs() == ()
    again.close_due(HOUR_NS + 5)
    assert again.verdicts("gone").changes == ()


def test_verdicts_go_on_after_a_restart(scorer: Scorer) -> None:
    """Who is slow stays so."""
    evaluate(scorer, tables())
    again = Scorer()
    again.restore(scorer.state())
    assert json.loads(next(iter(again.state()["judges"]))) == ["run", ""]
    assert again.verdicts("run").current == scorer.verdicts("run").current
    assert [page.verdict.subject_id for page in again.notifications("run")] == [SLOW]


def test_of_too_many_changes_the_newest_are_drained() -> None:
    """A reader that does not come costs no more memory."""
    scorer = Scorer(verdicts=replace(VerdictSettings(), max_changes=1))
    evaluate(scorer, tables())
    assert [v.state for v in scorer.drain_changes()] == ["confirmed"]

"""The book of subjects: what is kept, what is told, what survives."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from otel_straggler.detect.verdicts.log import EvaluationTime, VerdictLog
from otel_straggler.model.verdict import Verdict

DRAFT = Verdict(
    run_id="r",
    subject_id="rank/3",
    scope="rank",
    rank=3,
    state="suspect",
    slowdown=1.3,
    since_step=7,
    confidence=0.9,
    gpu_seconds_lost_per_hour=100.0,
    pages=True,
)


def see(cases: VerdictLog, steps: int, draft: Verdict = DRAFT, **reported: bool) -> Verdict | None:
    printed = {"flagged": False, "sure": False, "clear": False, **reported}
    now = EvaluationTime(steps=steps, step=1000 + steps, at_ns=steps * 10**9)
    return cases.record(draft, floor=0.05, now=now, **printed)


def confirmed(cases: VerdictLog, steps: int = 10, draft: Verdict = DRAFT) -> Verdict | None:
    return see(cases, steps, draft, flagged=True, sure=True)


def test_a_change_of_state_is_told_once_with_step_and_time() -> None:
    """What is unchanged is no news."""
    cases = VerdictLog(100)
    reported = confirmed(cases)
    assert reported is not None
    assert (reported.state, reported.since_step, reported.confirmed_step) == ("confirmed", 7, 1010)
    assert (reported.at_step, reported.at_ns) == (1010, 10 * 10**9)
    assert "rank 3" in reported.sentence
    assert confirmed(cases, 15) is None
    assert len(cases.changes) == 1


def test_a_slowdown_that_grows_until_it_pages_is_told_once_and_is_no_change() -> None:
    """With the step and time at which it began to; also over a restart."""
    cases = VerdictLog(100)
    confirmed(cases, 10, replace(DRAFT, pages=False))
    assert cases.drain_late_notifications() == []
    confirmed(cases, 15)
    confirmed(cases, 20, replace(DRAFT, pages=False))
    confirmed(cases, 25)
    (late,) = cases.drain_late_notifications()
    assert (late.state, late.pages, late.at_step, late.at_ns) == ("confirmed", True, 1015, 15e9)
    assert len(cases.changes) == 1
    assert [(page.at_step, page.ended_ns) for page in cases.notifications] == [(1015, None)]
    again = VerdictLog(100)
    again.restore(json.loads(json.dumps(cases.state())))
    confirmed(again, 30)
    assert again.drain_late_notifications() == []


def test_a_page_ends_when_its_subject_has_recovered() -> None:
    """And the next one is another."""
    cases = VerdictLog(100)
    confirmed(cases)
    for steps in (15, 20, 25):
        see(cases, steps, clear=True)
    confirmed(cases, 30)
    assert [(page.at_ns, page.ended_ns) for page in cases.notifications] == [
        (10e9, 25e9),
        (30e9, None),
    ]
    assert cases.drain_late_notifications() == []


def test_the_newest_verdict_of_a_subject_has_the_newest_numbers() -> None:
    """But still the step and time at which its state changed, and its onset."""
    cases = VerdictLog(100)
    confirmed(cases)
    confirmed(cases, 15, replace(DRAFT, slowdown=1.6, since_step=12))
    (verdict,) = cases.changes
    assert (verdict.slowdown, verdict.since_step, verdict.at_step) == (1.6, 7, 1010)
    assert "1.60x" in verdict.sentence


def test_only_what_is_confirmed_pages_and_is_sure() -> None:
    """A suspicion never does, and what has recovered does not any more."""
    cases = VerdictLog(100)
    see(cases, 5, flagged=True)
    confirmed(cases, 10)
    for steps in (15, 20, 25):
        see(cases, steps, cases.latest()[0], clear=True)
    reported = [(v.state, v.pages, v.confidence) for v in cases.changes]
    assert reported == [
        ("suspect", False, 0.5),
        ("confirmed", True, 0.9),
        ("recovered", False, 0.5),
    ]
    assert cases.changes[-1].gpu_seconds_lost_per_hour == 0.0


def test_open_subjects_are_those_in_trouble() -> None:
    """Of the scope that is asked for."""
    cases = VerdictLog(100)
    confirmed(cases)
    confirmed(cases, 10, replace(DRAFT, subject_id="host/a", scope="host"))
    assert [v.subject_id for v in cases.open_subjects("rank")] == ["rank/3"]
    assert [v.subject_id for v in cases.open_subjects("host")] == ["host/a"]
    for steps in (15, 20, 25):
        see(cases, steps, cases.latest()[0], clear=True)
    assert cases.open_subjects("rank") == []
    assert cases.state_of("nobody").state == "ok"


def test_of_a_thousand_changes_the_newest_are_kept() -> None:
    """Of subjects that come and go; who is in trouble from the beginning stays."""
    cases = VerdictLog(10)
    confirmed(cases, 1)
    for number in range(300):
        draft = replace(DRAFT, subject_id=f"rank/{10 + number}")
        confirmed(cases, 100 * number + 10, draft)
        for steps in (20, 30, 40):
            see(cases, 100 * number + steps, draft, clear=True)
        assert len(cases.changes) <= 10
    assert len(cases.changes) >= 5
    assert cases.changes[0].subject_id == DRAFT.subject_id
    assert cases.changes[-1].subject_id == "rank/309"


@settings(max_examples=30)
@given(st.integers(1, 8), st.lists(st.tuples(st.integers(0, 9), st.booleans()), max_size=80))
def test_memory_is_bounded_and_trouble_is_never_forgotten(
    maximum: int, seen: list[tuple[int, bool]]
) -> None:
    """However few changes may be kept: their order stays, and the newest of every open subject."""
    cases, open_now, reported = VerdictLog(maximum), {}, []
    for steps, (rank, is_slow) in enumerate(seen, 1):
        name = f"rank/{rank}"
        draft = replace(DRAFT, subject_id=name)
        for at in range(1 if is_slow else 3):
            change = see(cases, 10 * steps + at, draft, flagged=is_slow, sure=is_slow, clear=True)
            if change is not None:
                reported.append((change.at_step, name, change.state))
                open_now[name] = change.state
        troubled = {n for n, state in open_now.items() if state in ("confirmed", "flapping")}
        assert {v.subject_id for v in cases.open_subjects("rank")} == troubled
        assert len(cases.changes) <= maximum + 2 * len(troubled) + 1
    kept = [(v.at_step, v.subject_id, v.state) for v in cases.changes]
    assert kept == [one for one in reported if one in kept]
    assert {v.subject_id: v.state for v in cases.latest()}.items() <= open_now.items()


def test_a_book_survives_a_restart_as_json() -> None:
    """A fault goes on where it was: it is neither told anew nor forgotten; NaN is kept."""
    cases = VerdictLog(100)
    confirmed(cases, 10, replace(DRAFT, own_s=float("nan")))
    there = VerdictLog(100)
    there.restore(json.loads(json.dumps(cases.state())))
    assert str(there.changes) == str(cases.changes)
    assert confirmed(there, 5) is None
    for steps in (10, 15, 20):
        see(there, steps, there.latest()[0], clear=True)
    assert [v.state for v in there.changes] == ["confirmed", "recovered"]


def test_steps_are_counted_anew_after_a_restart() -> None:
    """A finding before it and one after it do not confirm each other."""
    cases = VerdictLog(100)
    see(cases, 10, flagged=True)
    there = VerdictLog(100)
    there.restore(cases.state())
    assert see(there, 20, flagged=True) is None
    change = see(there, 30, flagged=True)
    assert change is not None
    assert change.state == "confirmed"


@pytest.mark.parametrize("state", [{}, {"changes": []}, {"standings": {}}])
def test_the_state_of_an_older_version_may_lack_something(state: dict[str, object]) -> None:
    """And a newer one may have more."""
    cases = VerdictLog(100)
    cases.restore(state)
    assert cases.changes == ()
    confirmed(cases)
    newer = cases.state()
    newer["changes"][0]["colour"] = "red"
    newer["standings"]["rank/3"]["mood"] = "bad"
    there = VerdictLog(100)
    there.restore(newer)
    assert there.state_of("rank/3").state == "confirmed"

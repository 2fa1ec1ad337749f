"""Who is dismissed or muted, until when, and that it is kept and counted."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from otel_straggler.collector.api.decisions import MAX_KEPT, Decisions
from otel_straggler.collector.views.verdict_json import decisions_json
from otel_straggler.model.verdict import Decision

HOUR_NS = 3_600 * 10**9
SEEN_NS = 1_790_000_000_000_000_000
"""When the verdict made by hand last changed."""


class Clock:
    now_ns = SEEN_NS

    def __call__(self) -> int:
        return self.now_ns


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def book(clock: Clock) -> Decisions:
    return Decisions(clock)


def decision(action: Any = "dismiss", **changes: Any) -> Decision:
    reported: dict[str, Any] = {
        "run_id": "run",
        "subject_id": "gpu:GPU-5",
        "reason": "a profiler ran",
        "by": "ada",
        "at_ns": SEEN_NS,
        "until_ns": SEEN_NS + HOUR_NS if action == "mute" else None,
        "verdict_at_ns": SEEN_NS,
        "cause": "slow_gpu",
    }
    return Decision(action=action, **reported | changes)


def pages(book: Decisions, *changes: Any, by_hand: Any) -> bool:
    run_verdicts = book.applied(by_hand.run_verdicts(*changes), "run")
    return bool(run_verdicts.current[-1].pages)


def test_nobody_is_called_for_what_was_dismissed_until_it_comes_back(
    book: Decisions, by_hand: Any
) -> None:
    """The same episode is over once the subject was well; the next one calls again."""
    confirmed = by_hand.verdict()
    book.record(decision())
    assert not pages(book, confirmed, by_hand=by_hand)
    flapping = replace(confirmed, state="flapping", at_ns=SEEN_NS + 1)
    assert not pages(book, confirmed, flapping, by_hand=by_hand)
    well = replace(confirmed, state="recovered", pages=False, at_ns=SEEN_NS + 2)
    again = replace(confirmed, at_ns=SEEN_NS + 3)
    assert pages(book, confirmed, well, again, by_hand=by_hand)


def test_a_mute_ends_by_the_clock_and_by_nothing_else(
    book: Decisions, clock: Clock, by_hand: Any
) -> None:
    """Also if the subject was well in between."""
    well = by_hand.verdict("recovered", at_ns=SEEN_NS + 1)
    again = by_hand.verdict(at_ns=SEEN_NS + 2)
    book.record(decision("mute"))
    clock.now_ns += HOUR_NS - 1
    assert not pages(book, well, again, by_hand=by_hand)
    clock.now_ns += 1
    assert pages(book, well, again, by_hand=by_hand)


def test_a_restored_subject_calls_again(book: Decisions, by_hand: Any) -> None:
    """The newest decision counts."""
    for action in ("mute", "restore"):
        book.record(decision(action))
    assert pages(book, by_hand.verdict(), by_hand=by_hand)


def test_only_the_subject_in_its_run_is_silenced(book: Decisions, by_hand: Any) -> None:
    """Everybody else still calls; what is said of the subject stays true."""
    book.record(decision())
    other = by_hand.verdict(subject_id="gpu:GPU-6", rank=6)
    run_verdicts = book.applied(by_hand.run_verdicts(by_hand.verdict(), other), "run")
    assert [(v.state, v.pages) for v in run_verdicts.changes] == [
        ("confirmed", False),
        ("confirmed", True),
    ]
    assert run_verdicts.silenced == {"gpu:GPU-5"}
    elsewhere = by_hand.run_verdicts(by_hand.verdict())
    assert book.applied(elsewhere, "another run") is elsewhere


def test_the_report_shows_every_decision_and_which_is_in_force(
    book: Decisions, by_hand: Any
) -> None:
    """With reason, person and time."""
    for action in ("mute", "restore", "dismiss"):
        book.record(decision(action))
    reported = decisions_json(book.applied(by_hand.run_verdicts(by_hand.verdict()), "run"))
    assert [(each["action"], each["is_in_force"]) for each in reported] == [
        ("mute", False),
        ("restore", False),
        ("dismiss", True),
    ]
    assert (reported[0]["reason"], reported[0]["by"], reported[0]["at_ns"]) == (
        "a profiler ran",
        "ada",
        SEEN_NS,
    )
    assert reported[0]["until_ns"] == SEEN_NS + HOUR_NS


def test_decisions_are_counted_by_cause_and_survive_a_restart(
    book: Decisions, clock: Clock, by_hand: Any
) -> None:
    """Counts too, also of what the book has no room for."""
    for _ in range(MAX_KEPT + 5):
        book.record(decision())
    after = Decisions(clock)
    after.restore(json.loads(json.dumps(book.state())))
    assert after.counts() == book.counts() == {("dismiss", "slow_gpu"): MAX_KEPT + 5}
    assert len(after.state()["book"]) == MAX_KEPT
    assert not pages(after, by_hand.verdict(), by_hand=by_hand)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda state: state.pop("version"),
        lambda state: state.update(version=2),
        lambda state: state["book"][0].pop("subject_id"),
        lambda state: state["book"][0].update(action="praise"),
        lambda state: state["book"][0].update(cause="news"),
        lambda state: state.update(counts=[["dismiss", 3]]),
    ],
)
def test_what_is_no_book_is_refused_and_changes_nothing(
    book: Decisions, clock: Clock, spoil: Any
) -> None:
    """A file of another version may hold anything."""
    book.record(decision())
    state = json.loads(json.dumps(book.state()))
    spoil(state)
    after = Decisions(clock)
    with pytest.raises((ValueError, KeyError, TypeError)):
        after.restore(state)
    assert after.counts() == {}

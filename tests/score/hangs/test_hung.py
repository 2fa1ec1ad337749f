"""When a run as a whole does not get on."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from otel_straggler.detect.hangs.detector import HangStatus, HungRun, is_hung
from otel_straggler.detect.hangs.states import FINISHED, LATE, LOST, OK, STARTING, STUCK
from otel_straggler.detect.scores.settings import HangSettings


def result(state: Any, *rank_states: int) -> HangStatus:
    states = np.array(rank_states, np.int32)
    nothing = np.zeros(len(states))
    return HangStatus(
        state=state,
        since_s=0.0,
        ranks=np.arange(len(states)),
        rank_states=states,
        rank_since_s=nothing,
        timeout_s=nothing,
    )


@pytest.mark.parametrize(
    ("state", "ranks", "hung"),
    [
        ("starting", [STARTING, STARTING], False),
        ("training", [OK, LATE, FINISHED], False),
        ("stuck", [STUCK, OK, OK, OK], True),
        ("stuck", [STUCK] * 4, True),
        ("lost", [LOST] * 4, True),
        ("lost", [LOST, STARTING, STARTING, STARTING], True),  # nobody else ever came
        ("partly_lost", [LOST, OK, OK], False),
        ("partly_lost", [LOST, LATE, LATE], False),
        ("partly_lost", [LOST, LOST, OK, OK], True),
        ("partly_lost", [LOST, STUCK, OK, OK, OK], True),
        ("partly_lost", [LOST, LOST, FINISHED, FINISHED, OK], False),
        ("finished", [FINISHED] * 4, False),
        ("failed", [FINISHED, LOST, LOST, LOST], False),
        ("cancelled", [FINISHED, LOST], False),
        ("preempted", [FINISHED, LOST], False),
        ("forgotten", [LOST] * 4, False),
    ],
)
def test_a_run_is_hung_when_what_is_left_of_it_cannot_get_on(
    state: str, ranks: list[int], hung: bool
) -> None:
    """Stuck, lost, half of it gone, or a survivor that waits; an end is none, whatever is lost."""
    assert is_hung(result(state, *ranks), 0.5) is hung


@pytest.mark.parametrize(("quorum", "hung"), [(0.25, True), (0.26, False), (1.0, False)])
def test_the_quorum_is_a_part_of_the_world(quorum: float, hung: bool) -> None:
    """Ranks that were expected and never heard of are part of it."""
    assert is_hung(result("partly_lost", LOST, OK, OK, STARTING), quorum) is hung


HANGS = result("partly_lost", LOST, STUCK, STUCK)
GOES_ON = result("partly_lost", LOST, OK, OK)


def test_a_run_is_hung_until_its_lost_rank_is_heard_of_again() -> None:
    """The others get on as soon as its process does; its heartbeat comes later."""
    run = HungRun(HangSettings(lost_after_s=20.0))
    assert not run.evaluate(GOES_ON, 90.0)
    assert run.evaluate(HANGS, 100.0)
    assert run.evaluate(GOES_ON, 105.0)
    assert not run.evaluate(result("training", OK, OK, OK), 106.0)


def test_a_run_whose_others_go_on_without_the_lost_rank_is_hung_no_longer() -> None:
    """They have left it behind: it is lost, and the run is not."""
    run = HungRun(HangSettings(lost_after_s=20.0))
    assert run.evaluate(HANGS, 100.0)
    assert run.evaluate(GOES_ON, 120.0)
    assert not run.evaluate(GOES_ON, 121.0)
    assert run.evaluate(HANGS, 130.0)
    assert not run.evaluate(
        GOES_ON, 99.0
    )  # the clock was set back: nobody knows how long ago it was


def test_a_run_that_ends_is_not_hung_any_more() -> None:
    """Whatever was a moment ago."""
    run = HungRun(HangSettings())
    assert run.evaluate(HANGS, 100.0)
    assert not run.evaluate(result("failed", FINISHED, FINISHED, FINISHED), 101.0)

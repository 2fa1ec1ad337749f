"""Since when a run stands still, and what that costs: it adds up, counts none twice and never goes
down."""

from __future__ import annotations

import json

import numpy as np
import pytest

from otel_straggler.detect.hangs.episodes import IdleGpus, Standstill, standstill
from otel_straggler.detect.hangs.states import Blame, RunState

NAN = float("nan")


def idle(since_s: float, idle_s: float, n_idle: int = 8) -> Standstill:
    return Standstill("idle", since_s, idle_s, n_idle)


def test_standstills_add_up_and_each_counts_once() -> None:
    result = IdleGpus()
    totals = []
    for stands in (
        idle(1_000.0, 30.0),
        idle(1_000.4, 60.0),  # the delay of a sender is known better now
        None,
        idle(1_000.2, 50.0),  # the same one, found again
        Standstill("unheard", 1_000.0),
        Standstill("goes_on", 1_050.0, 1e6, 8),
        idle(2_000.0, 10.0, 4),
        idle(float("nan"), 0.0),
        None,
    ):
        result.observe(stands)
        totals.append(result.total_s)
    assert totals == [240.0, *[480.0] * 5, *[520.0] * 3]


def test_a_standstill_that_goes_on_over_a_restart_counts_once() -> None:
    before = IdleGpus()
    before.observe(idle(500.0, 10.0))
    before.observe(idle(1_000.0, 60.0))
    after = IdleGpus.restored(json.loads(json.dumps(before.state())))
    assert after.total_s == before.total_s == 560.0
    after.observe(None)  # it is not called a hang again at once
    after.observe(idle(1_000.0, 100.0))
    assert after.total_s == 880.0
    assert IdleGpus.restored(IdleGpus().state()).total_s == 0.0


NOW_S = 1_000.0
RANKS = np.arange(4)
ALL_LIVE = [1.0, 1.0, 1.0, 1.0]


def stands(
    state: RunState, silent_s: list[float], stalled_s: list[float], lost: tuple[int, ...] = ()
) -> Standstill | None:
    is_lost = np.isin(RANKS, lost)
    return standstill(
        state,
        RANKS,
        Blame("lost" if lost else "joined_but_stuck", is_lost, ~is_lost),
        received=RANKS,
        silent_s=np.array(silent_s),
        stalled_s=np.array(stalled_s),
        known_since_s=970.0,
        now_s=NOW_S,
    )


@pytest.mark.parametrize("state", ["starting", "training", "finished", "failed"])
def test_a_run_that_gets_on_or_has_ended_does_not_stand(state: RunState) -> None:
    assert stands(state, ALL_LIVE, [50.0] * 4) is None


def test_all_stand_since_the_last_progress_of_anybody() -> None:
    """If nobody ever told of any, since it was found out."""
    result = stands("stuck", ALL_LIVE, [300.0, 100.0, NAN, 200.0])
    assert result == Standstill("idle", 900.0, 100.0, 4)
    assert result.lost_s == 400.0
    assert stands("stuck", ALL_LIVE, [NAN] * 4) == Standstill("idle", 970.0, 30.0, 4)


@pytest.mark.parametrize(("stalled_s", "how"), [(60.0, "idle"), (31.0, "idle"), (30.0, "goes_on")])
def test_who_goes_on_for_long_after_a_rank_fell_silent_does_not_wait_for_it(
    stalled_s: float, how: str
) -> None:
    """It may have died at any moment between two heartbeats: 20 s more tell."""
    result = stands("partly_lost", [1.0, 1.0, 50.0, 1.0], [stalled_s] * 4, lost=(2,))
    since_s, lost_s = (NOW_S - stalled_s, 4 * stalled_s) if how == "idle" else (950.0, 0.0)
    assert result is not None
    assert (result.how, result.since_s, result.lost_s) == (how, since_s, lost_s)


def test_of_who_is_not_heard_nobody_knows() -> None:
    """Only since when: the last word of any of them, else since it was found out."""
    silent_s = [200.0, 100.0, 150.0, NAN]
    assert stands("lost", silent_s, [1.0] * 4, lost=(0, 1, 2, 3)) == Standstill("unheard", 900.0)
    assert stands("lost", [NAN] * 4, [NAN] * 4, lost=(0, 1, 2, 3)) == Standstill("unheard", 970.0)

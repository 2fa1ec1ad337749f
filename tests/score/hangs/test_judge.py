"""Whole worlds: those that only pause and end, and those that hang."""

from __future__ import annotations

import os

import pytest

from otel_straggler.score.hangs.judge import Found, HangJudge
from otel_straggler.score.hangs.run_state import HANGS
from otel_straggler.simulate.hang_worlds import (
    HANG_FAULTS,
    HangFault,
    HangPlan,
    HangWorld,
    random_plan,
)

WORLDS = 1_000 if os.environ.get("OTEL_STRAGGLER_TEST_DOSE") == "full" else 50
LOOK_S = 5.0


def watch(world: HangWorld, judge: HangJudge) -> tuple[float, Found] | None:
    """The first moment at which something is wrong, and what is said one heartbeat later."""
    now_s = 0.0
    while now_s < min(world.ends_at_s + 300.0, world.hung_at_s + 4_000.0):
        for table in world.tables(now_s):
            judge.learn(table, 0)
        if judge.look(world.signs(now_s), 0, now_s).state in HANGS:
            after_s = now_s + 1.5 * world.plan.heartbeat_s
            return now_s, judge.look(world.signs(after_s), 0, after_s)
        now_s += LOOK_S
    return None


@pytest.mark.parametrize("seed", range(WORLDS))
def test_no_pause_and_no_end_is_called_a_hang(seed: int) -> None:
    """Checkpoints, evaluations, half an hour of compiling, every kind of end."""
    assert watch(HangWorld(random_plan(seed)), HangJudge()) is None


@pytest.mark.parametrize("fault", HANG_FAULTS)
@pytest.mark.parametrize("seed", range(WORLDS // 5))
def test_every_hang_is_found_in_time_and_put_down_to_the_right_ranks(
    seed: int, fault: HangFault
) -> None:
    """Within two heartbeats and the timeout; nobody is named where nobody can be."""
    world = HangWorld(random_plan(seed, fault))
    judge = HangJudge()
    seen = watch(world, judge)
    assert seen is not None
    now_s, found = seen
    limit_s = float(found.timeout_s.max())
    assert now_s - world.hung_at_s <= limit_s + 2 * world.plan.heartbeat_s + LOOK_S
    assert found.blame is not None
    assert tuple(found.ranks[found.blame.culprits].tolist()) == world.culprits


def test_a_run_that_nobody_hears_of_any_more_stays_lost() -> None:
    """No heartbeats are no recovery."""
    world = HangWorld(HangPlan(fault="crash", at_step=60, ranks=4))
    judge = HangJudge()
    seen = watch(world, judge)
    assert seen is not None
    (culprit,) = world.culprits
    for later_s in (60.0, 3_600.0, 86_400.0):
        found = judge.look(world.signs(seen[0] + later_s), 0, seen[0] + later_s)
        assert found.state_of(culprit) == "lost"
        assert found.since_s <= seen[0] + 10.0


def test_a_rank_that_is_not_known_is_a_mistake_of_the_caller() -> None:
    """KeyError."""
    world = HangWorld(HangPlan(ranks=4, steps=10))
    found = HangJudge().look(world.signs(20.0), 0, 20.0)
    with pytest.raises(KeyError):
        found.state_of(99)


def test_a_restarted_attempt_compiles_again_without_a_page() -> None:
    """Timeouts are kept; the first steps of the new attempt get the time that a start gets."""
    judge = HangJudge()
    assert watch(HangWorld(HangPlan(steps=60, ranks=4)), judge) is None
    again = HangWorld(HangPlan(steps=20, ranks=4, compile_s=900.0))
    now_s = 0.0
    while now_s < 905.0:
        assert judge.look(again.signs(now_s), 1, 10_000.0 + now_s).state not in HANGS
        now_s += LOOK_S


def test_the_first_steps_teach_nothing() -> None:
    """They compile for minutes; a hang of a later step is not given minutes for that."""
    judge = HangJudge()
    world = HangWorld(HangPlan(steps=60, ranks=4, compile_s=1_200.0))
    assert watch(world, judge) is None
    found = judge.look(world.signs(1_240.0), 0, 1_240.0)
    assert found.timeout_s.tolist() == [30.0] * 4

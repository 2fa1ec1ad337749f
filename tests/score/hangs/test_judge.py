"""Whole worlds: those that only pause and end, and those that hang."""

from __future__ import annotations

import os

import pytest

from otel_straggler.detect.hangs.detector import HangDetector, HangStatus
from otel_straggler.detect.hangs.states import HANGS

from .hang_courses import HangCourse, random_course
from .hang_worlds import (
    HANG_FAULTS,
    HangFault,
    HangPlan,
    HangWorld,
)

WORLDS = {"full": 1_000, "few": 10}.get(os.environ.get("OTEL_STRAGGLER_TEST_DOSE", ""), 50)
LOOK_S = 5.0
ENDED_BY_LAUNCHERS = ("killed", "host_gone")


def watch(course: HangCourse, judge: HangDetector) -> tuple[float, HangStatus] | None:
    """The first moment at which something is wrong, and what is said one heartbeat later: a hang,
    or that the world which was to hang has failed."""
    now_s = 0.0

    def look(at_s: float) -> HangStatus:
        return judge.evaluate(course.heartbeats(at_s), course.attempt(at_s), at_s)

    while now_s < min(course.ends_at_s + 300.0, course.hung_at_s + 4_000.0):
        for table in course.tables(now_s):
            judge.learn(table, course.attempt(now_s))
        result = look(now_s)
        if result.is_hung or (result.state == "failed" and now_s >= course.hung_at_s):
            return now_s, look(now_s + 1.5 * course.heartbeat_s)
        now_s += LOOK_S
    return None


def alone(world: HangWorld) -> HangCourse:
    return HangCourse([world], [0])


@pytest.mark.parametrize("seed", range(WORLDS))
def test_no_pause_no_restart_and_no_end_is_called_a_hang(seed: int) -> None:
    """Checkpoints, evaluations, half an hour of compiling, restarts on other ranks and nodes with
    and without a launcher's count, every kind of end, last words that were lost. Nor is any kept
    as one that is over."""
    judge = HangDetector()
    assert watch(random_course(seed), judge) is None
    assert not judge.episodes


@pytest.mark.parametrize("fault", HANG_FAULTS)
@pytest.mark.parametrize("seed", range(WORLDS // 5))
def test_every_hang_is_found_in_time_and_put_down_to_the_right_ranks(
    seed: int, fault: HangFault
) -> None:
    """Within two heartbeats and the timeout, restarted or not; nobody is named where nobody can be.
    Where the launcher ends the others of a rank that was killed, or a node that went, the run has
    failed, and who says nothing is who died."""
    course = random_course(seed, fault)
    judge = HangDetector()
    seen = watch(course, judge)
    assert seen is not None
    now_s, result = seen
    limit_s = float(result.timeout_s.max())
    assert now_s - course.hung_at_s <= limit_s + 2 * course.heartbeat_s + LOOK_S
    if result.is_hung:
        assert result.blame is not None
        assert tuple(result.ranks[result.blame.culprits].tolist()) == course.culprits
    else:
        assert fault in ENDED_BY_LAUNCHERS
    heartbeats = course.heartbeats(now_s + 900.0)
    later = judge.evaluate(heartbeats, course.attempt(now_s), now_s + 900.0)
    assert later.is_hung or later.state == "failed"
    if later.state == "failed":
        wordless = heartbeats.ranks[~heartbeats.has_ended]
        assert tuple(wordless.tolist()) == course.culprits


def test_a_run_that_nobody_hears_of_any_more_stays_lost() -> None:
    """No heartbeats are no recovery."""
    world = HangWorld(HangPlan(fault="crash", at_step=60, ranks=4))
    judge = HangDetector()
    seen = watch(alone(world), judge)
    assert seen is not None
    (culprit,) = world.culprits
    for later_s in (60.0, 3_600.0, 86_400.0):
        result = judge.evaluate(world.heartbeats(seen[0] + later_s), 0, seen[0] + later_s)
        assert result.state_of(culprit) == "lost"
        assert result.since_s <= seen[0] + 10.0


def test_a_rank_that_is_not_known_is_a_mistake_of_the_caller() -> None:
    """KeyError."""
    world = HangWorld(HangPlan(ranks=4, steps=10))
    result = HangDetector().evaluate(world.heartbeats(20.0), 0, 20.0)
    with pytest.raises(KeyError):
        result.state_of(99)


def test_a_restarted_attempt_compiles_again_without_a_page() -> None:
    """Timeouts are kept; the first steps of the new attempt get the time that a start gets."""
    judge = HangDetector()
    assert watch(alone(HangWorld(HangPlan(steps=60, ranks=4))), judge) is None
    again = HangWorld(HangPlan(steps=20, ranks=4, compile_s=900.0))
    now_s = 0.0
    while now_s < 905.0:
        assert judge.evaluate(again.heartbeats(now_s), 1, 10_000.0 + now_s).state not in HANGS
        now_s += LOOK_S


def test_the_first_steps_teach_nothing() -> None:
    """They compile for minutes; a hang of a later step is not given minutes for that."""
    judge = HangDetector()
    world = HangWorld(HangPlan(steps=60, ranks=4, compile_s=1_200.0))
    assert watch(alone(world), judge) is None
    result = judge.evaluate(world.heartbeats(1_240.0), 0, 1_240.0)
    assert result.timeout_s.tolist() == [30.0] * 4

"""The hang judge, look by look: what counts as warm, since when it hangs, what a restart keeps."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest

from otel_straggler.detect.hangs.detector import HangDetector
from otel_straggler.model.observation import NO_STEP, Section
from otel_straggler.model.rank import Source
from otel_straggler.model.step_table import StepTable

ALL = range(4)
START_S, UNKNOWN_S = 3_600.0, 480.0
BETWEEN_S = 12.0


def steps(first: int, *seconds: float, session: str = "s") -> StepTable:
    """Steps of one rank, with so many seconds of ``backward`` in each, and 12 s of nothing."""
    times = np.array(seconds)[:, None, None]
    return StepTable(
        steps=np.arange(first, first + len(seconds)),
        sources=(Source(run_id="run", rank=0, session_id=session),),
        sections=(Section("backward"),),
        seconds=times,
        runs=np.ones(times.shape, np.int32),
        run_cv=np.full((1, 1), np.nan),
        tokens=np.full((len(seconds), 1), np.nan),
        start_ns=np.zeros((len(seconds), 1), np.int64),
        end_ns=((times[:, :, 0] + BETWEEN_S) * 1e9).astype(np.int64),
    )


def taught(*tables: StepTable, attempt: int = 0) -> HangDetector:
    judge = HangDetector()
    for table in tables:
        judge.learn(table, attempt)
    return judge


def timeouts(judge: HangDetector, heartbeats: Any, attempt: int = 0) -> list[float]:
    result: list[float] = judge.evaluate(heartbeats, attempt, 1_000.0).timeout_s.tolist()
    return result


def at(
    heartbeats_of: Any, judge: HangDetector, now_s: float, stalled_s: float, **columns: Any
) -> Any:
    """A look at four ranks of which all progressed so long ago."""
    all_stalled = dict.fromkeys(ALL, stalled_s)
    return judge.evaluate(heartbeats_of(**{"stalled_s": all_stalled, **columns}), 0, now_s)


# --- timeouts -------------------------------------------------------------------------------------


def test_a_timeout_is_that_of_the_section_that_is_open(heartbeats_of: Any) -> None:
    """Three times what it took; what is unknown gets what is unknown."""
    judge = taught(steps(0, 1.0), steps(10, *[20.0] * 40))
    result = timeouts(judge, heartbeats_of(section={1: "forward", 2: ""}))
    assert result == pytest.approx([60.0, UNKNOWN_S, 3.0 * BETWEEN_S, 60.0])


@pytest.mark.parametrize(
    ("again", "timeout_s"),
    [
        (steps(10, *[100.0] * 40), 300.0),  # the next steps
        (steps(10, *[100.0] * 40, session="other"), 60.0),  # a new process compiles
        (steps(5, *[100.0] * 40), 60.0),  # so does one that goes back
    ],
)
def test_the_first_steps_of_a_session_teach_nothing(
    heartbeats_of: Any, again: StepTable, timeout_s: float
) -> None:
    """Nor those after steps went back; three steps later they do."""
    judge = taught(steps(0, 1.0), steps(5, *[20.0] * 40), again)
    assert timeouts(judge, heartbeats_of())[0] == pytest.approx(timeout_s)
    judge.learn(steps(int(again.steps[0]) + 3, *[100.0] * 40, session=session_of(again)), 0)
    assert timeouts(judge, heartbeats_of())[0] == pytest.approx(300.0)


def session_of(table: StepTable) -> str:
    return table.sources[0].session_id


def test_a_new_attempt_teaches_nothing_at_first_either(heartbeats_of: Any) -> None:
    """By the same processes."""
    judge = taught(steps(0, 1.0), steps(5, *[20.0] * 40))
    judge.learn(steps(50, *[100.0] * 40), 1)
    assert timeouts(judge, heartbeats_of(), 1)[0] == pytest.approx(60.0)


@pytest.mark.parametrize(
    ("columns", "is_warm"),
    [
        ({}, True),
        ({"first_step": {1: 98}}, False),  # it compiles, and all wait for it
        ({"first_step": {1: 97}}, True),
        ({"first_step": {1: NO_STEP}}, False),  # what it told first is what it tells now
        ({"first_step": {1: 98}, "silent_s": {1: 21.0}}, True),  # nobody waits for the dead
        ({"first_step": {1: 98}, "ended": {1: "ok"}}, True),
        ({"step": {1: NO_STEP}, "began_s": {1: 3_599.0}}, False),
        ({"step": {1: NO_STEP}, "began_s": {1: 3_601.0}}, True),  # it never will tell
        ({"first_step": {1: 98}, "began_s": {1: 3_601.0}}, False),
        ({"step": dict.fromkeys(ALL, NO_STEP)}, False),
    ],
)
def test_a_start_lasts_until_all_who_live_have_done_their_first_steps(
    heartbeats_of: Any, columns: Any, is_warm: bool
) -> None:
    """Until then everybody has an hour."""
    judge = taught(steps(0, 1.0), steps(5, *[20.0] * 40))
    assert timeouts(judge, heartbeats_of(**columns))[0] == pytest.approx(
        60.0 if is_warm else START_S
    )


# --- states ---------------------------------------------------------------------------------------


def test_a_hang_is_the_same_until_there_was_progress(heartbeats_of: Any) -> None:
    """Also when it is seen, not seen and seen again."""
    judge = HangDetector()
    assert math.isnan(at(heartbeats_of, judge, 1_000.0, 1.0).hung_since_s)
    assert at(heartbeats_of, judge, 1_500.0, 501.0).hung_since_s == 1_500.0
    assert at(heartbeats_of, judge, 1_600.0, 601.0).hung_since_s == 1_500.0
    ended = at(heartbeats_of, judge, 1_610.0, 611.0, ended=dict.fromkeys(ALL, "ok"))
    assert math.isnan(ended.hung_since_s)
    assert at(heartbeats_of, judge, 1_620.0, 621.0).hung_since_s == 1_500.0
    assert math.isnan(at(heartbeats_of, judge, 1_700.0, 1.0).hung_since_s)
    assert at(heartbeats_of, judge, 2_300.0, 601.0).hung_since_s == 2_300.0


def test_a_state_lasts_since_it_began(heartbeats_of: Any) -> None:
    """Of the run and of each rank; a new attempt begins anew."""
    judge = HangDetector()
    at(heartbeats_of, judge, 1_000.0, 1.0)
    at(heartbeats_of, judge, 1_100.0, 1.0)
    result = at(heartbeats_of, judge, 1_200.0, 1.0, silent_s={2: 30.0})
    assert (result.state, result.since_s) == ("partly_lost", 1_200.0)
    assert result.rank_since_s.tolist() == [1_000.0, 1_000.0, 1_200.0, 1_000.0]
    later = at(heartbeats_of, judge, 1_300.0, 1.0, silent_s={2: 130.0})
    assert (later.since_s, later.rank_since_s[2]) == (1_200.0, 1_200.0)
    again = judge.evaluate(heartbeats_of(), 1, 1_400.0)
    assert again.rank_since_s.tolist() == [1_400.0] * 4


def test_who_was_silent_when_the_run_ended_has_ended_with_it(heartbeats_of: Any) -> None:
    """Also for those who come back before it; who falls silent afterwards is lost."""
    judge = HangDetector()
    ended = {"ended": dict.fromkeys((0, 1, 2), "failed")}
    result = at(heartbeats_of, judge, 1_000.0, 50.0, silent_s={3: 50.0}, **ended)
    assert (result.state, result.state_of(3), result.blame) == ("failed", "ended", None)
    back = at(heartbeats_of, judge, 1_060.0, 1.0, silent_s={3: 110.0})
    assert (back.state, back.state_of(3)) == ("training", "ended")
    lost = at(heartbeats_of, judge, 1_100.0, 1.0, silent_s={0: 30.0, 3: 150.0})
    assert (lost.state_of(0), lost.state_of(3)) == ("lost", "ended")


def test_a_run_that_ends_just_now_is_no_hang_unless_it_was_one(heartbeats_of: Any) -> None:
    """One has said that it failed, one is silent and one still has to say it."""
    silent = {0: 20.0, 1: 21.0, 2: 6.0, 3: 6.0}
    ending = {"ended": {0: "failed"}, "ended_s": {0: 20.0}, "silent_s": silent}
    judge = HangDetector()
    assert at(heartbeats_of, judge, 1_000.0, 1.0).state == "training"
    result = at(heartbeats_of, judge, 1_020.0, 20.0, **ending)
    assert (result.state, result.state_of(1)) == ("training", "late")
    hung = HangDetector()
    assert at(heartbeats_of, hung, 1_000.0, 1.0, silent_s={1: 300.0}).state == "partly_lost"
    assert at(heartbeats_of, hung, 1_020.0, 20.0, **ending).state == "partly_lost"


def test_who_fell_silent_before_a_restart_has_two_minutes_to_come_back(heartbeats_of: Any) -> None:
    """The others have come already, one by one. Unless it was lost before that."""
    new = {"began_s": {0: 20.0, 1: 10.0, 2: 15.0}, "silent_s": {3: 40.0}}
    judge = HangDetector()
    at(heartbeats_of, judge, 900.0, 1.0)
    assert at(heartbeats_of, judge, 1_000.0, 1.0, **new).state_of(3) == "starting"
    late = {"began_s": {0: 121.0, 1: 111.0, 2: 116.0}, "silent_s": {3: 141.0}}
    assert at(heartbeats_of, judge, 1_101.0, 1.0, **late).state_of(3) == "lost"
    other = HangDetector()
    assert at(heartbeats_of, other, 980.0, 1.0, silent_s={3: 21.0}).state_of(3) == "lost"
    assert at(heartbeats_of, other, 1_000.0, 1.0, **new).state_of(3) == "lost"


def hung(heartbeats_of: Any) -> HangDetector:
    """Rank 0 kept the others waiting from second 500 on, and woke at 999.5."""
    judge = HangDetector()
    behind = {"step": {0: 99}}
    assert at(heartbeats_of, judge, 495.0, 1.0, **behind).state == "training"
    assert at(heartbeats_of, judge, 998.0, 498.0, **behind).is_hung
    return judge


def test_when_a_hang_is_over_no_rank_is_named_by_a_heartbeat_of_before(heartbeats_of: Any) -> None:
    """The rank that woke reports first, and is ahead of what the others reported last."""
    judge = hung(heartbeats_of)
    woke = {"stalled_s": {0: 0.5, 1: 500.0, 2: 500.0, 3: 500.0}, "step": {0: 101}}
    result = judge.evaluate(heartbeats_of(**woke), 0, 1_000.0)
    assert (result.state, result.blame) == ("training", None)
    assert [result.state_of(rank) for rank in ALL] == ["ok", "late", "late", "late"]


def test_who_is_still_behind_in_its_next_heartbeat_is_named(heartbeats_of: Any) -> None:
    judge = hung(heartbeats_of)
    stalled_s = {0: 0.5, 1: 500.0, 2: 0.4, 3: 0.5}
    steps_of = {0: 101, 2: 101, 3: 101}
    judge.evaluate(heartbeats_of(stalled_s=stalled_s, step=steps_of), 0, 1_000.0)
    stalled_s = {rank: age_s + 2.0 for rank, age_s in stalled_s.items()}
    result = judge.evaluate(heartbeats_of(stalled_s=stalled_s, step=steps_of), 0, 1_002.0)
    assert result.blame is not None
    assert result.blame.culprits.tolist() == [False, True, False, False]


def test_a_stuck_rank_stays_named_while_the_others_never_stop(heartbeats_of: Any) -> None:
    """Its heartbeats are always older than the newest progress of some other rank."""
    judge = HangDetector()
    for now_s in (1_000.0, 1_005.0, 1_010.0):
        stuck = {"stalled_s": {0: 500.0, 1: 0.1, 2: 0.2, 3: 4.0}, "step": {0: 99}}
        result = judge.evaluate(heartbeats_of(**stuck), 0, now_s)
        assert result.blame is not None
        assert result.blame.culprits.tolist() == [True, False, False, False]


def test_only_a_hang_costs(heartbeats_of: Any) -> None:
    """From the last progress on, on all GPUs."""
    judge = HangDetector()
    at(heartbeats_of, judge, 1_000.0, 200.0)
    assert judge.idle_gpu_s == 0.0
    assert at(heartbeats_of, judge, 1_300.0, 500.0).is_hung
    assert judge.idle_gpu_s == 4 * 500.0
    at(heartbeats_of, judge, 1_400.0, 1.0)
    assert judge.idle_gpu_s == 4 * 500.0


# --- over a restart of the collector --------------------------------------------------------------


def test_a_judge_goes_on_from_what_it_knew(heartbeats_of: Any) -> None:
    """Timeouts, since when it hangs and what that has cost."""
    judge = taught(steps(0, 1.0), steps(5, *[20.0] * 40))
    at(heartbeats_of, judge, 1_000.0, 100.0)
    again = HangDetector()
    again.restore(json.loads(json.dumps(judge.state())))
    assert again.idle_gpu_s == judge.idle_gpu_s == 400.0
    result = at(heartbeats_of, again, 1_010.0, 110.0)
    assert result.timeout_s.tolist() == pytest.approx([60.0] * 4)
    assert result.hung_since_s == 1_000.0
    assert again.idle_gpu_s == 440.0
    unused = HangDetector()
    unused.restore(json.loads(json.dumps(HangDetector().state())))
    assert math.isnan(at(heartbeats_of, unused, 1_000.0, 1.0).hung_since_s)


@pytest.mark.parametrize(
    ("attempt", "first_step", "timeout_s"), [(0, 100, 60.0), (0, 99, START_S), (1, 100, START_S)]
)
def test_ranks_that_go_on_where_they_were_have_compiled_long_ago(
    heartbeats_of: Any, attempt: int, first_step: int, timeout_s: float
) -> None:
    """To a collector that was restarted all steps are first ones. A new attempt compiles again, and
    so does who has come less far than all had then."""
    judge = taught(steps(0, 1.0), steps(5, *[20.0] * 40))
    judge.evaluate(heartbeats_of(step={1: 120}), 0, 900.0)
    again = HangDetector()
    again.restore(judge.state())
    first = {"first_step": {**dict.fromkeys(ALL, 100), 2: first_step}}
    result = again.evaluate(heartbeats_of(step={2: first_step}, **first), attempt, 1_000.0)
    assert result.timeout_s[0] == pytest.approx(timeout_s)

"""What is kept of hangs that are over."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from otel_straggler.detect.hangs.detector import HangDetector, HangStatus
from otel_straggler.detect.hangs.episodes import MAX_KEPT, Episodes, Hang, Standstill
from otel_straggler.detect.hangs.states import NOT_ENDED, Blame, HeartbeatTable, RunState

START_S = 1_000.0


def heartbeats(
    stalled_s: list[float], silent_s: list[float] | None = None, ended: int = -1
) -> HeartbeatTable:
    """Of ranks that are in step 40 of training, two on a node."""
    n = len(stalled_s)
    return HeartbeatTable(
        ranks=np.arange(n),
        silent_s=np.array(silent_s or [1.0] * n),
        stalled_s=np.array(stalled_s),
        step=np.full(n, 40),
        section=np.zeros(n, np.int32),
        sections=("forward",),
        is_working=np.full(n, ended == NOT_ENDED),
        ended=np.full(n, ended, np.int32),
        ended_s=np.full(n, math.nan if ended == NOT_ENDED else 1.0),
        node=np.arange(n, dtype=np.int32) // 2,
        began_s=np.full(n, 5_000.0),
        first_step=np.zeros(n, np.int64),
        nodes=("node-0", "node-1"),
    )


class World:
    """Four ranks; rank 2 falls silent and the others wait for it."""

    def __init__(self, judge: HangDetector | None = None) -> None:
        self.judge = judge or HangDetector()
        self.now_s = START_S

    def train(self, seconds: float, attempt: int = 0) -> HangStatus:
        return self._look(seconds, lambda _: heartbeats([0.5] * 4), attempt)

    def hang(self, seconds: float, attempt: int = 0) -> HangStatus:
        def seen(for_s: float) -> HeartbeatTable:
            return heartbeats([for_s] * 4, [1.0, 1.0, for_s, 1.0])

        return self._look(seconds, seen, attempt)

    def end(self) -> HangStatus:
        return self._look(1.0, lambda _: heartbeats([1.0] * 4, ended=0), 0)

    def _look(self, seconds: float, seen, attempt: int) -> HangStatus:
        for for_s in range(1, int(seconds) + 1):
            result = self.judge.evaluate(seen(float(for_s)), attempt, self.now_s + for_s)
        self.now_s += int(seconds)
        return result


def test_a_hang_that_went_on_by_itself_is_kept() -> None:
    """Since the last progress, for whom it waited, where that is, what it cost, how it was over."""
    world = World()
    world.train(10.0)
    hung = world.hang(2_400.0)
    assert (hung.is_hung, hung.before) == (True, ())
    result = world.train(10.0)
    assert not result.is_hung
    [hang] = result.before
    assert (hang.kind, hang.culprits, hang.nodes) == ("lost", (2,), ("node-1",))
    assert (hang.since_s, hang.until_s) == (START_S + 10.0, START_S + 2_411.0)
    assert (hang.end, hang.is_end_seen) == ("went_on", True)
    assert hang.gpu_seconds_lost == pytest.approx(4 * 2_400.0)
    assert world.hang(600.0).before == (hang,)  # the present one is told beside it
    assert len(world.train(5.0).before) == 2


def test_a_hang_ends_with_its_attempt_or_its_run() -> None:
    """Somebody restarted it, or it was over."""
    world = World()
    world.train(10.0)
    world.hang(600.0)
    [first] = world.train(10.0, attempt=1).before
    assert first.end == "restarted"
    world = World()
    world.train(10.0)
    world.hang(600.0)
    [last] = world.end().before
    assert last.end == "ended"


def test_who_was_blamed_first_is_blamed_when_all_are_lost() -> None:
    """A launcher that ends a run after a rank has died makes all of them silent."""
    world = World()
    world.train(10.0)
    world.hang(600.0)
    world._look(300.0, lambda for_s: heartbeats([600.0 + for_s] * 4, [600.0 + for_s] * 4), 0)
    [hang] = world.train(5.0).before
    assert hang.culprits == (2,)


def test_hangs_survive_a_restart_and_an_end_that_nobody_saw_is_said_to_be_such() -> None:
    """The collector was down for an hour, in which the run went on."""
    world = World()
    world.train(10.0)
    world.hang(600.0)
    again = HangDetector()
    again.restore(json.loads(json.dumps(world.judge.state())))
    later = World(again)
    later.now_s = world.now_s + 3_600.0
    [hang] = later.train(5.0).before
    assert (hang.until_s, hang.is_end_seen) == (world.now_s, False)
    assert hang.duration_s == 600.0


def test_a_hang_that_is_found_again_after_a_restart_is_the_same() -> None:
    """The collector needs a timeout to see it again."""
    world = World()
    world.train(10.0)
    world.hang(600.0)
    again = HangDetector()
    again.restore(json.loads(json.dumps(world.judge.state())))
    for for_s in range(600, 1_200):
        seen = heartbeats([float(for_s)] * 4, [1.0, 1.0, float(for_s), 1.0])
        result = again.evaluate(seen, 0, START_S + 10.0 + for_s)
    assert (result.is_hung, result.before) == (True, ())
    world.judge, world.now_s = again, START_S + 1_210.0
    [hang] = world.train(5.0).before
    assert hang.duration_s == pytest.approx(1_201.0)


def test_an_older_state_has_no_hangs() -> None:
    """Of a collector of before."""
    state = HangDetector().state()
    del state["episodes"]
    judge = HangDetector()
    judge.restore(state)
    assert not judge.episodes
    with pytest.raises((ValueError, TypeError, KeyError)):
        judge.restore({**HangDetector().state(), "episodes": {"over": [{}]}})


def test_the_shortest_go_where_there_are_many() -> None:
    """What cost a night stays when a network drops a hundred times."""
    episodes = Episodes()
    blame = Blame("lost", np.array([True]), np.array([False]))

    def take(state: RunState, since_s: float, now_s: float) -> None:
        episodes.observe(
            state,
            Standstill("idle", since_s, now_s - since_s, 4),
            blame,
            heartbeats([now_s - since_s]),
            attempt=0,
            hung_since_s=since_s + 1.0,
            progress_s=since_s if state == "stuck" else now_s,
            now_s=now_s,
        )

    for number in range(MAX_KEPT + 5):
        since_s, lasts_s = 1_000.0 * number, 500.0 if number == 0 else 10.0 + number
        take("stuck", since_s, since_s + lasts_s)
        take("training", since_s, since_s + lasts_s + 1.0)
    kept: tuple[Hang, ...] = episodes.before(is_hung=False)
    assert (len(kept), episodes.left_out) == (MAX_KEPT, 5)
    assert (kept[0].since_s, kept[1].since_s) == (0.0, 6_000.0)

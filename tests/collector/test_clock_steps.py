"""The collector's clock is set by an hour, or its machine sleeps, while ranks train: nobody is
called lost, no age is negative, windows go on."""

from __future__ import annotations

import math
from typing import Any

import pytest

from otel_straggler import semconv
from otel_straggler.collector.runs.clock import CollectorClock
from otel_straggler.collector.runs.hangs import WorldHangs
from otel_straggler.throttle import Throttle

from .watched_world import WatchedWorld

HOUR_S = 3_600.0


def ages(world: WatchedWorld) -> list[float]:
    """Of heartbeats and of progress, on the clock as it is."""
    now_s = world.now_s + world.clock_was_set_by_s
    both = semconv.LAST_HEARTBEAT, semconv.LAST_PROGRESS
    return [now_s - at_s for metric in both for _, at_s in world.samples(metric)]


def states(world: WatchedWorld) -> set[str]:
    """Of ranks, as alerts and pages see them now."""
    world.worker.show_soon()
    world.worker.request_page()
    world.worker._publishing, world.worker._paging = Throttle(math.inf), Throttle(math.inf)
    world.worker._published_at_ns = 0
    world.worker.tick()
    return {labels["state"] for labels, _ in world.samples(semconv.RANK_STATE)}


@pytest.mark.parametrize("on_one_machine", [False, True])
@pytest.mark.parametrize("step_s", [HOUR_S, -HOUR_S, 600.0, -30.0])
def test_ranks_live_on_whatever_the_clock_does(
    kit: Any, step_s: float, on_one_machine: bool
) -> None:
    """At once, and in the twenty minutes for which delays of senders are remembered."""
    world = WatchedWorld(kit.settings())
    world.live(60.0)
    before = states(world)
    assert len(before) == 1
    world.clock_was_set_by_s = step_s
    if on_one_machine:
        world.senders_clock_was_set_by_s = step_s
    for _ in range(28):
        assert states(world) == before
        assert all(0.0 <= age <= 20.0 for age in ages(world)), ages(world)
        world.live(45.0)
    assert "run" in world.worker.snapshot.runs


def test_a_rank_that_is_lost_stays_so_and_for_as_long(kit: Any) -> None:
    """Setting the clock is no way to raise the dead."""
    world = WatchedWorld(kit.settings())
    world.live(60.0)
    world.live(60.0, silent=[3])
    lost = states(world)
    assert "lost" in lost
    world.clock_was_set_by_s = -HOUR_S
    assert states(world) == lost
    world.live(10.0, silent=[3])
    assert states(world) == lost
    assert 60.0 <= max(ages(world)) <= 90.0


@pytest.mark.parametrize("step_s", [HOUR_S, -HOUR_S])
def test_a_hang_stays_one_hang_and_costs_no_more(kit: Any, step_s: float) -> None:
    """What people read of it are times of the wall clock as it is."""
    world = WatchedWorld(kit.settings())
    world.live(60.0)
    world.stand()
    hangs = world.worker._store.runs["run"].worlds[""].hangs
    cost_s, since_s, detected_s = hangs.idle_gpu_s, shown_since(world), detected_at(hangs)
    assert cost_s > 0.0
    world.clock_was_set_by_s = world.senders_clock_was_set_by_s = step_s
    world.stand(30.0)
    assert hangs.idle_gpu_s == pytest.approx(cost_s + 4 * 30.0, rel=0.05)
    assert shown_since(world) == pytest.approx(since_s + step_s, abs=1.0)
    assert detected_at(hangs) == detected_s
    world.live(60.0)
    (over,) = hangs.episodes.before(is_hung=False)
    assert over.end == "went_on"
    assert over.duration_s == pytest.approx(cost_s / 4 + 30.0, rel=0.1)
    (shown,) = world.worker.snapshot.runs["run"].hangs[""].before
    assert shown.detected_s == pytest.approx(over.detected_s + step_s, abs=1.0)


def shown_since(world: WatchedWorld) -> float:
    """Since when the world hangs, as people read it."""
    states(world)
    return world.worker.snapshot.runs["run"].hangs[""].hung_since_s


def detected_at(hangs: WorldHangs) -> tuple[float, int]:
    """When the hang that lasts was found, by the collector's clock, and how many are over."""
    last = hangs.episodes._current
    assert last is not None
    return last.detected_s, len(hangs.episodes._over)


def test_times_are_counted_from_arrival_and_shown_by_the_wall_clock() -> None:
    """A request that waited in the queue while the clock was set; and small steps are none."""
    now = {"wall": 1000.0, "mono": 50.0}
    clock = CollectorClock(lambda: int(now["mono"] * 1e9), lambda: now["wall"])
    arrived_ns = int(now["mono"] * 1e9)
    now.update(wall=1000.4, mono=50.1)
    clock.follow_wall_clock()
    assert (clock.at_s(arrived_ns), clock.ahead_s) == (1000.0, 0.0)
    now.update(wall=4600.5, mono=50.2)
    clock.follow_wall_clock()
    assert clock.at_s(arrived_ns) == 1000.0
    assert clock.at_s(arrived_ns) + clock.ahead_s == pytest.approx(4600.3)
    before_s = clock.ahead_s
    clock.follow_wall_clock()
    assert clock.ahead_s == before_s

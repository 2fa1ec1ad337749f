"""What signs of life say of a run as a whole."""

from __future__ import annotations

from otel_straggler import semconv
from otel_straggler.collector.settings import CollectorSettings

from .watched_world import WatchedWorld


def test_a_run_began_when_it_was_first_heard_of() -> None:
    """The time stays while its ranks go on, and a new attempt has its own."""
    world = WatchedWorld(CollectorSettings(), 2)
    world.live(30.0)
    began_s = world.value(semconv.RUN_STARTED)
    assert began_s is not None
    assert world.now_s - 31.0 <= began_s <= world.now_s - 20.0
    world.live(30.0)
    assert world.value(semconv.RUN_STARTED) == began_s
    world.attempt = 1
    world.live(10.0)
    restarted_s = world.value(semconv.RUN_STARTED)
    assert restarted_s is not None
    assert restarted_s > began_s + 50.0


def test_open_sections_are_counted_over_ranks() -> None:
    """Of ranks that have not ended; the one that is elsewhere stands out."""
    world = WatchedWorld(CollectorSettings(), 4)
    world.live(10.0)
    world.say(3, open_section="data_loading")
    world.look()
    assert world.by("section", semconv.RUN_OPEN_SECTIONS) == {"forward": 3.0, "data_loading": 1.0}
    world.end("ok", [3])
    world.look()
    assert world.by("section", semconv.RUN_OPEN_SECTIONS) == {"forward": 3.0}


def test_many_open_sections_are_put_together() -> None:
    """Names come from programs: a hundred of them are no hundred series."""
    world = WatchedWorld(CollectorSettings(), 40)
    world.live(5.0)
    for rank in range(40):
        world.now_s += 0.01
        world.say(rank, open_section=f"section {rank}")
    world.look()
    counted = world.by("section", semconv.RUN_OPEN_SECTIONS)
    assert len(counted) == 21
    assert counted[semconv.OTHER_SECTION] == 20.0

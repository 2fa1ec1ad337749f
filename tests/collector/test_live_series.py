"""What signs of life say of a run as a whole."""

from __future__ import annotations

from otel_straggler import semconv
from otel_straggler.collector.settings import CollectorSettings, MetricsSettings

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


def test_of_many_ranks_those_in_trouble_show_everything() -> None:
    """Where signs of life do not fit half of the budget: every rank keeps what a page finds it by,
    one that is lost keeps all, and the run says how old the oldest sign is and how many are folded.
    """
    world = WatchedWorld(CollectorSettings(metrics=MetricsSettings(series_budget=2_200)), 200)
    world.live(10.0)
    silent_s = world.now_s
    world.live(40.0, silent=[190])
    assert len(world.by("rank", semconv.LAST_HEARTBEAT)) == 200
    [(of_lost, _)] = world.samples(semconv.RANK_STATE, rank="190")
    assert of_lost["state"] == "lost"
    for metric in (semconv.RANK_TIMEOUT, semconv.LAST_PROGRESS):
        shown = world.by("rank", metric)
        assert len(shown) == 100
        assert {"0", "190"} <= shown.keys()
        family = metric.prometheus_name
        assert world.value(semconv.COLLECTOR_SERIES_FOLDED, family=family) == 100.0
    oldest_s = world.value(semconv.RUN_OLDEST_HEARTBEAT)
    assert oldest_s == min(world.by("rank", semconv.LAST_HEARTBEAT).values())
    assert oldest_s is not None
    assert silent_s - 10.0 <= oldest_s <= silent_s
    assert world.value(semconv.RUN_OLDEST_PROGRESS) is not None
    assert world.value(semconv.RUN_STEP) == max(world.steps.values())


def test_the_oldest_is_of_ranks_that_have_not_ended() -> None:
    """One that has ended is silent for good; when all have, there is no oldest."""
    world = WatchedWorld(CollectorSettings(), 2)
    world.live(10.0)
    world.end("ok", [1])
    world.live(30.0, silent=[1])
    oldest_s = world.value(semconv.RUN_OLDEST_HEARTBEAT)
    assert oldest_s is not None
    assert oldest_s > world.now_s - 10.0
    world.end("ok", [0])
    world.look()
    assert world.value(semconv.RUN_OLDEST_HEARTBEAT) is None

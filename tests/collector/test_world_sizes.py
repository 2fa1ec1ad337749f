"""A process that reports a wrong world size: nobody believes in two billion ranks to look after."""

from __future__ import annotations

from typing import Any

from otel_straggler import semconv
from otel_straggler.collector.runs.hangs import MAX_UNHEARD

HUGE = 2**31 - 1
LARGE = MAX_UNHEARD + 1_000


def test_of_a_world_that_is_mostly_missing_the_lowest_ranks_are_shown(start: Any, kit: Any) -> None:
    """With how many are missing; the ranks that send are there."""
    live = start(scoring__max_ranks=LARGE)
    for number in range(3):
        beat = kit.beat_of(kit.rank(number, LARGE), sent_at_s=1.79e9, step=5)
        assert live.post(beat, "metrics").status == 200

    def run_view() -> Any:
        reported = live.get("/v1/run").json()
        shown = len(reported.get("ranks", {}).get("rank", ()))
        return reported if shown == 3 + MAX_UNHEARD else None

    reported = kit.eventually(run_view)
    assert reported["run"]["world_size"] == LARGE
    assert reported["ranks"]["rank"] == list(range(3 + MAX_UNHEARD))
    missing = reported["ranks"]["states"].index("missing")
    assert reported["ranks"]["state"].count(missing) == MAX_UNHEARD
    assert live.value(semconv.RUN_RANKS, state="missing") == LARGE - 3
    assert live.report()["runs"]["run"]["liveness"]


def test_a_world_size_that_cannot_be_is_set_aside_and_its_ranks_are_monitored(
    live: Any, kit: Any
) -> None:
    """No rank is missing of a world of two billion, and the page says which process said so."""
    for number in range(3):
        beat = kit.beat_of(kit.rank(number, HUGE), sent_at_s=1.79e9, step=5)
        assert live.post(beat, "metrics").status == 200
    kit.eventually(lambda: live.value(semconv.COLLECTOR_REJECTED, what="world_size") == 3)
    kit.eventually(lambda: len(live.get("/v1/run").json().get("ranks", {}).get("rank", ())) == 3)
    assert live.value(semconv.RUN_RANKS, state="missing") in (0, None)
    (problem,) = live.get("/v1/runs").json()["problems"]
    assert "the world size 2147483647; expected below 16384" in problem

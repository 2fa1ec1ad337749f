"""A process that tells a wrong world size: nobody believes in two billion ranks to look after."""

from __future__ import annotations

from typing import Any

from otel_straggler import semconv
from otel_straggler.collector.runs.hangs import MAX_UNHEARD

HUGE = 2**31 - 1


def test_a_world_size_that_is_a_lie_costs_nothing(live: Any, kit: Any) -> None:
    """It is shown as it was told, with how many are missing; the ranks that send are there."""
    for number in range(3):
        beat = kit.beat_of(kit.rank(number, HUGE), sent_at_s=1.79e9, step=5)
        assert live.post(beat, "metrics").status == 200

    def run_view() -> Any:
        reported = live.get("/v1/run").json()
        shown = len(reported.get("ranks", {}).get("rank", ()))
        return reported if shown == 3 + MAX_UNHEARD else None

    reported = kit.eventually(run_view)
    assert reported["run"]["world_size"] == HUGE
    assert reported["ranks"]["rank"] == list(range(3 + MAX_UNHEARD))
    missing = reported["ranks"]["states"].index("missing")
    assert reported["ranks"]["state"].count(missing) == MAX_UNHEARD
    assert live.value(semconv.RUN_RANKS, state="missing") == HUGE - 3
    assert live.report()["runs"]["run"]["liveness"]

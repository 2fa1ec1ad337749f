"""What standstills cost: it adds up, counts none twice and never goes down."""

from __future__ import annotations

import json

from otel_straggler.score.hangs.standstill import IdleGpus, Standstill


def idle(since_s: float, idle_s: float, n_idle: int = 8) -> Standstill:
    return Standstill("idle", since_s, idle_s, n_idle)


def test_standstills_add_up_and_each_counts_once() -> None:
    found = IdleGpus()
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
        found.take(stands)
        totals.append(found.total_s)
    assert totals == [240.0, *[480.0] * 5, *[520.0] * 3]


def test_a_standstill_that_goes_on_over_a_restart_counts_once() -> None:
    before = IdleGpus()
    before.take(idle(500.0, 10.0))
    before.take(idle(1_000.0, 60.0))
    after = IdleGpus.restored(json.loads(json.dumps(before.state())))
    assert after.total_s == before.total_s == 560.0
    after.take(None)  # it is not called a hang again at once
    after.take(idle(1_000.0, 100.0))
    assert after.total_s == 880.0
    assert IdleGpus.restored(IdleGpus().state()).total_s == 0.0

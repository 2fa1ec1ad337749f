"""What ``benchmarks.alert_delay`` makes of the delays that it has measured."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.alert_delay import __main__ as alert_delay
from benchmarks.alert_delay import servers


def delays(*detected_s: float, is_right: bool = True) -> list[dict[str, Any]]:
    return [
        {"detected_s": s, "arrived_s": s + 3, "alerts": ["StragglerRunHung"], "is_right": is_right}
        for s in detected_s
    ]


def test_the_longest_delay_is_the_sum_of_all_waits() -> None:
    """Timeout, two heartbeats, a scrape, an evaluation, ``for`` in whole evaluations, a group's
    wait."""
    assert alert_delay.longest_s(3.0) == 3.0 + 2 * 0.5 + 0.5 + 1.0 + 1.0 + 1.0
    assert max(map(alert_delay.longest_s, alert_delay.TIMEOUTS_S.values())) < alert_delay.MAX_S


def test_half_of_all_must_be_detected_in_time_and_all_must_arrive() -> None:
    """The median is held to the timeout and two heartbeats, the longest to 15 s."""
    max_s = servers.LOST_AFTER_S + 2 * servers.HEARTBEAT_S
    measured = {kind: delays(2.0, 3.0, max_s + 5) for kind in alert_delay.KINDS}
    held = alert_delay.budgets(measured)
    assert all(budget["is_met"] for budget in held.values())
    held = alert_delay.budgets({**measured, "killed": delays(max_s, max_s + 1, max_s + 9)})
    missed = [name for name, budget in held.items() if not budget["is_met"]]
    assert missed == ["killed: detected, p50", "killed: arrived, longest"]


def test_a_page_that_names_another_rank_is_a_missed_budget() -> None:
    """However quick it was."""
    measured = {kind: delays(2.0, 3.0) for kind in alert_delay.KINDS}
    held = alert_delay.budgets({**measured, "slow": delays(1.0, 1.5, is_right=False)})
    missed = [name for name, budget in held.items() if not budget["is_met"]]
    assert missed == ["slow: named another rank"]


def test_figures_have_quantiles_and_names() -> None:
    """Of one fault, too."""
    figures = alert_delay.figures(delays(1.0, 2.0, 3.0))
    assert figures["detected_s"]["p50"] == 2.0
    assert figures["arrived_s"]["max"] == 6.0
    assert figures["detected_s"]["p95"] == pytest.approx(2.9)
    assert (figures["named"], figures["alerts"]) == (3, ["StragglerRunHung"])
    assert alert_delay.figures(delays(1.0))["detected_s"] == {"p50": 1.0, "p95": 1.0, "max": 1.0}

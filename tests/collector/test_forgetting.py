"""Which runs are let go: those that nobody speaks of; one that hangs only after days."""

from __future__ import annotations

import logging

import pytest

from otel_straggler.collector.forgetting import SHOWN_S, Forgetting

DAY_S = 86_400.0


def forgetting(max_runs: int = 100) -> Forgetting:
    return Forgetting(forget_s=3_600.0, give_up_s=3 * DAY_S, max_runs=max_runs)


def hangs(run: str) -> bool:
    return run.startswith("hung")


def test_a_run_that_nobody_speaks_of_goes_after_its_idle_time() -> None:
    """An hour here."""
    its = forgetting()
    assert its.gone({"well": 0.0}, hangs, 3_599.0) == ()
    assert its.gone({"well": 0.0}, hangs, 3_600.0) == ("well",)


def test_a_hung_run_stays_for_days_and_then_is_shown_as_forgotten_for_an_hour(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """With one line in the log, not one a second."""
    its = forgetting()
    with caplog.at_level(logging.WARNING):
        assert its.gone({"hung": 0.0}, hangs, 3 * DAY_S - 1.0) == ()
        assert caplog.messages == []
        for later_s in (0.0, 1.0, SHOWN_S - 1.0):
            assert its.gone({"hung": 0.0}, hangs, 3 * DAY_S + later_s) == ()
    (line,) = caplog.messages
    assert line.startswith("monitoring gave up on run hung: ")
    assert its.gone({"hung": 0.0}, hangs, 3 * DAY_S + SHOWN_S) == ("hung",)


def test_a_forgotten_run_that_speaks_again_is_remembered() -> None:
    """Its hour does not go on."""
    its = forgetting()
    assert its.gone({"hung": 0.0}, hangs, 3 * DAY_S) == ()
    assert its.gone({"hung": 3 * DAY_S + 10.0}, hangs, 3 * DAY_S + 11.0) == ()
    assert its.gone({"hung": 3 * DAY_S + 10.0}, hangs, 3 * DAY_S + SHOWN_S) == ()


def test_where_there_are_too_many_runs_those_that_hang_go_last() -> None:
    """But memory stays bounded: of hung ones alone the one heard of first goes."""
    its = forgetting(max_runs=2)
    heard = {"hung 1": 1.0, "well": 90.0, "hung 2": 2.0, "new": 99.0}
    assert set(its.gone(heard, hangs, 100.0)) == {"well", "new"}
    assert its.gone({"hung 1": 1.0, "hung 2": 2.0, "hung 3": 3.0}, hangs, 100.0) == ("hung 1",)

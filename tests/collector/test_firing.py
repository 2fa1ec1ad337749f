"""A restart of the collector is neither a false all-clear nor a second page."""

from __future__ import annotations

import json
from typing import Any

import pytest

from otel_straggler.alerts.rule import FleetStatus, RunStatus
from otel_straggler.collector.alerting.firing import Firing
from otel_straggler.model.alert import Alert


def alert(starts_at_s: float, name: str = "RunHung", ends_at_s: float | None = None) -> Alert:
    labels = {"alertname": f"Straggler{name}", "run_id": "r"}
    if name == "Watchdog":
        del labels["run_id"]
    return Alert(
        labels=labels,
        annotations={"summary": f"since {starts_at_s:g}"},
        starts_at_s=starts_at_s,
        ends_at_s=ends_at_s,
    )


def watched(now_s: float, state: Any = None) -> FleetStatus:
    """With the run in this state; None if it is not known."""
    runs = () if state is None else (RunStatus(run_id="r", state=state),)
    return FleetStatus(now_s=now_s, collector="c", runs=runs)


def restarted(*alerts: Alert) -> Firing:
    """A process that begins at 1,000 after one in which these fired."""
    before = Firing(hold_s=500, give_up_s=10_000)
    before.follow(alerts, watched(900))
    after = Firing(hold_s=500, give_up_s=10_000)
    after.restore(json.loads(json.dumps(before.state())), 1_000)
    return after


def test_what_fires_passes_through() -> None:
    """With its own start and end."""
    firing = Firing(hold_s=500, give_up_s=10_000)
    assert firing.follow((alert(100),), watched(110, "stuck")) == (alert(100),)
    assert firing.by_run.get("r", ()) == (alert(100),)
    ended = alert(100, ends_at_s=120)
    assert firing.follow((ended,), watched(120, "training")) == (ended,)
    assert (firing.by_run.get("r", ()), firing.keys) == ((), frozenset())


def test_what_fired_goes_on_while_its_run_is_not_heard_of() -> None:
    """Nobody knows that it is over."""
    firing = restarted(alert(100))
    for now_s in (1_000, 5_000, 10_999):
        assert firing.follow((), watched(now_s)) == (alert(100),)
        assert firing.by_run.get("r", ()) == (alert(100),)


def test_what_fires_again_has_begun_before_the_restart() -> None:
    """One alert, one start; with the newest words."""
    firing = restarted(alert(100))
    firing.follow((), watched(1_000))
    (again,) = firing.follow((alert(1_200),), watched(1_200, "stuck"))
    assert (again.starts_at_s, again.annotations["summary"]) == (100, "since 1200")
    (still,) = firing.follow((alert(1_200),), watched(9_000, "stuck"))
    assert still.starts_at_s == 100
    (ended,) = firing.follow((alert(1_200, ends_at_s=9_100),), watched(9_100, "training"))
    assert (ended.starts_at_s, ended.ends_at_s) == (100, 9_100)
    (anew,) = firing.follow((alert(9_500),), watched(9_500, "stuck"))
    assert anew.starts_at_s == 9_500


def test_what_would_fire_again_by_now_is_over() -> None:
    """Told once, when the run has been heard of for so long."""
    firing = restarted(alert(100))
    assert firing.follow((), watched(2_000, "training")) == (alert(100),)
    assert firing.follow((), watched(2_499, "training")) == (alert(100),)
    assert firing.follow((), watched(2_500, "training")) == (alert(100, ends_at_s=2_500),)
    assert firing.follow((), watched(2_501, "training")) == ()


def test_a_run_that_is_scored_again_hangs_no_more() -> None:
    """After a minute; what its senders had kept is scored sooner, and is no progress. What is no
    hang goes on, and ends where the run hangs: it has no slow ranks then."""

    def scored(now_s: float, at_s: float, state: Any = "training") -> FleetStatus:
        run = RunStatus(run_id="r", state=state, last_scored_at_s=at_s)
        return FleetStatus(now_s=now_s, collector="c", runs=(run,))

    firing = restarted(alert(100), alert(100, "RankStraggling"))
    assert len(firing.follow((), scored(2_000, 1_999))) == 2
    assert len(firing.follow((), scored(2_100, 2_050))) == 2
    for now_s, state, ends in (
        (2_100, "stuck", {"StragglerRunHung": None, "StragglerRankStraggling": 2_100}),
        (2_101, "training", {"StragglerRunHung": 2_101}),
    ):
        reported = firing.follow((), scored(now_s, 2_090, state))
        assert {each.name: each.ends_at_s for each in reported} == ends


@pytest.mark.parametrize("state", [None, "failed"])
def test_what_is_no_hang_is_not_held_for_a_run_that_is_over_or_unheard(state: str | None) -> None:
    """At its end, or after what such an alert outlasts."""
    firing = restarted(alert(100, "RankDegraded"))
    at_s = 1_001 if state else 1_600
    assert firing.follow((), watched(at_s - 1)) == (alert(100, "RankDegraded"),)
    assert firing.follow((), watched(at_s, state)) == (alert(100, "RankDegraded", at_s),)


@pytest.mark.parametrize("state", ["finished", "cancelled", "preempted", "failed"])
def test_a_run_that_has_ended_hangs_no_more(state: str) -> None:
    """At once."""
    assert restarted(alert(100)).follow((), watched(1_001, state)) == (alert(100, ends_at_s=1_001),)


def test_a_hang_that_somebody_acknowledges_is_not_held() -> None:
    """By whoever was called because of it; other alerts are."""
    firing = restarted(alert(100), alert(100, "RankStraggling"))
    run = RunStatus(run_id="r", state="training", is_acknowledged=True)
    told = firing.follow((), FleetStatus(now_s=1_001, collector="c", runs=(run,)))
    assert {each.name: each.ends_at_s for each in told} == {
        "StragglerRunHung": 1_001,
        "StragglerRankStraggling": None,
    }


def test_what_nobody_will_ever_know_does_not_end_for_anybody() -> None:
    """No "resolved" after monitoring has given up."""
    for now_s, state in ((11_001, None), (2_000, "forgotten")):
        firing = restarted(alert(100))
        assert firing.follow((), watched(now_s, state)) == ()
        assert [each.name for each in firing.given_up] == ["StragglerRunHung"]
        assert firing.follow((), watched(now_s + 1, state)) == ()
        assert firing.given_up == ()


def test_what_is_not_about_a_run_is_held_for_a_while() -> None:
    """It is decided anew at once, mostly."""
    firing = restarted(alert(100, "Watchdog"))
    assert firing.follow((), watched(1_000)) == (alert(100, "Watchdog"),)
    assert firing.follow((), watched(1_599)) == (alert(100, "Watchdog"),)
    assert firing.follow((), watched(1_600)) == (alert(100, "Watchdog", 1_600),)


@pytest.mark.parametrize("state", [{}, {"version": 0}, {"version": 1, "firing": [{"labels": {}}]}])
def test_a_state_of_another_kind_is_refused(state: dict[str, Any]) -> None:
    """And nothing of it is taken."""
    firing = Firing(hold_s=1, give_up_s=1)
    with pytest.raises((ValueError, KeyError, TypeError)):
        firing.restore(state, 0)
    assert firing.follow((), watched(1)) == ()

"""The notifier: what is decided reaches whom the settings name, once, over restarts too."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from otel_straggler.alerts.rule import FleetStatus, RunStatus
from otel_straggler.collector.alerting.firing import Firing
from otel_straggler.collector.alerting.notifying import Notifying
from otel_straggler.collector.alerting.posting import NotifySettings
from otel_straggler.collector.settings import AlertsSettings
from otel_straggler.collector.views.snapshot import Snapshot
from otel_straggler.model.alert import Alert

from ..servers.alertmanager import (
    eventually,
    running_alertmanager,
)
from ..servers.receiver import Receiver

EVALUATION: dict[str, Any] = {"evaluation_seconds": 0.05, "give_up_seconds": 10_000}


class Scene:
    """A run that is as the test says, and what is kept of the notifier."""

    def __init__(self) -> None:
        self.run: RunStatus | None = RunStatus(run_id="r", state="stuck")
        self.firing: dict[str, dict[str, str]] = {}
        self.kept: dict[str, Any] | None = None
        self.alerts: Mapping[str, tuple[Alert, ...]] = {}
        self._since: dict[str, float] = {}

    @property
    def snapshot(self) -> Snapshot:
        runs = () if self.run is None else (self.run,)
        return Snapshot(watched=FleetStatus(now_s=time.time(), collector="c", runs=runs))

    def evaluate(self, watched: FleetStatus) -> tuple[Alert, ...]:
        """Fires what the test says; an end is told once."""
        reported = []
        for name in {*self.firing, *self._since}:
            ends_at_s = None if name in self.firing else watched.now_s
            since_s = self._since.setdefault(name, watched.now_s)
            more = self.firing.get(name, {})
            reported.append(made(name, since_s, ends_at_s, **more))
            if ends_at_s is not None:
                del self._since[name]
        return tuple(sorted(reported, key=lambda each: each.name))

    def restarted(self) -> None:
        """The evaluation of a new process knows nothing."""
        self._since, self.alerts = {}, {}

    def keep(self, state: dict[str, Any]) -> None:
        self.kept = state

    def show_alerts(self, alerts: Mapping[str, tuple[Alert, ...]]) -> None:
        self.alerts = alerts


def made(name: str, starts_at_s: float, ends_at_s: float | None, **more: str) -> Alert:
    labels = {"severity": "critical", "mode": "page", "run_id": "r", "collector": "c", **more}
    return Alert(
        labels={"alertname": f"Straggler{name}", **labels},
        annotations={"summary": "It hangs."},
        starts_at_s=starts_at_s,
        ends_at_s=ends_at_s,
    )


@pytest.fixture
def scene() -> Scene:
    return Scene()


@pytest.fixture
def begin(scene: Scene) -> Iterator[Callable[..., Notifying]]:
    running: list[Notifying] = []

    def make(restored: Any = None, **settings: Any) -> Notifying:
        quick = {"interval_s": 0.1, "timeout_s": 5.0}
        one = Notifying(
            AlertsSettings(**EVALUATION, notify=NotifySettings(**{**quick, **settings})),
            scene,
            evaluate=scene.evaluate,
            firing=Firing(hold_s=500, give_up_s=10_000),
            keep=scene.keep,
        )
        one.open("http://collector:9464")
        if restored is not None:
            one.restore(restored)
        one.start()
        running.append(one)
        return one

    yield make
    for one in running:
        one.stop(0.2)


def names(receiver: Receiver) -> list[list[str]]:
    """What a webhook was told; ends have a minus."""
    return [
        [
            ("-" if each["status"] == "resolved" else "")
            + each["labels"]["alertname"].removeprefix("Straggler")
            for each in request.body["alerts"]
        ]
        for request in receiver.received
    ]


def test_nobody_is_told_by_default_and_all_is_shown(
    scene: Scene, begin: Callable[..., Notifying]
) -> None:
    """Under each run."""
    notifying = begin()
    scene.firing = {"RunHung": {}}
    (shown,) = eventually(lambda: scene.alerts.get("r", ()))
    assert shown.name == "StragglerRunHung"
    assert (scene.alerts.get("s", ()), notifying.counts()) == ((), {})


def test_a_webhook_is_told_of_pages_only(scene: Scene, begin: Callable[..., Notifying]) -> None:
    """Not of mode observe, nor of what is not grave enough."""
    scene.firing = {
        "RunHung": {"mode": "observe"},
        "ScoreLow": {"severity": "info"},
        "RunSlow": {"severity": "warning"},
    }
    with Receiver() as receiver:
        begin(webhook=receiver.url)
        eventually(lambda: receiver.received)
        scene.firing["RunSlow"] = {"severity": "warning", "team": "other"}
        eventually(lambda: len(receiver.received) > 1)
        assert {name for reported in names(receiver) for name in reported} <= {
            "RunSlow",
            "-RunSlow",
        }


def test_the_ranks_of_a_hung_run_are_no_messages(
    scene: Scene, begin: Callable[..., Notifying]
) -> None:
    """One for the run, however many are lost; nor are they when they are back while it hangs."""
    scene.firing = {"RunHung": {}, "RankLost": {"rank": "1"}, "RankStuck": {"rank": "2"}}
    with Receiver() as receiver:
        begin(webhook=receiver.url)
        eventually(lambda: receiver.received)
        del scene.firing["RankLost"]
        scene.firing["Other"] = {}
        eventually(lambda: len(receiver.received) == 2)
        scene.firing = {}
        eventually(lambda: len(receiver.received) == 3)
    assert [sorted(reported) for reported in names(receiver)] == [
        ["RunHung"],
        ["Other"],
        ["-Other", "-RunHung"],
    ]


def test_giving_up_is_never_told_as_an_end(scene: Scene, begin: Callable[..., Notifying]) -> None:
    """Neither of the hang nor, later, of the giving up."""
    scene.firing = {"RunHung": {}}
    with Receiver() as receiver:
        begin(webhook=receiver.url)
        eventually(lambda: receiver.received)
        scene.firing = {"RunForgotten": {"severity": "warning"}}
        eventually(lambda: len(receiver.received) == 2)
        scene.firing = {}
        time.sleep(0.1)
        scene.firing = {"Next": {}}
        eventually(lambda: len(receiver.received) == 3)
    assert names(receiver) == [["RunHung"], ["RunForgotten"], ["Next"]]


def test_a_restart_is_no_second_page(scene: Scene, begin: Callable[..., Notifying]) -> None:
    """What was told is known; what fires again has begun when it began; its end is told."""
    scene.firing = {"RunHung": {}}
    with Receiver() as receiver:
        first = begin(webhook=receiver.url)
        eventually(lambda: receiver.received)
        first.stop(5.0)
        scene.restarted()
        scene.firing, scene.run = {}, None
        begin(scene.kept, webhook=receiver.url)
        eventually(lambda: scene.alerts.get("r", ()))
        scene.run, scene.firing = RunStatus(run_id="r", state="stuck"), {"RunHung": {}}
        time.sleep(0.3)
        assert names(receiver) == [["RunHung"]]
        scene.firing = {}
        eventually(lambda: len(receiver.received) == 2)
    assert names(receiver) == [["RunHung"], ["-RunHung"]]
    starts = {request.body["alerts"][0]["startsAt"] for request in receiver.received}
    assert len(starts) == 1


@pytest.mark.parametrize("state", [{"version": 99}, {"version": 1, "firing": {}}])
def test_a_state_of_another_kind_is_refused(scene: Scene, state: dict[str, Any]) -> None:
    """By an error that the keeper counts; the notifier works without it."""
    one = Notifying(
        AlertsSettings(**EVALUATION),
        scene,
        evaluate=scene.evaluate,
        firing=Firing(hold_s=500, give_up_s=10_000),
    )
    one.open("http://collector:9464")
    with pytest.raises((ValueError, KeyError)):
        one.restore(state)


def test_a_mistake_of_ours_is_counted_and_the_next_look_goes_on(
    scene: Scene, begin: Callable[..., Notifying], caplog: pytest.LogCaptureFixture
) -> None:
    """And logged."""
    scene.firing = {"RunHung": {}}
    good, tries = scene.evaluate, []

    def bad(watched: FleetStatus) -> tuple[Alert, ...]:
        tries.append(1)
        if len(tries) < 3:
            raise ZeroDivisionError
        return good(watched)

    scene.evaluate = bad  # type: ignore[method-assign]
    notifying = begin()
    eventually(lambda: scene.alerts.get("r", ()))
    assert notifying.failures == 2
    assert "ZeroDivisionError" in caplog.text


@pytest.mark.real_server
def test_a_dead_collector_is_no_all_clear(
    scene: Scene, begin: Callable[..., Notifying], tmp_path: Path
) -> None:
    """A hang stays in a real Alertmanager after the collector has gone; the rest ends by itself."""
    scene.firing = {"RunHung": {}, "RunSlow": {"severity": "warning"}}
    with running_alertmanager(tmp_path) as real:
        notifying = begin(alertmanagers=(real.url,), resend_s=0.3)
        eventually(lambda: len(real.alerts()) == 2)
        notifying.stop(1.0)
        eventually(lambda: len(real.alerts()) == 1)
        (left,) = real.alerts()
    assert left["labels"]["alertname"] == "StragglerRunHung"
    assert left["generatorURL"] == "http://collector:9464/v1/report?run=r"


@pytest.mark.real_server
def test_an_alertmanager_remembers_for_a_collector_without_a_history(
    scene: Scene, begin: Callable[..., Notifying], tmp_path: Path
) -> None:
    """What the process before told it is held to fire, and ends when the run has ended."""
    scene.firing = {"RunHung": {}, "RankLost": {"collector": "other"}}
    with running_alertmanager(tmp_path) as real:
        begin(alertmanagers=(real.url,)).stop(5.0)
        assert len(eventually(real.alerts)) == 2
        scene.restarted()
        scene.firing, scene.run = {}, None
        begin(alertmanagers=(real.url,))
        eventually(lambda: scene.alerts.get("r", ()))
        assert len(real.alerts()) == 2
        scene.run = RunStatus(run_id="r", state="finished")
        (left,) = eventually(lambda: len(real.alerts()) == 1 and real.alerts())
    assert left["labels"]["collector"] == "other"


@pytest.mark.real_server
def test_two_collectors_that_watch_one_run_are_one_group(
    scene: Scene, begin: Callable[..., Notifying], tmp_path: Path
) -> None:
    """Two alerts that differ in their collector, one message about the run."""
    with Receiver() as receiver:
        config = {
            "route": {
                "receiver": "hook",
                "group_by": ["cluster", "job_name", "run_id"],
                "group_wait": "1s",
            },
            "receivers": [{"name": "hook", "webhook_configs": [{"url": receiver.url}]}],
        }
        with running_alertmanager(tmp_path, config) as real:
            scene.firing = {"RunHung": {}}
            begin(alertmanagers=(real.url,))
            eventually(real.alerts)
            real.post(
                "/api/v2/alerts",
                [{"labels": {**made("RunHung", 0, None).labels, "collector": "d"}}],
            )
            eventually(lambda: receiver.received)
        assert names(receiver) == [["RunHung", "RunHung"]]

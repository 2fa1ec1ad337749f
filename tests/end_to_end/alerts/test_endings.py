"""Every alert and every way in which a run ends, with a real Prometheus and a real Alertmanager,
and with the collector's own notifier: what is told, until when.

The series are those of a collector whose runs the test makes up, all at once; jobs that really end
are in ``test_who_is_called.py``.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks.alert_delay import servers
from benchmarks.alert_delay.stage import LONGEST_S, find_programs
from otel_straggler.alerts.catalogue import CATALOGUE
from otel_straggler.alerts.evaluation import AlertEvaluator
from otel_straggler.alerts.prometheus import rules_file
from otel_straggler.alerts.rule import FleetStatus
from otel_straggler.alerts.settings import AlertSettings
from otel_straggler.collector.alerting.firing import Firing
from otel_straggler.collector.alerting.notifying import Notifying
from otel_straggler.collector.alerting.posting import NotifySettings
from otel_straggler.collector.settings import AlertsSettings
from otel_straggler.demo.processes import config_of, start_alertmanager
from otel_straggler.demo.receiver import Received, Receiver

from ...alerts.endings import ENDINGS, STAY, runs_that_end
from ...alerts.test_both_ways import series_at

pytestmark = [pytest.mark.real_server, pytest.mark.demo]

INTERVALS = {
    **servers.ALERTS,
    "missing_for_seconds": 2,
    "no_data_seconds": 2,
    "run_slow_for_seconds": 2,
    "keep_firing_seconds": 600,  # longer than the test: what ends, ends for another reason
}
SETTINGS = AlertSettings(**INTERVALS)
SLOW = {rule.name for rule in CATALOGUE if rule.for_s(SETTINGS) > 10}
EXPECTED = {rule.name for rule in CATALOGUE if rule.predicate and "run_id" in rule.labels} - {
    "StragglerRunFailed",
    "StragglerRunForgotten",
    *SLOW,
}
"""Every alert on a run that goes on; of those that wait for a minute promtool has to tell."""
QUIET_S = 6.0
Pairs = set[tuple[str, str]]
"""Names of alerts, each with the ending of its run."""


class Fleet:
    """A collector's series over HTTP, and what its own notifier evaluates."""

    def __init__(self) -> None:
        self.over_at_s = float("inf")
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler_of(self))
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, name="series", daemon=True).start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._server.server_address[1]}"

    @property
    def snapshot(self) -> Any:
        return SimpleNamespace(watched=self.watched())

    def show_alerts(self, _alerts: object) -> None:
        """Nobody looks."""

    def watched(self) -> FleetStatus:
        now_s = time.time()
        is_over, lost = now_s >= self.over_at_s, int(now_s) % 1_000_000
        runs = tuple(
            run
            for ending in ENDINGS
            for run in runs_that_end(ending, is_over=is_over, lost=lost, suffix=f"-{ending}")
        )
        return FleetStatus(now_s=now_s, collector="c1", runs=runs)

    def text(self) -> bytes:
        lines = (f"{name} {value}" for name, value in series_at(self.watched()).items())
        return ("\n".join(lines) + "\n").encode()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def _handler_of(fleet: Fleet) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.end_headers()
            self.wfile.write(fleet.text())

        def log_message(self, *_: object) -> None:
            """Silence."""

    return Handler


@dataclass(frozen=True, slots=True)
class Told:
    """What an Alertmanager told its webhook: names of alerts with their runs.

    Attributes:
        before: what fired before the end of all runs, and after: a while after it.
        late: what began to fire once all had become quiet.
    """

    before: Pairs
    after: Pairs
    late: Pairs


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Told]]:
    """By who decides: the rules in a Prometheus, or the collector."""
    try:
        prometheus, alertmanager = find_programs()
    except FileNotFoundError as missing:
        sentence = f"{missing}: nobody saw an alert end"
        pytest.fail(sentence) if os.environ.get("CI") else pytest.skip(sentence)
    folder, fleet = tmp_path_factory.mktemp("endings"), Fleet()
    hooks = {"rules": Receiver(), "collector": Receiver()}
    with contextlib.ExitStack() as closing:
        closing.callback(fleet.close)
        urls = {}
        for way, hook in hooks.items():
            closing.callback(hook.close)
            config = config_of(hook.url, wait_s=1.0)
            server = start_alertmanager(alertmanager, config, folder / way)
            closing.callback(server.close)
            urls[way] = server.url
        rules = rules_file(SETTINGS)
        server = servers.start_prometheus(prometheus, folder / "prom", rules, urls["rules"])
        closing.callback(server.close)
        (folder / "prom" / "targets.json").write_text(f'[{{"targets": ["{fleet.address}"]}}]')
        notifying = _notifier(fleet, urls["collector"])
        notifying.start()
        closing.callback(notifying.stop, 1.0)
        yield _story(fleet, hooks)


def _notifier(fleet: Fleet, alertmanager: str) -> Notifying:
    settings = AlertsSettings(
        **INTERVALS,
        mode="page",
        notify=NotifySettings(alertmanagers=(alertmanager,), resend_s=2.0),
    )
    notifying = Notifying(
        settings,
        fleet,  # type: ignore[arg-type]
        evaluate=AlertEvaluator(settings).evaluate,
        firing=Firing(hold_s=600.0, give_up_s=900.0),
    )
    notifying.open("http://collector.example")
    return notifying


def _story(fleet: Fleet, hooks: dict[str, Receiver]) -> dict[str, Told]:
    everything = {(name, ending) for name in EXPECTED for ending in ENDINGS}
    allowed = {(name, ending) for ending in ENDINGS for name in STAY.get(ending, ())}
    for way, hook in hooks.items():
        _wait(lambda h=hook: everything <= _standing(h), lambda w=way: f"{w}: not all fire")
    before = {way: _standing(hook) for way, hook in hooks.items()}
    fleet.over_at_s = time.time()
    for way, hook in hooks.items():
        _wait(
            lambda h=hook: _standing(h) <= allowed,
            lambda w=way, h=hook: f"{w}: {_standing(h) - allowed}",
        )
    heard = {way: len(hook.received) for way, hook in hooks.items()}
    time.sleep(QUIET_S)
    return {
        way: Told(before[way], _standing(hook), _fired(hook.received[heard[way] :]) - allowed)
        for way, hook in hooks.items()
    }


def _standing(hook: Receiver) -> Pairs:
    """What fires by the last that was told of each alert."""
    firing: dict[str, tuple[str, str]] = {}
    for one in hook.received:
        for alert in one.payload["alerts"]:
            if alert["status"] == "firing":
                firing[alert["fingerprint"]] = _pair(alert)
            else:
                firing.pop(alert["fingerprint"], None)
    return {pair for pair in firing.values() if pair[1]}


def _fired(received: Sequence[Received]) -> Pairs:
    alerts = (alert for one in received for alert in one.payload["alerts"])
    return {_pair(alert) for alert in alerts if alert["status"] == "firing"}


def _pair(alert: dict[str, Any]) -> tuple[str, str]:
    labels = alert["labels"]
    return labels["alertname"], labels.get("run_id", "").partition("-")[2]


def _wait(claim: Callable[[], bool], why: Callable[[], str]) -> None:
    until_s = time.monotonic() + LONGEST_S
    while not claim():
        assert time.monotonic() < until_s, why()
        time.sleep(0.1)


ways = pytest.mark.parametrize("way", ["rules", "collector"])


@ways
@pytest.mark.parametrize("ending", ENDINGS)
def test_an_end_resolves_what_fired_and_nothing_fires_after_it(
    told: dict[str, Told], way: str, ending: str
) -> None:
    """But what is about a run that is lost or given up, long before ``keep_firing_seconds``."""
    before, after = (
        {name for name, of in each if of == ending} for each in (told[way].before, told[way].after)
    )
    assert before == EXPECTED
    assert after <= STAY.get(ending, set())
    assert {name for name, of in told[way].late if of == ending} == set()


def test_rules_and_collector_tell_the_same(told: dict[str, Told]) -> None:
    """But of a run that no collector knows anymore, of which only Prometheus can know."""
    rules, collector = told["rules"], told["collector"]
    assert rules.before == collector.before
    still = {pair for pair in rules.after if pair[1] != "evicted"}
    assert still == collector.after

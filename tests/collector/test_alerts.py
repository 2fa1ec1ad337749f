"""A collector decides its alerts, shows them, and tells whom its file names."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from otel_straggler import semconv
from otel_straggler.collector.alerting.posting import NotifySettings
from otel_straggler.collector.settings import AlertsSettings

from ..servers.alertmanager import running_alertmanager
from ..servers.receiver import Receiver

NOW = {"hang_for_seconds": 0.0, "evaluation_seconds": 0.1}


@pytest.fixture
def begin(start: Callable[..., Any]) -> Callable[..., Any]:
    """A collector that calls a rank lost after 0.5 s."""

    def make(mode: str = "page", history: str = "", **notify: Any) -> Any:
        quick = {"interval_s": 0.1}
        alerts = AlertsSettings(mode=mode, notify=NotifySettings(**{**quick, **notify}), **NOW)
        return start(
            alerts__mode=mode,
            alerts__notify=alerts.notify,
            alerts__hang_for_seconds=0.0,
            alerts__evaluation_seconds=0.1,
            liveness__lost_after_s=0.5,
            metrics__collector_id="c",
            history__path=history,
        )

    return make


def beat(live: Any, kit: Any, number: int, **more: Any) -> None:
    reported = {"sent_at_s": time.time(), "progress_at_s": time.time(), "step": 5, **more}
    live.post(kit.beat_of(kit.rank(number), **reported), "metrics")


def alerts(live: Any) -> dict[str, Any]:
    """By name, what fires about the run."""
    run = live.report()["runs"].get("run", {"alerts": []})
    return {each["name"]: each for each in run["alerts"]}


def names(receiver: Receiver) -> list[list[str]]:
    return [
        [each["labels"]["alertname"] for each in request.body["alerts"]]
        for request in receiver.received
    ]


def test_a_hung_run_is_one_message_and_is_shown(begin: Callable[..., Any], kit: Any) -> None:
    """Its lost ranks are not told of beside it; the report has them all."""
    with Receiver() as receiver:
        live = begin(webhook=receiver.url)
        for number in range(2):
            beat(live, kit, number)
        kit.eventually(lambda: receiver.received)
        kit.eventually(lambda: len(alerts(live)) > 1)
        hung = alerts(live)["StragglerRunHung"]
        assert (hung["labels"]["mode"], hung["labels"]["severity"]) == ("page", "critical")
        assert re.search("rank ([01]) on node-\\1", hung["annotations"]["summary"])
        page, _, run = hung["annotations"]["page_url"].partition("/#")
        assert run == "run=run"
        assert hung["annotations"]["runbook_url"] == f"{page}/runbook?alert=StragglerRunHung"
        chapter = live.get("/runbook?alert=StragglerRunHung").body
        assert chapter.startswith(b"## StragglerRunHung\n")
        assert live.get("/runbook?alert=Nothing").status == 404
        assert {"StragglerRunHung", "StragglerRankLost"} <= alerts(live).keys()
        kit.eventually(lambda: live.value(semconv.COLLECTOR_NOTIFICATIONS, outcome="sent") == 1.0)
        part = live.get("/v1/report?run=run&rank=1").json()["runs"]["run"]["alerts"]
        assert {each["labels"].get("rank", "1") for each in part} == {"1"}
        for number in range(2):
            beat(live, kit, number, finished_at_s=time.time(), outcome="ok")
        kit.eventually(lambda: len(receiver.received) == 2)
        assert receiver.received[1].body["status"] == "resolved"
        assert names(receiver) == [["StragglerRunHung"]] * 2
        kit.eventually(lambda: alerts(live) == {})


def test_a_new_installation_calls_nobody(begin: Callable[..., Any], kit: Any) -> None:
    """In mode observe all is shown; a webhook hears nothing."""
    with Receiver() as receiver:
        live = begin(mode="observe", webhook=receiver.url)
        beat(live, kit, 0)
        hung = kit.eventually(lambda: alerts(live).get("StragglerRunHung"))
        assert hung["labels"]["mode"] == "observe"
        live.stop()
        assert receiver.tries == 0


def test_a_restart_with_a_history_is_no_second_message(
    begin: Callable[..., Any], kit: Any, tmp_path: Path
) -> None:
    """And no end: the hang goes on although no rank has reported since."""
    history = str(tmp_path / "h.db")
    with Receiver() as receiver:
        first = begin(webhook=receiver.url, history=history)
        beat(first, kit, 0)
        kit.eventually(lambda: receiver.received)
        first.stop()
        second = begin(webhook=receiver.url, history=history)
        again = kit.eventually(lambda: alerts(second).get("StragglerRunHung"))
        second.stop()
        assert names(receiver) == [["StragglerRunHung"]]
        third = begin(webhook=receiver.url, history=history)
        beat(third, kit, 0, finished_at_s=time.time(), outcome="ok")
        kit.eventually(lambda: len(receiver.received) == 2)
    (reported,) = receiver.received[1].body["alerts"]
    assert reported["status"] == "resolved"
    assert reported["startsAt"] == receiver.received[0].body["alerts"][0]["startsAt"]
    assert again["since_ns"] < time.time_ns()


@pytest.mark.real_server
def test_a_test_alert_goes_where_the_settings_lead(
    begin: Callable[..., Any], kit: Any, tmp_path: Path
) -> None:
    """Through the collector, into a real Alertmanager, read back."""
    with running_alertmanager(tmp_path) as real:
        live = begin(alertmanagers=(real.url,))
        kit.eventually(lambda: live.collector._worker.snapshot.watched.collector)
        reported = _tried(live, kit)
        assert reported["places"][0]["arrived"] is True
        assert reported["places"][0]["receivers"] == ["nobody"]
        assert reported["labels"] == {
            "alertname": "StragglerTest",
            "test": "true",
            "severity": "critical",
            "domain": "platform",
            "mode": "page",
            "collector": "c",
        }
        assert real.alerts("StragglerTest")


def test_a_test_alert_tells_a_webhook_of_its_end(begin: Callable[..., Any], kit: Any) -> None:
    """In mode page; in mode observe it says why nothing was sent."""
    with Receiver() as receiver:
        live = begin(webhook=receiver.url)
        assert _tried(live, kit, seconds=1)["places"][0]["arrived"] is True
        kit.eventually(lambda: len(receiver.received) == 2)
        low = _tried(live, kit, severity="info")["places"][0]
        assert (low["arrived"], "below warning" in low["why"]) == (False, True)
        silent = begin(mode="observe", webhook=receiver.url)
        reported = _tried(silent, kit)
        assert "alerts.mode is observe" in reported["places"][0]["why"]
        assert len(receiver.received) == 2
    assert [r.body["status"] for r in receiver.received] == ["firing", "resolved"]


def test_test_alerts_come_at_a_rate_and_one_at_a_time(begin: Callable[..., Any], kit: Any) -> None:
    """A flood of tests pages nobody all night, and keeps one timer for the end of the last."""
    before = threading.active_count()
    with Receiver() as receiver:
        live = begin(webhook=receiver.url)
        answers = [_try(live, kit, seconds=3_600) for _ in range(50)]
        timers = [each for each in threading.enumerate() if isinstance(each, threading.Timer)]
        statuses = [each.body["status"] for each in receiver.received]
        for timer in timers:
            timer.cancel()
    accepted = [each.status for each in answers].count(200)
    assert 1 <= accepted <= 5
    refused = [each for each in answers if each.status != 200]
    assert {each.status for each in refused} == {429}
    assert 1 <= int(refused[0].headers["retry-after"]) <= 30
    assert statuses == ["firing", *["resolved", "firing"] * (accepted - 1)]
    assert len(timers) == 1
    assert threading.active_count() < before + 50


def test_the_answer_of_a_test_has_no_secret(
    begin: Callable[..., Any], kit: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """The path of a chat's webhook is its password: only the host shows, also where it fails."""
    secret = "/services/T000/B000/s3cr3t"
    with Receiver(200, 500) as receiver:
        live = begin(webhook=receiver.url + secret)
        arrived, failed = _try(live, kit), _try(live, kit)
    closed = _try(live, kit)
    for answer in (arrived, failed, closed):
        assert b"s3cr3t" not in answer.body
    host = receiver.url.rpartition("//")[2]
    assert [each.json()["places"][0]["url"] for each in (arrived, failed, closed)] == [
        f"http://{host}/***"
    ] * 3
    assert "s3cr3t" not in caplog.text


def test_a_test_of_nothing_says_so(begin: Callable[..., Any], kit: Any) -> None:
    """Nobody is named in the file."""
    reported = _tried(begin(), kit)
    assert (reported["places"], "alerts.notify" in reported["note"]) == ([], True)


def _try(live: Any, kit: Any, **asked: Any) -> Any:
    body = json.dumps({"severity": "critical", "seconds": 60, **asked}).encode()
    headers = {"Content-Type": "application/json"}
    return kit.ask(live.addresses["metrics"], "POST", "/v1/alerts/test", body, headers)


def _tried(live: Any, kit: Any, **asked: Any) -> Any:
    answer = _try(live, kit, **asked)
    assert answer.status == 200, answer.body
    return answer.json()


@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [
        (b"{}", {"Content-Type": "application/json"}, 400),
        (b'{"severity": "fatal", "seconds": 5}', {"Content-Type": "application/json"}, 400),
        (b'{"severity": "info", "seconds": 0}', {"Content-Type": "application/json"}, 400),
        (b'{"severity": "info", "seconds": 5}', {"Content-Type": "text/plain"}, 415),
        (b"{}", {"Content-Type": "application/json", "Host": "evil.example"}, 403),
    ],
)
def test_a_test_is_guarded_as_decisions_are(
    begin: Callable[..., Any], kit: Any, body: bytes, headers: dict[str, str], status: int
) -> None:
    """No page in a browser can have it sent."""
    live = begin()
    answer = kit.ask(live.addresses["metrics"], "POST", "/v1/alerts/test", body, headers)
    assert answer.status == status
    assert kit.ask(live.addresses["metrics"], "GET", "/v1/alerts/test").status == 405


def test_a_collector_that_takes_no_decisions_tests_nothing(
    start: Callable[..., Any], kit: Any
) -> None:
    """``metrics.decisions: false``."""
    live = start(metrics__decisions=False)
    assert kit.ask(live.addresses["metrics"], "GET", "/v1/alerts/test").status == 404

"""A test alert says where it arrived, and why not."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from otel_straggler.collector.alerting.posting import Access
from otel_straggler.collector.alerting.trial import (
    Destination,
    trial_alert,
    try_alertmanagers,
    try_webhook,
)
from otel_straggler.model.alert import Alert

from ..servers.alertmanager import (
    eventually,
    free_address,
    running_alertmanager,
)
from ..servers.receiver import Receiver

PATIENT = Access(timeout_s=20.0)
ROUTES = {
    "route": {
        "receiver": "nobody",
        "routes": [
            {"matchers": ['mode="observe"'], "receiver": "nobody"},
            {"matchers": ['severity="critical"'], "receiver": "pager", "continue": True},
            {"matchers": ['test="true"'], "receiver": "chat"},
        ],
    },
    "receivers": [{"name": "nobody"}, {"name": "pager"}, {"name": "chat"}],
    "inhibit_rules": [
        {"source_matchers": ['alertname="Quiet"'], "target_matchers": ['severity="warning"']}
    ],
}


def made(severity: str = "critical", mode: str = "page", lasts_s: float = 60.0) -> Alert:
    return trial_alert(
        severity,  # type: ignore[arg-type]
        mode,  # type: ignore[arg-type]
        now_s=time.time(),
        lasts_s=lasts_s,
        labels={"collector": "c", "cluster": ""},
    )


@pytest.mark.real_server
def test_a_real_alertmanager_says_where_it_goes_and_what_stands_before(tmp_path: Path) -> None:
    """Receivers, silences, inhibition; and it ends there by itself."""
    with running_alertmanager(tmp_path, ROUTES) as real:
        soon = time.time() + 60
        (destination,) = try_alertmanagers([real.url + "/"], PATIENT, made(), soon)
        assert (destination.arrived, destination.receivers) == (True, ("pager", "chat"))
        (destination,) = try_alertmanagers([real.url], PATIENT, made(mode="observe"), soon)
        assert (destination.arrived, destination.receivers) == (True, ("nobody",))
        _silence(real, "critical")

        def tried(severity: str, ends_at_s: float) -> Destination:
            return try_alertmanagers([real.url], PATIENT, made(severity), ends_at_s)[0]

        eventually(lambda: tried("critical", soon).silenced_by)
        assert tried("critical", soon).arrived
        real.post("/api/v2/alerts", [{"labels": {"alertname": "Quiet"}}])
        eventually(lambda: tried("warning", time.time() + 1).inhibited_by)
        eventually(lambda: len(real.alerts("StragglerTest")) == 2)  # the warning has ended


def _silence(real: object, severity: str) -> None:
    now_s = time.time()
    times = [time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(t)) for t in (now_s, now_s + 600)]
    matcher = {"name": "severity", "value": severity, "isRegex": False, "isEqual": True}
    silence = {
        "matchers": [matcher],
        "startsAt": times[0],
        "endsAt": times[1],
        "createdBy": "test",
        "comment": "test",
    }
    real.post("/api/v2/silences", silence)  # type: ignore[attr-defined]


def test_each_address_is_told_of_by_itself() -> None:
    """One that is away, one that is no Alertmanager."""
    with Receiver(text="hello") as other:
        gone = f"http://{free_address()}"
        away, wrong = try_alertmanagers([gone, other.url], PATIENT, made(), time.time() + 60)
    assert not away.arrived
    assert "nothing listens there" in away.why
    assert not wrong.arrived
    assert "cannot be read back" in wrong.why


def test_a_webhook_is_told_in_its_words() -> None:
    """Labelled as a test."""
    with Receiver() as receiver, Receiver(500) as broken:
        assert try_webhook(receiver.url, PATIENT, made()).arrived
        refused = try_webhook(broken.url, PATIENT, made())
    assert (refused.arrived, "answered 500" in refused.why) == (False, True)
    (one,) = receiver.received[0].body["alerts"]
    assert one["labels"] == {
        "alertname": "StragglerTest",
        "test": "true",
        "severity": "critical",
        "domain": "platform",
        "mode": "page",
        "collector": "c",
    }

"""Direct notification: everything to every replica, again while it fires."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from otel_straggler.collector.alerting import alertmanager
from otel_straggler.collector.alerting.alertmanager import PATH, Alertmanagers, Replica
from otel_straggler.collector.alerting.posting import Access, Poster
from otel_straggler.model.alert import Alert

from ..servers.alertmanager import (
    eventually,
    running_alertmanager,
)
from ..servers.receiver import CLOSE, HANG, Receiver

NOW = 1_790_000_000.0
PATIENT = Access(timeout_s=20.0)
QUICK = Access(timeout_s=1.0)
"""Where somebody hangs."""


def alert(name: str = "RunHung", ends_at_s: float | None = None, **labels: str) -> Alert:
    reported = {
        "alertname": f"Straggler{name}",
        "severity": "critical",
        "mode": "page",
        "run_id": "r",
    }
    return Alert(
        labels={**reported, **labels},
        annotations={"summary": "It hangs."},
        starts_at_s=NOW - 5,
        ends_at_s=ends_at_s,
    )


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Try again at once."""
    monkeypatch.setattr(alertmanager, "retry_delay_s", lambda *_: 0.02)


@pytest.fixture
def begin() -> Iterator[Callable[..., Alertmanagers]]:
    running: list[Alertmanagers] = []

    def make(*urls: str, access: Access = PATIENT, **rules: Any) -> Alertmanagers:
        sender = Alertmanagers(urls, access, **rules)
        sender.start()
        running.append(sender)
        return sender

    yield make
    for sender in running:
        sender.stop(0.0)


def reported(receiver: Receiver) -> list[dict[str, Any]]:
    return [each for request in receiver.received for each in request.body]


def newest_end(receiver: Receiver, name: str) -> str | None:
    """Of the alert of that name, by what came last."""
    ends = {each["labels"]["alertname"]: each["endsAt"] for each in reported(receiver)}
    return ends.get(f"Straggler{name}")


def test_every_replica_gets_everything(begin: Callable[..., Alertmanagers]) -> None:
    """In the words of the API, below the prefix of its path."""
    with Receiver() as one, Receiver() as two:
        begin(one.url, f"{two.url}/am/", page="http://c:9464").update((alert(),), NOW)
        eventually(lambda: one.received and two.received)
    assert (one.received[0].path, two.received[0].path) == (PATH, f"/am{PATH}")
    assert reported(one) == reported(two)
    assert reported(one) == [
        {
            "labels": dict(alert().labels),
            "annotations": {"summary": "It hangs."},
            "startsAt": "2026-09-21T14:13:15.000Z",
            "endsAt": "2026-09-21T14:17:20.000Z",
            "generatorURL": "http://c:9464/v1/report?run=r",
        }
    ]


def test_a_replica_that_hangs_holds_up_no_other(begin: Callable[..., Alertmanagers]) -> None:
    """Each has a thread and a queue of its own."""
    with Receiver(*[HANG] * 50) as hangs, Receiver() as well:
        sender = begin(hangs.url, well.url, resend_s=0.0)
        for number in range(5):
            sender.update((alert(),), NOW + number)
            eventually(lambda wanted=number + 1: len(well.received) >= wanted)
        assert not hangs.received


def test_an_alert_that_fires_is_sent_again_and_keeps_its_start(
    begin: Callable[..., Alertmanagers],
) -> None:
    """Not with every look, but every ``resend_s``; also after the clock was set back."""
    with Receiver() as receiver:
        sender = begin(receiver.url, resend_s=60.0)
        for now_s, sent in ((NOW, 1), (NOW + 59, 1), (NOW + 60, 2), (NOW + 70, 2), (NOW - 900, 3)):
            sender.update((alert(),), now_s)
            eventually(lambda wanted=sent: len(receiver.received) == wanted)
    assert {each["startsAt"] for each in reported(receiver)} == {"2026-09-21T14:13:15.000Z"}


def test_an_end_is_sent_at_once(begin: Callable[..., Alertmanagers]) -> None:
    """With the time at which it ended."""
    with Receiver() as receiver:
        sender = begin(receiver.url)
        sender.update((alert(),), NOW)
        eventually(lambda: len(receiver.received) == 1)
        sender.update((alert(ends_at_s=NOW + 1),), NOW + 1)
        eventually(lambda: len(receiver.received) == 2)
    assert reported(receiver)[1]["endsAt"] == "2026-09-21T14:13:21.000Z"


@pytest.mark.parametrize("trouble", [500, 503, 429, CLOSE, HANG])
def test_three_failures_are_survived(
    begin: Callable[..., Alertmanagers], trouble: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Delivered, counted, and logged once when it began and once when it was over."""
    caplog.set_level(logging.WARNING)
    with Receiver(trouble, trouble, trouble) as receiver:
        sender = begin(receiver.url, access=QUICK if trouble == HANG else PATIENT)
        sender.update((alert(),), NOW)
        eventually(lambda: receiver.received)
        name = f"127.0.0.1:{receiver.port}"
        eventually(lambda: sender.counts()[name, "sent"] == 1)
    assert sender.counts()[name, "failed"] == 3
    began, over = [record.getMessage() for record in caplog.records]
    assert began.startswith(f"alerts are not accepted: {receiver.url}{PATH}: ")
    assert "tried again" in began
    assert over == f"alerts are accepted again: {receiver.url}{PATH}"


def test_an_alertmanager_that_comes_back_gets_the_newest_word(
    begin: Callable[..., Alertmanagers],
) -> None:
    """However long it was away; at most the words that were under way come before it."""
    with Receiver() as gone:
        port = gone.port
    sender = begin(f"http://127.0.0.1:{port}", resend_s=0.0)
    for number in range(100):
        sender.update((alert(), alert("RankLost", rank="3")), NOW + number)
    sender.update((alert(), alert("RankLost", NOW + 100, rank="3")), NOW + 100)
    with Receiver(port=port) as back:
        eventually(lambda: newest_end(back, "RankLost") == "2026-09-21T14:15:00.000Z")
        assert newest_end(back, "RunHung") == "2026-09-21T14:19:00.000Z"
        assert len(reported(back)) <= 4


def test_a_rejected_alert_does_not_hold_up_the_others_and_is_given_up(
    begin: Callable[..., Alertmanagers], caplog: pytest.LogCaptureFixture
) -> None:
    """After three refusals; what it said is in the log."""

    def rule(body: Any) -> int:
        return 400 if any(each["labels"].get("rank") == "bad" for each in body) else 200

    with Receiver(text='{"message": "bad label"}', rule=rule) as receiver:
        sender = begin(receiver.url, resend_s=0.0)
        for number in range(8):
            sender.update((alert(), alert("RankLost", rank="bad")), NOW + number)
            eventually(lambda wanted=number + 1: len(reported(receiver)) >= wanted)
            eventually(lambda: not sender._replicas[0]._waiting)
    alone = [each for each in receiver.refused if len(each.body) == 1]
    assert len(alone) == 3
    assert 'answered 400 ({"message": "bad label"})' in caplog.text


def test_too_many_at_once_are_sent_in_parts(begin: Callable[..., Alertmanagers]) -> None:
    """A server or proxy with a small limit gets them all."""
    many = tuple(alert("RankLost", rank=str(number)) for number in range(200))
    with Receiver(largest_bytes=2_000) as receiver:
        begin(receiver.url).update(many, NOW)
        eventually(lambda: len(reported(receiver)) == 200)


@pytest.mark.parametrize(
    ("status", "remedy"),
    [(401, "token_file"), (403, "password_file"), (404, "path"), (302, "https://elsewhere/alerts")],
)
def test_what_somebody_has_to_set_right_is_said_once_and_tried_rarely(
    begin: Callable[..., Alertmanagers],
    status: int,
    remedy: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The sentence names the address and what to do; no redirect is followed."""
    with Receiver(status, status, text="no") as receiver:
        sender = begin(receiver.url, resend_s=0.05)
        sender.update((alert(),), NOW)
        eventually(lambda: receiver.received)
        eventually(lambda: sender.counts()[f"127.0.0.1:{receiver.port}", "sent"] == 1)
    assert receiver.tries == 3
    printed = [record.getMessage() for record in caplog.records if "not accepted" in record.message]
    assert len(printed) == 1
    assert f"answered {status}" in printed[0]
    assert remedy in printed[0]


def test_the_room_is_bounded_and_what_finds_none_is_counted() -> None:
    """The oldest go; what fires comes again by itself."""
    replica = Replica(Poster("http://127.0.0.1:9/x", QUICK), 1.0, max_waiting=10)
    replica.put({str(number): {"labels": {}, "annotations": {}} for number in range(25)})
    assert replica.poster.counts()["dropped"] == 15
    assert list(replica._waiting) == [str(number) for number in range(15, 25)]


def test_stopping_sends_what_waits_and_resolves_nothing(
    begin: Callable[..., Alertmanagers],
) -> None:
    """That nobody looks any more is no end of a hang."""
    with Receiver(503) as receiver:
        sender = begin(receiver.url)
        sender.update((alert(),), NOW)
        sender.stop(20.0)
        assert len(reported(receiver)) == 1
    assert reported(receiver)[0]["endsAt"] > "2026-09-21T14:14"


def test_stopping_does_not_wait_for_an_alertmanager_that_is_away() -> None:
    """What could not be sent is counted as dropped."""
    with Receiver(*[HANG] * 9) as receiver:
        sender = Alertmanagers([receiver.url], Access(timeout_s=60.0))
        sender.start()
        sender.update((alert(),), NOW)
        eventually(lambda: receiver.tries)
        stopping = threading.Thread(target=sender.stop, args=(0.2,))
        stopping.start()
        stopping.join(30)
        assert not stopping.is_alive()
        assert sender.counts()[f"127.0.0.1:{receiver.port}", "dropped"] == 1


# --- the real one -------------------------------------------------------------------------------


@pytest.mark.real_server
def test_a_real_alertmanager_has_the_alert_until_it_ends(
    tmp_path: Path, begin: Callable[..., Alertmanagers]
) -> None:
    """With its labels, its sentences and its start; below a prefix of the path."""
    with running_alertmanager(tmp_path, prefix="/am") as real:
        sender = begin(real.url)
        now_s = time.time()
        fires = Alert(
            labels=alert().labels, annotations={"summary": "ä → 1"}, starts_at_s=now_s - 100
        )
        sender.update((fires,), now_s)
        (there,) = eventually(real.alerts)
        assert there["labels"] == dict(alert().labels)
        assert there["annotations"] == {"summary": "ä → 1"}
        assert there["startsAt"].startswith(_second(now_s - 100))
        ended = Alert(labels=fires.labels, annotations={}, starts_at_s=now_s - 100, ends_at_s=now_s)
        sender.update((ended,), now_s)
        eventually(lambda: not real.alerts())


@pytest.mark.real_server
def test_prometheus_and_we_speak_of_one_alert(
    tmp_path: Path, begin: Callable[..., Alertmanagers]
) -> None:
    """The same labels make one alert in Alertmanager, with the earlier of both starts."""
    with running_alertmanager(tmp_path) as real:
        now_s = time.time()
        labels = dict(alert().labels)
        of_rules = {
            "labels": labels,
            "annotations": {"summary": "It hangs."},
            "startsAt": _second(now_s - 3) + "Z",
            "endsAt": _second(now_s + 240) + "Z",
            "generatorURL": "http://prometheus/graph",
        }
        real.post(PATH, [of_rules])
        ours = Alert(labels=labels, annotations={"summary": "It hangs."}, starts_at_s=now_s - 10)
        begin(real.url).update((ours,), now_s)
        (one,) = eventually(
            lambda: [a for a in real.alerts() if a["startsAt"].startswith(_second(now_s - 10))]
        )
        assert one["labels"] == labels
        assert len(real.alerts()) == 1


def _second(at_s: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(at_s))

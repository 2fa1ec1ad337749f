"""A webhook is told what Alertmanager would have told it."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from otel_straggler.collector.alerting import webhook
from otel_straggler.collector.alerting.alert_json import rfc3339
from otel_straggler.collector.alerting.alertmanager import Alertmanagers
from otel_straggler.collector.alerting.posting import NotifySettings
from otel_straggler.collector.alerting.webhook import Changes, Webhook, calls
from otel_straggler.model.alert import Alert

from ..servers.alertmanager import (
    eventually,
    running_alertmanager,
)
from ..servers.receiver import CLOSE, HANG, Receiver

SETTINGS = NotifySettings(interval_s=0.05, repeat_s=3600, timeout_s=20.0)
QUICK = replace(SETTINGS, timeout_s=1.0)
"""Where somebody hangs."""


def alert(name: str = "RunHung", ends_at_s: float | None = None, **labels: str) -> Alert:
    reported = {
        "alertname": f"Straggler{name}",
        "severity": "critical",
        "mode": "page",
        "run_id": "r",
        "job_name": 'a "job"',
    }
    return Alert(
        labels={**reported, **labels},
        annotations={"summary": "It hangs.", "description": f"{name} says more."},
        starts_at_s=1_790_000_000.0,
        ends_at_s=ends_at_s,
    )


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Try again at once."""
    monkeypatch.setattr(webhook, "retry_delay_s", lambda *_: 0.02)


@pytest.fixture
def begin() -> Iterator[Callable[..., Webhook]]:
    running: list[Webhook] = []

    def make(url: str, settings: NotifySettings = SETTINGS) -> Webhook:
        one = Webhook(replace(settings, webhook=url))
        one.start()
        running.append(one)
        return one

    yield make
    for one in running:
        one.stop(0.0)


# --- what is sent when --------------------------------------------------------------------------

PACED = NotifySettings(interval_s=100, repeat_s=1000)


def sent(changes: Changes, now_s: float, **how: bool) -> list[str]:
    """What is sent at this time, as names; those that ended have a minus."""
    message = changes.due(now_s, **how)
    if message:
        changes.settle(message, now_s)
    return [("-" if one.ends_at_s else "") + one.name.removeprefix("Straggler") for one in message]


def test_a_change_is_sent_at_once_and_the_next_after_the_interval() -> None:
    """All that comes in between is one message; it has the changes alone, of whatever run."""
    changes = Changes(PACED)
    changes.update((alert(),))
    assert sent(changes, 0) == ["RunHung"]
    for others in ((alert("RankLost"),), (alert("RankLost"), alert("RankStuck", run_id="s"))):
        changes.update((alert(), *others))
    assert (sent(changes, 99), changes.due_at_s()) == ([], 100)
    assert sent(changes, 100) == ["RankLost", "RankStuck"]
    assert sent(changes, 900) == []


def test_what_is_critical_never_waits_behind_a_warning() -> None:
    """Only behind the last critical one; warnings that wait go with it."""
    changes = Changes(PACED)
    slow, lost = alert("RunSlow", severity="warning"), alert("NoData", severity="warning")
    changes.update((slow,))
    assert sent(changes, 0) == ["RunSlow"]
    changes.update((slow, lost))
    assert sent(changes, 5) == []
    changes.update((slow, lost, alert()))
    assert (changes.due_at_s() <= 10, sent(changes, 10)) == (True, ["NoData", "RunHung"])
    changes.update((slow, lost, alert(), alert("RankLost")))
    assert (sent(changes, 20), changes.due_at_s()) == ([], 110)
    assert sent(changes, 110) == ["RankLost"]


def test_what_goes_on_is_repeated_rarely() -> None:
    """And not while nothing fires."""
    changes = Changes(PACED)
    changes.update((alert(), alert("RankLost")))
    sent(changes, 0)
    assert (sent(changes, 999), changes.due_at_s()) == ([], 1000)
    assert sent(changes, 1000) == ["RunHung", "RankLost"]
    changes.update((alert(ends_at_s=1001.0), alert("RankLost", ends_at_s=1001.0)))
    assert sent(changes, 1100) == ["-RunHung", "-RankLost"]
    assert (changes.due(10_000), changes.due_at_s()) == ((), float("inf"))


def test_what_nobody_was_told_of_does_not_end_for_anybody() -> None:
    """An alert shorter than the interval is no message."""
    changes = Changes(PACED)
    changes.update((alert(),))
    sent(changes, 0)
    changes.update((alert(), alert("RankLost")))
    changes.update((alert(), alert("RankLost", ends_at_s=5.0)))
    assert sent(changes, 900) == []


def test_what_comes_back_before_its_end_was_sent_is_no_news() -> None:
    """Nobody is called twice for a flapping alert within one interval."""
    changes = Changes(PACED)
    changes.update((alert(),))
    sent(changes, 0)
    changes.update((alert(ends_at_s=20.0),))
    changes.update((alert(),))
    assert sent(changes, 900) == []


def test_what_comes_back_while_its_end_is_being_sent_is_news() -> None:
    """The receiver believes that it is over."""
    changes = Changes(PACED)
    changes.update((alert(),))
    sent(changes, 0)
    changes.update((alert(ends_at_s=20.0),))
    message = changes.due(100)
    changes.update((alert(),))
    changes.settle(message, 101)
    assert sent(changes, 201) == ["RunHung"]


@pytest.mark.parametrize(("name", "send_resolved"), [("RunHung", False), ("RunForgotten", True)])
def test_ends_are_not_sent_where_that_is_set(name: str, send_resolved: bool) -> None:
    """For all, or for an alert whose end is no good news; the next one is news."""
    changes = Changes(NotifySettings(interval_s=0.1, send_resolved=send_resolved))
    changes.update((alert(name),))
    assert sent(changes, 0) == [name]
    changes.update((alert(name, ends_at_s=20.0),))
    assert sent(changes, 10_000) == []
    changes.update((alert(name),))
    assert sent(changes, 20_000) == [name]


def test_what_ends_unreported_is_forgotten() -> None:
    """Such as a hang that monitoring has given up on; the next one is news."""
    changes = Changes(PACED)
    changes.update((alert(),))
    sent(changes, 0)
    changes.update((), unreported=(alert(ends_at_s=20.0),))
    assert sent(changes, 200) == []
    changes.update((alert(),))
    assert sent(changes, 300) == ["RunHung"]


def test_what_could_not_be_sent_is_still_news() -> None:
    """From the time to which it was put off."""
    changes = Changes(PACED)
    changes.update((alert(),))
    changes.due(0)
    changes.put_off(3)
    changes.update((alert(), alert("RankLost")))
    assert (changes.due(2), changes.due_at_s()) == ((), 3)
    assert sent(changes, 3) == ["RunHung", "RankLost"]


def test_what_ends_while_it_is_being_sent_is_reported_to_have_ended() -> None:
    """The message is under way: it cannot be taken back, so nobody stays called."""
    changes = Changes(PACED)
    changes.update((alert(),))
    message = changes.due(0)
    changes.update((alert(ends_at_s=1.0),))
    changes.settle(message, 2)
    assert sent(changes, 102) == ["-RunHung"]
    assert (sent(changes, 10_000), changes.due_at_s()) == ([], float("inf"))


def test_what_ends_before_it_could_be_sent_is_not_mentioned() -> None:
    """As Alertmanager has it: what failed has called nobody."""
    changes = Changes(PACED)
    changes.update((alert(),))
    changes.due(0)
    changes.update((alert(ends_at_s=1.0),))
    changes.put_off(3)
    assert (sent(changes, 10_000), changes.due_at_s()) == ([], float("inf"))


@pytest.mark.parametrize("is_sent", [False, True])
def test_what_ends_unreported_while_it_is_being_sent_is_forgotten(is_sent: bool) -> None:
    """The next one is news."""
    changes = Changes(replace(PACED, send_resolved=not is_sent))
    changes.update((alert(),))
    message = changes.due(0)
    ended = alert(ends_at_s=1.0)
    changes.update((ended,) if is_sent else (), unreported=() if is_sent else (ended,))
    changes.settle(message, 2)
    assert sent(changes, 102) == []
    changes.update((alert(),))
    assert sent(changes, 300) == ["RunHung"]


def test_the_last_words_do_not_wait() -> None:
    """What is new is sent when the collector stops; what was sent is not repeated."""
    changes = Changes(PACED)
    changes.update((alert(),))
    sent(changes, 0)
    assert sent(changes, 1, is_last=True) == []
    changes.update((alert(), alert("RankLost")))
    assert sent(changes, 1, is_last=True) == ["RankLost"]


def test_a_restart_is_no_news() -> None:
    """What was sent is known, with its age, on a clock that begins anew; also ends that wait."""
    changes = Changes(PACED)
    changes.update((alert(), alert("RankLost")))
    sent(changes, 10)
    changes.update((alert(), alert("RankLost", ends_at_s=20.0)))
    state = json.loads(json.dumps(changes.state(30)))
    again = Changes(PACED)
    again.restore(state, passed_s=5, now_s=1_000_000)
    again.update((alert(),))
    assert again.due_at_s() == 1_000_000 - 5 - 20 + 100
    assert sent(again, 1_000_075) == ["-RankLost"]
    assert sent(again, 1_001_074) == []
    assert sent(again, 1_001_075) == ["RunHung"]
    fresh = Changes(PACED)
    fresh.restore(Changes(PACED).state(0), 0, 0)
    assert fresh.due_at_s() == float("inf")


@pytest.mark.parametrize(
    "state",
    [
        {},
        {"version": 1, "groups": []},
        {"version": 2, "age_s": 1, "sent": [{}], "ended": []},
        {"version": 2, "age_s": "late", "sent": [], "ended": []},
    ],
)
def test_a_state_of_another_kind_is_refused(state: dict[str, Any]) -> None:
    """And leaves everything as it was."""
    changes = Changes(PACED)
    with pytest.raises((ValueError, KeyError, TypeError)):
        changes.restore(state, 0, 0)
    assert changes.state(0) == Changes(PACED).state(0)


# --- the thread that sends it -------------------------------------------------------------------


def names(request: Any) -> list[str]:
    return [
        each["labels"]["alertname"].removeprefix("Straggler") for each in request.body["alerts"]
    ]


def test_one_message_then_one_end(begin: Callable[..., Webhook]) -> None:
    """To the URL as it is."""
    with Receiver() as receiver:
        hook = begin(receiver.url + "/hook?team=a")
        hook.update((alert(), alert("RankLost", rank="3")))
        eventually(lambda: receiver.received)
        hook.update(
            (alert(ends_at_s=1_790_000_060.0), alert("RankLost", 1_790_000_060.0, rank="3"))
        )
        eventually(lambda: len(receiver.received) == 2)
    fired, ended = receiver.received
    assert fired.path == "/hook?team=a"
    assert (names(fired), fired.body["status"]) == (["RunHung", "RankLost"], "firing")
    assert (names(ended), ended.body["status"]) == (["RunHung", "RankLost"], "resolved")
    assert {each["endsAt"] for each in ended.body["alerts"]} == {rfc3339(1_790_000_060.0)}


@pytest.mark.parametrize("trouble", [500, CLOSE, HANG])
def test_a_webhook_that_fails_three_times_gets_the_message_once(
    begin: Callable[..., Webhook], trouble: int
) -> None:
    """And is told of what came meanwhile in the same."""
    with Receiver(trouble, trouble, trouble) as receiver:
        hook = begin(receiver.url, QUICK if trouble == HANG else SETTINGS)
        hook.update((alert(),))
        eventually(lambda: receiver.tries)
        hook.update((alert(), alert("RankLost")))
        eventually(lambda: [r for r in receiver.received if len(names(r)) == 2])
        name = f"127.0.0.1:{receiver.port}"
        assert hook.counts()[name, "failed"] == 3
        assert names(receiver.received[-1]) == ["RunHung", "RankLost"]
        assert len(receiver.received) == 1


def test_a_refused_message_is_not_repeated(begin: Callable[..., Webhook]) -> None:
    """Until there is news."""
    with Receiver(400) as receiver:
        hook = begin(receiver.url)
        hook.update((alert(),))
        eventually(lambda: hook.counts()[f"127.0.0.1:{receiver.port}", "refused"] == 1)
        hook.update((alert(), alert("RankLost")))
        eventually(lambda: receiver.received)
        assert receiver.tries == 2


def test_a_wrong_token_is_tried_again_when_somebody_has_set_it_right(
    begin: Callable[..., Webhook], tmp_path: Path
) -> None:
    """The file is read anew; the message was not lost."""
    secret = tmp_path / "token"
    secret.write_text("old\n")
    with Receiver(401, 401) as receiver:
        begin(receiver.url, replace(SETTINGS, token_file=str(secret))).update((alert(),))
        eventually(lambda: receiver.refused)
        secret.write_text("new\n")
        eventually(lambda: receiver.received)
    assert receiver.received[0].headers["authorization"] == "Bearer new"
    assert receiver.refused[0].headers["authorization"] == "Bearer old"


def test_a_message_that_is_too_large_is_cut_and_says_so(begin: Callable[..., Webhook]) -> None:
    """The first alerts are in it, the rest is counted."""
    many = tuple(alert("RankLost", rank=str(number)) for number in range(150))
    with Receiver() as large, Receiver(largest_bytes=9_000) as small:
        begin(large.url).update(many)
        begin(small.url).update(many)
        eventually(lambda: large.received and small.received)
    reported = large.received[0].body
    assert (len(reported["alerts"]), reported["truncatedAlerts"]) == (webhook.MAX_ALERTS, 50)
    reported = small.received[0].body
    assert 1 <= len(reported["alerts"]) == 150 - reported["truncatedAlerts"] < 100


def test_stopping_says_what_is_new(begin: Callable[..., Webhook]) -> None:
    """What waited for the interval is better early than never."""
    with Receiver() as receiver:
        hook = begin(receiver.url, NotifySettings(interval_s=3600))
        hook.update((alert(),))
        eventually(lambda: receiver.received)
        hook.update((alert(), alert("RankLost")))
        hook.stop(20.0)
        assert [names(one) for one in receiver.received] == [["RunHung"], ["RankLost"]]


def test_stopping_does_not_wait_for_a_webhook_that_hangs() -> None:
    """The deadline holds."""
    with Receiver(*[HANG] * 9) as receiver:
        hook = Webhook(replace(SETTINGS, webhook=receiver.url, timeout_s=60.0))
        hook.start()
        hook.update((alert(),))
        eventually(lambda: receiver.tries)
        stopping = threading.Thread(target=hook.stop, args=(0.2,))
        stopping.start()
        stopping.join(30)
        assert not stopping.is_alive()


def test_only_what_pages_and_is_grave_enough_calls_somebody() -> None:
    """Nothing in mode observe, whatever its severity."""
    assert calls(alert(), "critical")
    assert calls(alert(severity="warning"), "warning")
    assert not calls(alert(severity="warning"), "critical")
    assert not calls(alert(severity="info"), "warning")
    assert not calls(alert(mode="observe"), "info")
    assert not calls(Alert(labels={"alertname": "x"}, annotations={}, starts_at_s=0), "info")


@pytest.mark.real_server
def test_it_says_what_a_real_alertmanager_says(
    tmp_path: Path, begin: Callable[..., Webhook]
) -> None:
    """Field by field, for an alert that fires and for its end; but for the names of the senders."""
    now_s = float(int(time.time()))
    labels = {**alert().labels, "cluster": "c", "job_name": 'a "b" \\ ä'}
    fires = Alert(labels=labels, annotations={"summary": "→"}, starts_at_s=now_s - 100)
    lost = Alert(
        labels={**labels, "alertname": "StragglerRankLost", "rank": "3"},
        annotations={"summary": "→"},
        starts_at_s=now_s - 100,
    )
    with Receiver() as theirs, Receiver() as ours:
        config = {
            "route": {
                "receiver": "hook",
                "group_wait": "1s",
                "group_interval": "1s",
            },
            "receivers": [{"name": "hook", "webhook_configs": [{"url": theirs.url}]}],
        }
        with running_alertmanager(tmp_path, config) as real:
            sender = Alertmanagers([real.url], SETTINGS)
            sender.start()
            hook = begin(ours.url)
            for ends_at_s, count in ((None, 1), (now_s, 2)):
                reported = [
                    Alert(
                        labels=each.labels,
                        annotations=each.annotations,
                        starts_at_s=each.starts_at_s,
                        ends_at_s=ends_at_s,
                    )
                    for each in (fires, lost)
                ]
                sender.update(reported, time.time())
                hook.update(reported)
                eventually(
                    lambda wanted=count: len(theirs.received) == len(ours.received) == wanted
                )
            sender.stop(1.0)
    for one, other in zip(theirs.received, ours.received, strict=True):
        assert _comparable(one.body) == _comparable(other.body)
        assert one.headers["content-type"] == other.headers["content-type"]


def _comparable(body: Any) -> Any:
    body = json.loads(json.dumps(body))
    for name in ("receiver", "externalURL"):
        assert isinstance(body.pop(name), str)
    body["alerts"].sort(key=lambda each: each["fingerprint"])
    for each in body["alerts"]:
        each["startsAt"] = each["startsAt"].replace(".000Z", "Z")
        each["endsAt"] = each["endsAt"].replace(".000Z", "Z")
    return body

"""A webhook is told what Alertmanager would have told it."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from otel_straggler.model.alert import Alert
from otel_straggler.publish import webhook
from otel_straggler.publish.alert_json import rfc3339
from otel_straggler.publish.alertmanager import Alertmanagers, SendRules
from otel_straggler.publish.grouping import GroupRules
from otel_straggler.publish.posting import Access
from otel_straggler.publish.webhook import Webhook, calls

from ..servers.alertmanager import (
    eventually,
    running_alertmanager,
)
from ..servers.receiver import CLOSE, HANG, Receiver

PATIENT = Access(timeout_s=20.0)
QUICK = Access(timeout_s=1.0)
"""Where somebody hangs."""
RULES = GroupRules(wait_s=0.05, interval_s=0.05, repeat_s=3600)


def alert(name: str = "RunHung", ends_at_s: float | None = None, **labels: str) -> Alert:
    told = {
        "alertname": f"Straggler{name}",
        "severity": "critical",
        "mode": "page",
        "run_id": "r",
        "job_name": 'a "job"',
    }
    return Alert(
        labels={**told, **labels},
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

    def make(url: str, rules: GroupRules = RULES, access: Access = PATIENT) -> Webhook:
        one = Webhook(url, access, rules)
        one.start()
        running.append(one)
        return one

    yield make
    for one in running:
        one.stop(0.0)


def names(request: Any) -> list[str]:
    return [
        each["labels"]["alertname"].removeprefix("Straggler") for each in request.body["alerts"]
    ]


def test_one_message_then_one_end(begin: Callable[..., Webhook]) -> None:
    """To the URL as it is."""
    with Receiver() as receiver:
        hook = begin(receiver.url + "/hook?team=a")
        hook.take((alert(), alert("RankLost", rank="3")))
        eventually(lambda: receiver.received)
        hook.take((alert(ends_at_s=1_790_000_060.0), alert("RankLost", 1_790_000_060.0, rank="3")))
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
        hook = begin(receiver.url, access=QUICK if trouble == HANG else PATIENT)
        hook.take((alert(),))
        eventually(lambda: receiver.tries)
        hook.take((alert(), alert("RankLost")))
        eventually(lambda: [r for r in receiver.received if len(names(r)) == 2])
        name = f"127.0.0.1:{receiver.port}"
        assert hook.counts()[name, "failed"] == 3
        assert names(receiver.received[-1]) == ["RunHung", "RankLost"]
        assert len(receiver.received) == 1


def test_a_refused_message_is_not_repeated(begin: Callable[..., Webhook]) -> None:
    """Until there is news."""
    with Receiver(400) as receiver:
        hook = begin(receiver.url)
        hook.take((alert(),))
        eventually(lambda: hook.counts()[f"127.0.0.1:{receiver.port}", "refused"] == 1)
        hook.take((alert(), alert("RankLost")))
        eventually(lambda: receiver.received)
        assert receiver.tries == 2


def test_a_wrong_token_is_tried_again_when_somebody_has_set_it_right(
    begin: Callable[..., Webhook], tmp_path: Path
) -> None:
    """The file is read anew; the message was not lost."""
    secret = tmp_path / "token"
    secret.write_text("old\n")
    with Receiver(401, 401) as receiver:
        begin(receiver.url, access=Access(token_file=str(secret))).take((alert(),))
        eventually(lambda: receiver.refused)
        secret.write_text("new\n")
        eventually(lambda: receiver.received)
    assert receiver.received[0].headers["authorization"] == "Bearer new"
    assert receiver.refused[0].headers["authorization"] == "Bearer old"


def test_a_message_that_is_too_large_is_cut_and_says_so(begin: Callable[..., Webhook]) -> None:
    """The first alerts are in it, the rest is counted."""
    many = tuple(alert("RankLost", rank=str(number)) for number in range(150))
    with Receiver() as large, Receiver(largest_bytes=9_000) as small:
        begin(large.url).take(many)
        begin(small.url).take(many)
        eventually(lambda: large.received and small.received)
    told = large.received[0].body
    assert (len(told["alerts"]), told["truncatedAlerts"]) == (webhook.MOST_TOLD, 50)
    told = small.received[0].body
    assert 1 <= len(told["alerts"]) == 150 - told["truncatedAlerts"] < 100


def test_stopping_says_what_is_new(begin: Callable[..., Webhook]) -> None:
    """A page that waited for its group is better early than never."""
    with Receiver() as receiver:
        hook = begin(receiver.url, GroupRules(wait_s=3600))
        hook.take((alert(),))
        hook.stop(20.0)
        assert [names(one) for one in receiver.received] == [["RunHung"]]


def test_stopping_does_not_wait_for_a_webhook_that_hangs() -> None:
    """The deadline holds."""
    with Receiver(*[HANG] * 9) as receiver:
        hook = Webhook(receiver.url, Access(timeout_s=60.0), RULES)
        hook.start()
        hook.take((alert(),))
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
                "group_by": ["cluster", "job_name", "run_id"],
                "group_wait": "300ms",
                "group_interval": "1s",
            },
            "receivers": [{"name": "hook", "webhook_configs": [{"url": theirs.url}]}],
        }
        with running_alertmanager(tmp_path, config) as real:
            sender = Alertmanagers([real.url], PATIENT, SendRules())
            sender.start()
            hook = begin(ours.url)
            for ends_at_s, count in ((None, 1), (now_s, 2)):
                told = [
                    Alert(
                        labels=each.labels,
                        annotations=each.annotations,
                        starts_at_s=each.starts_at_s,
                        ends_at_s=ends_at_s,
                    )
                    for each in (fires, lost)
                ]
                sender.take(told, time.time())
                hook.take(told)
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

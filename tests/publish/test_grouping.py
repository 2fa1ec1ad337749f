"""When a webhook is told what: one message for one trouble, news soon, the rest rarely."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from otel_straggler.model.alert import Alert
from otel_straggler.publish.grouping import GroupRules, Groups, Message

RULES = GroupRules(wait_s=10, interval_s=100, repeat_s=1000)


def alert(name: str = "RunHung", ends_at_s: float | None = None, **labels: str) -> Alert:
    told = {"alertname": f"Straggler{name}", "run_id": "r", "job_name": "j", **labels}
    return Alert(labels=told, annotations={}, starts_at_s=1.0, ends_at_s=ends_at_s)


def said(groups: Groups, now_s: float) -> list[list[str]]:
    """What is said at this time, as names; those that ended have a minus."""
    told = []
    for message in groups.due(now_s):
        groups.settle(message, now_s)
        told.append(_names(message))
    return told


def _names(message: Message) -> list[str]:
    return [
        ("-" if each.ends_at_s else "") + each.name.removeprefix("Straggler")
        for each in message.alerts
    ]


def test_what_comes_together_is_one_message() -> None:
    """A group waits after its first alert, and has then all that came meanwhile."""
    groups = Groups(RULES)
    groups.take((alert(),), 0)
    groups.take((alert(), alert("RankLost", rank="3")), 9)
    assert said(groups, 9.9) == []
    assert groups.next_at_s() == 10
    assert said(groups, 10) == [["RunHung", "RankLost"]]
    assert said(groups, 500) == []


def test_runs_are_told_of_apart() -> None:
    """Groups of ranks of one run together."""
    groups = Groups(RULES)
    several = (alert(), alert(group="critic"), alert(run_id="s"))
    groups.take(several, 0)
    assert said(groups, 10) == [["RunHung", "RunHung"], ["RunHung"]]
    assert [message.labels["run_id"] for message in groups.due(1010)] == ["r", "s"]


def test_news_waits_for_the_interval_and_says_all_that_fires() -> None:
    """Counted from the last message."""
    groups = Groups(RULES)
    groups.take((alert(),), 0)
    assert said(groups, 10) == [["RunHung"]]
    groups.take((alert(), alert("RankLost")), 20)
    assert (said(groups, 109), groups.next_at_s()) == ([], 110)
    assert said(groups, 110) == [["RunHung", "RankLost"]]


def test_what_goes_on_is_repeated_rarely() -> None:
    """And not while nothing fires."""
    groups = Groups(RULES)
    groups.take((alert(),), 0)
    assert said(groups, 10) == [["RunHung"]]
    assert (said(groups, 1009), groups.next_at_s()) == ([], 1010)
    assert said(groups, 1010) == [["RunHung"]]


def test_an_end_is_told_once() -> None:
    """Of what was told; then the group is forgotten."""
    groups = Groups(RULES)
    groups.take((alert(), alert("RankLost")), 0)
    said(groups, 10)
    groups.take((alert(), alert("RankLost", ends_at_s=50.0)), 50)
    assert said(groups, 110) == [["RunHung", "-RankLost"]]
    groups.take((alert(ends_at_s=120.0),), 120)
    assert said(groups, 210) == [["-RunHung"]]
    assert (groups.due(10_000), groups.next_at_s()) == ((), float("inf"))


def test_what_nobody_was_told_of_does_not_end_for_anybody() -> None:
    """An alert shorter than the wait is no message."""
    groups = Groups(RULES)
    groups.take((alert(),), 0)
    groups.take((alert(ends_at_s=5.0),), 5)
    assert said(groups, 10_000) == []


def test_what_comes_back_before_its_end_was_told_is_no_news() -> None:
    """Nobody is called twice for a flapping alert within one interval."""
    groups = Groups(RULES)
    groups.take((alert(),), 0)
    said(groups, 10)
    groups.take((alert(ends_at_s=20.0),), 20)
    groups.take((alert(),), 30)
    assert said(groups, 110) == []


def test_ends_are_not_told_where_that_is_set() -> None:
    """For all, or for some names."""
    for rules in (
        GroupRules(wait_s=0, sends_resolved=False),
        GroupRules(wait_s=0, never_resolved=frozenset({"StragglerRunHung"})),
    ):
        groups = Groups(rules)
        groups.take((alert(),), 0)
        assert said(groups, 0) == [["RunHung"]]
        groups.take((alert(ends_at_s=20.0),), 20)
        assert said(groups, 10_000) == []
        groups.take((alert(),), 20_000)
        assert said(groups, 20_000) == [["RunHung"]]


def test_what_ends_unsaid_is_forgotten() -> None:
    """Such as a hang that monitoring has given up on; the next one is news."""
    groups = Groups(RULES)
    groups.take((alert(),), 0)
    said(groups, 10)
    groups.take((), 20, unsaid=(alert(ends_at_s=20.0),))
    assert said(groups, 200) == []
    groups.take((alert(),), 300)
    assert said(groups, 310) == [["RunHung"]]


def test_what_could_not_be_said_is_still_news() -> None:
    """From the time to which it was put off."""
    groups = Groups(RULES)
    groups.take((alert(),), 0)
    (message,) = groups.due(10)
    groups.put_off(message, 13)
    assert (groups.due(12), groups.next_at_s()) == ((), 13)
    groups.take((alert(), alert("RankLost")), 12)
    assert said(groups, 13) == [["RunHung", "RankLost"]]


def test_what_ends_while_it_is_being_said_is_told_to_have_ended() -> None:
    """The message is under way: it cannot be taken back, so nobody stays called."""
    groups = Groups(RULES)
    groups.take((alert(),), 0)
    (message,) = groups.due(10)
    groups.take((alert(ends_at_s=11.0),), 11)
    groups.settle(message, 12)
    assert said(groups, 112) == [["-RunHung"]]
    assert (said(groups, 10_000), groups.next_at_s()) == ([], float("inf"))


def test_what_ends_before_it_could_be_said_is_not_mentioned() -> None:
    """As Alertmanager has it: what failed has called nobody."""
    groups = Groups(RULES)
    groups.take((alert(),), 0)
    (message,) = groups.due(10)
    groups.take((alert(ends_at_s=11.0),), 11)
    groups.put_off(message, 13)
    assert (said(groups, 10_000), groups.next_at_s()) == ([], float("inf"))


@pytest.mark.parametrize("never_resolved", [frozenset(), {"StragglerRunHung"}])
def test_what_ends_unsaid_while_it_is_being_said_is_forgotten(never_resolved: set[str]) -> None:
    """The next one is news."""
    groups = Groups(replace(RULES, never_resolved=frozenset(never_resolved)))
    groups.take((alert(),), 0)
    (message,) = groups.due(10)
    ended = alert(ends_at_s=11.0)
    groups.take((ended,) if never_resolved else (), 11, unsaid=() if never_resolved else (ended,))
    groups.settle(message, 12)
    assert said(groups, 112) == []
    groups.take((alert(),), 300)
    assert said(groups, 310) == [["RunHung"]]


def test_the_last_words_do_not_wait() -> None:
    """What is new is said when the collector stops; what was told is not repeated."""
    groups = Groups(RULES)
    groups.take((alert(), alert(run_id="s")), 0)
    said(groups, 10)
    groups.take((alert(), alert(run_id="s"), alert("RankLost"), alert(run_id="t")), 20)
    (of_r, of_t) = groups.due(21, is_last=True)
    assert (_names(of_r), _names(of_t)) == (["RunHung", "RankLost"], ["RunHung"])


def test_a_restart_is_no_news() -> None:
    """What was told is known, with its age, on a clock that begins anew; also ends not yet told."""
    groups = Groups(RULES)
    groups.take((alert(), alert("RankLost")), 0)
    said(groups, 10)
    groups.take((alert(), alert("RankLost", ends_at_s=20.0)), 20)
    state = json.loads(json.dumps(groups.state(30)))
    again = Groups(RULES)
    again.restore(state, passed_s=5, now_s=1_000_000)
    again.take((alert(),), 1_000_000)
    assert again.next_at_s() == 1_000_000 - 5 - 20 + 100
    assert said(again, 1_000_075) == [["RunHung", "-RankLost"]]
    assert said(again, 1_001_074) == []
    assert said(again, 1_001_075) == [["RunHung"]]


@pytest.mark.parametrize(
    "state",
    [
        {},
        {"version": 2, "groups": []},
        {"version": 1, "groups": [{"group": ["a"], "age_s": 1, "told": [], "ended": []}]},
        {"version": 1, "groups": [{"group": ["a", "b", "c"], "age_s": 1, "told": [{}]}]},
    ],
)
def test_a_state_of_another_kind_is_refused(state: dict[str, Any]) -> None:
    """And leaves everything as it was."""
    groups = Groups(RULES)
    with pytest.raises((ValueError, KeyError, TypeError)):
        groups.restore(state, 0, 0)
    assert groups.state(0)["groups"] == []

"""Inhibition: one alert for one trouble, and never one that calls nobody for one that does."""

from __future__ import annotations

import itertools
import re
from typing import Any

import yaml

from otel_straggler.alerts.catalogue import CATALOGUE, INHIBITIONS, uninhibited
from otel_straggler.alerts.render import alertmanager_file
from otel_straggler.alerts.settings import AlertSettings
from otel_straggler.model.alert import Alert


def alert(name: str, ends_at_s: float | None = None, **labels: Any) -> Alert:
    reported = {"alertname": f"Straggler{name}", "mode": "page", "run_id": "r", **labels}
    return Alert(labels=reported, annotations={}, starts_at_s=1.0, ends_at_s=ends_at_s)


def names(alerts: tuple[Alert, ...]) -> list[str]:
    return [each.name.removeprefix("Straggler") for each in alerts]


def test_a_hung_run_stands_for_its_ranks() -> None:
    """Of the same run and group, whoever watches it."""
    hung = alert("RunHung", collector="a")
    lost = alert("RankLost", rank="3", collector="b")
    others = (alert("RankLost", run_id="s"), alert("RankLost", group="critic"))
    assert names(uninhibited((hung, lost), (hung, lost))) == ["RunHung"]
    assert uninhibited(others, (hung, *others)) == others


def test_a_hung_run_stands_for_all_that_is_about_its_ranks_and_hosts() -> None:
    """And for what is said of a run that trains."""
    hung = alert("RunHung")
    of_ranks = {rule.name for rule in CATALOGUE if {"rank", "node"} & set(rule.labels)}
    of_training = {rule.name for rule in CATALOGUE if rule.during in ("training", "working")}
    assert len(of_ranks) >= 8
    for name in of_ranks | of_training:
        other = alert(name.removeprefix("Straggler"), rank="3", node="n1", severity="critical")
        assert uninhibited((other,), (hung, other)) == (), name


def test_a_hung_run_is_sent_at_once_and_in_a_group_of_its_own() -> None:
    """It does not wait behind what was sent about the run before."""
    [route] = yaml.safe_load(alertmanager_file(AlertSettings()))["route"]["routes"]
    [own] = [r for r in route["routes"] if r["matchers"] == ['alertname="StragglerRunHung"']]
    assert (own["receiver"], own["group_wait"]) == ("pager", "1s")
    assert route["group_wait"] == "15s"  # what it inhibits waits for it
    before = route["routes"][: route["routes"].index(own)]
    assert ['mode="observe"'] in [r["matchers"] for r in before]


def test_what_calls_nobody_silences_nothing_that_does() -> None:
    """A collector that only observes cannot mute one that pages."""
    hung = alert("RunHung", mode="observe")
    lost = alert("RankLost")
    assert uninhibited((lost,), (hung, lost)) == (lost,)


def test_a_dead_collector_never_silences_a_hung_run() -> None:
    """Only what is said because nobody hears of the run any more."""
    down = alert("CollectorDown", collector="a")
    reported = (alert("RunHung", collector="a"), alert("RunSilent", collector="a"))
    assert names(uninhibited(reported, (down, *reported))) == ["RunHung"]


def test_giving_up_is_never_told_as_an_end_of_the_hang() -> None:
    """The end of the hang is no message while "monitoring gave up" stands."""
    gave_up = alert("RunForgotten")
    ended = alert("RunHung", ends_at_s=2.0)
    assert names(uninhibited((ended, gave_up), (gave_up,))) == ["RunForgotten"]


def test_what_has_ended_stands_for_nothing() -> None:
    """The ranks of a run that went on are told again."""
    assert names(uninhibited((alert("RankLost"),), (alert("RunHung", 2.0),))) == ["RankLost"]


def test_a_slow_host_stands_for_its_ranks_only() -> None:
    """By node."""
    host = alert("HostSlow", node="n1")
    there, elsewhere = (alert("RankStraggling", node=node) for node in ("n1", "n2"))
    assert uninhibited((there, elsewhere), (host, there, elsewhere)) == (elsewhere,)


def test_a_slow_rank_or_host_stands_for_low_scores_of_the_whole_run() -> None:
    """The others wait for it, in sections of their own; scores of another run or group do not."""
    low = tuple(alert(name, rank="7", node="n2") for name in ("ScoreLow", "RankDegraded"))
    elsewhere = (alert("ScoreLow", run_id="s"), alert("RankDegraded", group="critic"))
    for named in (alert("RankStraggling", rank="1", node="n1"), alert("HostSlow", node="n1")):
        assert uninhibited((*low, *elsewhere), (named, *low, *elsewhere)) == elsewhere


def test_what_does_not_call_never_silences_what_does() -> None:
    """A slow host of little weight leaves a rank of great weight; a grave verdict stands for its
    milder self."""
    host = alert("HostSlow", node="n1", severity="warning")
    grave = alert("RankStraggling", node="n1", rank="1", severity="critical")
    mild = alert("RankStraggling", node="n1", rank="1", severity="warning")
    assert uninhibited((grave, mild), (host,)) == (grave,)
    assert uninhibited((grave, mild), (grave, mild)) == (grave,)
    assert uninhibited((mild,), (mild,)) == (mild,)


def test_no_alert_silences_itself() -> None:
    """Neither directly nor in a ring; but by severity."""
    over: dict[str, set[str]] = {}
    for rule in INHIBITIONS:
        if rule.covered != "milder":
            over.setdefault(rule.source, set()).update(rule.targets)
    for source, targets in over.items():
        assert source not in targets
        for target in targets:
            assert source not in over.get(target, ())


def test_the_example_for_alertmanager_inhibits_the_same() -> None:
    """Every pair of names and severities; the example may leave the mode to its routes."""
    rules = yaml.safe_load(alertmanager_file(AlertSettings()))["inhibit_rules"]
    names_known = {rule.name for rule in CATALOGUE}
    for source, target in itertools.product(sorted(names_known), repeat=2):
        for grave, other in itertools.product(("critical", "warning"), repeat=2):
            one, two = (
                Alert(labels={"alertname": n, "severity": s}, annotations={}, starts_at_s=0.0)
                for n, s in ((source, grave), (target, other))
            )
            theirs = {
                frozenset(rule["equal"]) - {"mode"}
                for rule in rules
                if _fits(rule["source_matchers"], one) and _fits(rule["target_matchers"], two)
            }
            ours = {frozenset(r.equal) - {"mode"} for r in INHIBITIONS if r.covers(one, two)}
            assert ours == theirs, (source, grave, target, other)


def _fits(matchers: list[str], alert: Alert) -> bool:
    for matcher in matchers:
        result = re.fullmatch(r'(\w+)(=~|!~|!=|=)"(.*)"', matcher)
        assert result is not None, matcher
        name, operator, value = result.groups()
        reported = alert.labels.get(name, "")
        is_equal = bool(re.fullmatch(value, reported)) if "~" in operator else value == reported
        if is_equal == operator.startswith("!"):
            return False
    return True

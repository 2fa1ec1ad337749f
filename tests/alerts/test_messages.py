"""Prometheus and the collector write the same text, whatever the labels hold."""

from __future__ import annotations

import random
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from otel_straggler.alerts.catalogue import CATALOGUE
from otel_straggler.alerts.messages import (
    Message,
    humanize,
    humanize_duration,
    humanize_percentage,
    links,
    links_in_go,
)
from otel_straggler.alerts.rule import AlertRule
from otel_straggler.alerts.settings import AlertSettings
from otel_straggler.collector.metrics.families import labels as labels_text

from .conftest import Program

TEXTS = (
    "",
    "r1",
    'a"b\\c',
    "{{ .x }}",
    "`tick` %q %s",
    "two\nlines",
    "größe 名前 🚀",
    "a b+c&d=e?f/g#h",
    "<other>",
    "' ; drop",
    "é",
)
VALUES = (0.0, 1.0, 0.5, 0.1234567, 1e-7, 123456789.0, 86_400.5, 59.94, 3_661.0, 2.005, 0.9999)
LINKED = AlertSettings(
    dashboard_url="https://grafana.example/d/run?orgId=1",
    runbook_url="https://runbook.example/page",
    alertmanager_url="https://alerts.example/",
)


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.nightly) for seed in range(1, 3))]
)
def test_both_write_the_same_for_every_alert(seed: int, promtool: Program, tmp_path: Path) -> None:
    """Sentences and links, of random labels, values and facts."""
    random_ = random.Random(seed)
    rules: list[Any] = []
    tests: list[Any] = []
    for n, rule in enumerate(CATALOGUE):
        name = f"Probe{n}"
        annotations = {
            **{name: message.in_go() for name, message in rule.messages.items()},
            **links_in_go(rule.name, rule.labels, LINKED),
        }
        rules.append({"alert": name, "expr": f"probe{n}", "annotations": annotations})
        tests += [_example(rule, n, random_) for _ in range(6)]
    (tmp_path / "rules.yaml").write_text(
        yaml.safe_dump({"groups": [{"name": "probes", "rules": rules}]})
    )
    (tmp_path / "tests.yaml").write_text(
        yaml.safe_dump({"rule_files": ["rules.yaml"], "evaluation_interval": "1m", "tests": tests})
    )
    ran = promtool("test", "rules", tmp_path / "tests.yaml")
    assert ran.returncode == 0, (ran.stdout + ran.stderr)[:4_000]


def _example(rule: AlertRule, n: int, random_: random.Random) -> Any:
    names = ("cluster", "collector", *rule.labels, *rule.details)
    labels = {name: random_.choice(TEXTS) for name in names}
    if "cause" in labels and random_.random() < 0.7:
        labels["cause"] = random_.choice(["slow_gpu", "link", "unknown", "late_arrival"])
    value = random_.choice(VALUES)
    facts: dict[str, float | str] = {}
    series = [{"series": _series(f"probe{n}", labels), "values": repr(value)}]
    for fact, lookup in rule.description.facts.items():
        if random_.random() < 0.3:
            continue
        reported: float | str = (
            random_.choice(TEXTS[1:]) if lookup.label else random_.choice(VALUES)
        )
        facts[fact] = reported
        about = {name: labels.get(name, "") for name in lookup.of}
        about |= dict(re.findall(r'(\w+)="([^"]+)"', lookup.more))
        about |= {lookup.label: str(reported)} if lookup.label else {}
        number = "1" if lookup.label else repr(reported)
        name = lookup.metric.prometheus_name
        series.append({"series": _series(name, about), "values": number})
    written = {
        **{name: its.render(labels, value, facts) for name, its in rule.messages.items()},
        **links(rule.name, rule.labels, LINKED, labels),
    }
    known = {name: text for name, text in labels.items() if text}
    expected = {"exp_labels": known, "exp_annotations": written}
    alert_test = {"eval_time": "0s", "alertname": f"Probe{n}", "exp_alerts": [expected]}
    return {"interval": "1m", "input_series": series, "alert_rule_test": [alert_test]}


def _series(name: str, labels: dict[str, str]) -> str:
    return f"{name}{{{labels_text(**{k: v for k, v in labels.items() if v})}}}"


def test_numbers_are_written_as_prometheus_writes_them(promtool: Program, tmp_path: Path) -> None:
    """All forms, over many sizes."""
    values = [
        s * m * 10.0**e for e in range(-12, 13) for m in (1, 1.23456, 9.9996) for s in (1, -1)
    ]
    values += [0.0, 59.0, 60.0, 3_599.999, 86_399.0, 86_400.0, 1e15]
    template = (
        "{{ $value | humanize }} {{ $value | humanizePercentage }} {{ $value | humanizeDuration }}"
    )
    rule = {"alert": "Probe", "expr": "probe", "annotations": {"text": template}}
    tests = []
    for value in values:
        text = f"{humanize(value)} {humanize_percentage(value)} {humanize_duration(value)}"
        expected = {"exp_labels": {}, "exp_annotations": {"text": text}}
        tests.append(
            {
                "interval": "1m",
                "input_series": [{"series": "probe", "values": repr(value).replace("e+", "e")}],
                "alert_rule_test": [
                    {"eval_time": "0s", "alertname": "Probe", "exp_alerts": [expected]}
                ],
            }
        )
    (tmp_path / "rules.yaml").write_text(
        yaml.safe_dump({"groups": [{"name": "probes", "rules": [rule]}]})
    )
    (tmp_path / "tests.yaml").write_text(
        yaml.safe_dump({"rule_files": ["rules.yaml"], "evaluation_interval": "1m", "tests": tests})
    )
    ran = promtool("test", "rules", tmp_path / "tests.yaml")
    assert ran.returncode == 0, (ran.stdout + ran.stderr)[:4_000]


def test_brackets_are_left_out_where_something_in_them_is_not_known() -> None:
    """Labels that are empty, facts that are absent."""
    sentence = Message("Rank {rank}[ on {node}] runs at {value|percent}.")
    assert sentence.render({"rank": "3", "node": "n0"}, 0.5) == "Rank 3 on n0 runs at 50%."
    assert sentence.render({"rank": "3", "node": ""}, 0.5) == "Rank 3 runs at 50%."
    assert sentence.render({"rank": "3"}, 0.5) == "Rank 3 runs at 50%."


@pytest.mark.parametrize("text", ["a [b", "a b]", "a [b [c]]"])
def test_a_sentence_with_odd_brackets_is_refused(text: str) -> None:
    """When the catalogue is loaded, not at night."""
    with pytest.raises(ValueError, match="brackets"):
        Message(text)


@given(st.text(), st.text())
def test_no_label_is_taken_for_a_template(rank: str, node: str) -> None:
    """Whatever it holds."""
    written = Message("{rank}:{node}").render({"rank": rank, "node": node}, 1.0)
    assert written == f"{rank}:{node}"

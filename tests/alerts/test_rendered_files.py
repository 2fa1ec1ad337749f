"""What stands in alerts/ is taken by Prometheus and Alertmanager, and does what it says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from otel_straggler.alerts.catalogue import CATALOGUE, NAMES
from otel_straggler.alerts.checking import findings_in_config, findings_in_rules
from otel_straggler.alerts.render import chapter, render_all
from otel_straggler.alerts.settings import AlertSettings, parse_settings
from otel_straggler.cli.group import VERBS, otel_straggler

from .conftest import ROOT, Program

ALERTS = ROOT / "alerts"
RULES = ("otel-straggler-rules.yaml", "otel-straggler-recording-rules.yaml")
TESTS = sorted((ALERTS / "tests").glob("*.yaml"))
CHANGED = {
    "relative_threshold": "0.71",
    "individual_threshold": "0.72",
    "gpu_threshold": "0.73",
    "run_slowdown_threshold": "1.31",
    "goodput_threshold": "0.69",
    "score_for_seconds": "301",
    "straggling_for_seconds": "61",
    "hang_for_seconds": "16",
    "failed_for_seconds": "899",
    "missing_for_seconds": "901",
    "dropped_for_seconds": "361",
    "no_data_seconds": "902",
    "run_slow_for_seconds": "601",
    "silent_seconds": "121",
    "collector_down_for_seconds": "122",
    "trouble_for_seconds": "123",
    "coverage_threshold": "0.8",
    "expiry_seconds": "864000",
    "scrape_jobs": "collectors|shards",
    "keep_firing_seconds": "603",
    "give_up_seconds": "259201",
    "evaluation_seconds": "20",
    "dashboard_url": "https://grafana.example/d/run",
    "page_url": "https://collector.example/",
    "runbook_url": "https://runbook.example/page",
    "alertmanager_url": "https://alerts.example",
}
CONCERNS = {
    "relative_threshold": {"StragglerScoreLow"},
    "individual_threshold": {"StragglerRankDegraded", "StragglerRunDegraded"},
    "gpu_threshold": {"StragglerGpuSlow"},
    "run_slowdown_threshold": {"StragglerRunSlow"},
    "goodput_threshold": {"StragglerGoodputLow"},
    "score_for_seconds": {
        "StragglerScoreLow",
        "StragglerRankDegraded",
        "StragglerRunDegraded",
        "StragglerGpuSlow",
    },
    "straggling_for_seconds": {
        "StragglerRankStraggling",
        "StragglerHostSlow",
        "StragglerCheckpointWriterSlow",
    },
    "hang_for_seconds": {
        "StragglerRunHung",
        "StragglerRunFailed",
        "StragglerRankLost",
        "StragglerRankStuck",
    },
    "failed_for_seconds": {"StragglerRunFailed"},
    "missing_for_seconds": {"StragglerRanksMissing"},
    "dropped_for_seconds": {"StragglerSpansDropped"},
    "no_data_seconds": {
        "StragglerNoData",
        "StragglerRanksUnscored",
        "StragglerCoverageLow",
    },
    "run_slow_for_seconds": {"StragglerRunSlow", "StragglerGoodputLow"},
    "silent_seconds": {"StragglerRunSilent"},
    "collector_down_for_seconds": {"StragglerCollectorDown", "StragglerTargetDown"},
    "trouble_for_seconds": {
        "StragglerCollectorOverloaded",
        "StragglerHistoryFailing",
        "StragglerNotificationsFailing",
        "StragglerForwardingFailing",
    },
    "coverage_threshold": {"StragglerCoverageLow"},
    "expiry_seconds": set(),  # the collector decides by it, for both
    "scrape_jobs": {"StragglerTargetDown"},
    "keep_firing_seconds": {
        "StragglerRunHung",
        "StragglerScoreLow",
        "StragglerRankDegraded",
        "StragglerRunDegraded",
        "StragglerGpuSlow",
        "StragglerRunSlow",
        "StragglerGoodputLow",
        "StragglerRankStraggling",
        "StragglerHostSlow",
        "StragglerCheckpointWriterSlow",
        "StragglerSpansDropped",
    },
    "give_up_seconds": {
        "StragglerRunHung",
        "StragglerRunForgotten",
        "StragglerRankLost",
        "StragglerRankStuck",
    },
    "evaluation_seconds": {rule.name for rule in CATALOGUE if rule.keep_firing_s(AlertSettings())},
    "dashboard_url": set(NAMES),
    "page_url": set(NAMES),  # of a run; the runbook of all
    "runbook_url": set(NAMES),
    "alertmanager_url": set(NAMES),
}


# --- the real programs ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", RULES)
def test_prometheus_takes_the_rules(name: str, promtool: Program) -> None:
    """Those of Debian 12 (2.42) as well."""
    ran = promtool("check", "rules", "--lint=all", "--lint-fatal", ALERTS / name)
    assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.mark.parametrize("file", TESTS, ids=lambda file: file.stem)
def test_alerts_say_what_their_tests_expect(file: Path, promtool: Program) -> None:
    """Silence before they are due, then the exact labels and messages."""
    ran = promtool("test", "rules", file)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_rules_with_all_other_settings_are_taken(promtool: Program, tmp_path: Path) -> None:
    """Whatever is set."""
    settings = parse_settings(f"{name}={value}" for name, value in CHANGED.items())
    for name, text in render_all(settings).items():
        if name in RULES:
            (tmp_path / name).write_text(text)
            ran = promtool("check", "rules", tmp_path / name)
            assert ran.returncode == 0, ran.stdout + ran.stderr


def test_alertmanager_takes_the_example(amtool: Program) -> None:
    """With its templates."""
    ran = amtool("check-config", ALERTS / "alertmanager.yaml")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "1 templates" in ran.stdout


ROUTES = [
    ({"alertname": "StragglerRunHung", "severity": "critical", "mode": "page"}, "pager"),
    ({"alertname": "StragglerRunHung", "severity": "critical", "mode": "observe"}, "nobody"),
    ({"alertname": "StragglerRankLost", "severity": "critical", "mode": "page"}, "pager"),
    ({"alertname": "StragglerNoData", "severity": "warning", "mode": "page"}, "chat"),
    ({"alertname": "StragglerScoreLow", "severity": "info", "mode": "page"}, "nobody"),
    (
        {"alertname": "StragglerRunForgotten", "severity": "warning", "mode": "page"},
        "chat-without-ends",
    ),
    ({"alertname": "StragglerWatchdog", "severity": "info", "mode": "observe"}, "dead-mans-switch"),
    ({"alertname": "NodeDown", "severity": "critical"}, "nobody"),
]


@pytest.mark.parametrize(("labels", "receiver"), ROUTES, ids=lambda x: str(x)[:40])
def test_an_alert_reaches_its_receiver(
    labels: dict[str, str], receiver: str, amtool: Program
) -> None:
    """By severity; observed ones reach nobody; a run that is given up never sends an all-clear."""
    pairs = [f"{name}={value}" for name, value in labels.items()]
    config = f"--config.file={ALERTS / 'alertmanager.yaml'}"
    ran = amtool("config", "routes", "test", config, *pairs)
    assert ran.stdout.split() == [receiver], ran.stderr


# --- names ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", RULES)
def test_every_metric_and_label_is_published(name: str) -> None:
    """In expressions and in the queries of templates; recorded ones too."""
    assert findings_in_rules(read(ALERTS / name)) == []


@pytest.mark.parametrize(
    ("old", "new", "printed"),
    [
        ("straggler_run_hung)", "straggler_run_hang)", "straggler_run_hang: no metric"),
        ('{state="forgotten"}', '{status="forgotten"}', "no label 'status'"),
        ("by (cluster, collector)", "by (cluster, pod)", "by: no label 'pod'"),
        ("max by (job, instance) (up", "max by (pod, instance) (up", "by: no label 'pod'"),
        ("$labels.rank", "$labels.rang", "$labels.rang is no label"),
        ("straggler_run_pages)", "straggler_run_page)", "straggler_run_page: no metric"),
        ('label "sentence"', 'label "text"', "gives the label 'text'"),
        ("== 1", "=== 1", "no PromQL"),
    ],
)
def test_a_wrong_name_is_found(old: str, new: str, printed: str) -> None:
    """Wherever it stands."""
    text = (ALERTS / RULES[0]).read_text()
    assert old in text
    assert any(
        printed in finding for finding in findings_in_rules(yaml.safe_load(text.replace(old, new)))
    )


def test_the_example_names_alerts_of_the_catalogue_only() -> None:
    """And a wrong one is found."""
    document = read(ALERTS / "alertmanager.yaml")
    assert findings_in_config(document) == []
    document["inhibit_rules"][0]["source_matchers"] = ['alertname="StragglerRunHang"']
    assert "StragglerRunHang" in findings_in_config(document)[0]


def test_equal_names_only_labels_that_both_sides_carry() -> None:
    """Labels that both lack would count as equal, as those of alerts on many ranks and hosts do.
    group, cluster and team may be empty."""
    carried = {
        rule.name: {*rule.labels, "cluster", "collector", "mode"}
        for rule in CATALOGUE
        if rule.counts is None
    }
    for rule in read(ALERTS / "alertmanager.yaml")["inhibit_rules"]:
        assert "mode" in rule["equal"]  # what calls nobody silences nothing that does
        for side in ("source_matchers", "target_matchers"):
            for name in re.findall(r"Straggler\w+", rule[side][0]):
                if name != "StragglerHostSlow" or "node" in rule["equal"]:
                    missing = set(rule["equal"]) - carried[name]
                    assert not missing, (name, rule["equal"])


# --- what settings change ------------------------------------------------------------------------


@pytest.mark.parametrize("name", CHANGED)
def test_a_setting_changes_what_it_should_and_nothing_else(name: str) -> None:
    """Compared rule by rule."""
    before = alerts_in(render_all(AlertSettings())[RULES[0]])
    after = alerts_in(render_all(parse_settings([f"{name}={CHANGED[name]}"]))[RULES[0]])
    changed = {key[0] for key in before if before[key] != after[key]}
    assert (changed, before.keys()) == (CONCERNS[name], after.keys())


def test_every_setting_is_tried_here() -> None:
    """Besides the mode, which rules follow and do not set."""
    fields = set(AlertSettings.__dataclass_fields__) - {"mode"}
    assert fields == set(CHANGED) == set(CONCERNS)


# --- completeness --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_every_alert_has_a_test_for_silence_and_for_its_words(name: str) -> None:
    """In alerts/tests."""
    result = [
        test
        for file in TESTS
        for group in read(file)["tests"]
        for test in group.get("alert_rule_test", ())
        if test["alertname"] == name
    ]
    text = [test for test in result if test.get("exp_alerts")]
    silence = [test for test in result if not test.get("exp_alerts")]
    assert text
    assert silence or name == "StragglerWatchdog"


@pytest.mark.parametrize("name", NAMES)
def test_every_alert_has_a_chapter_with_three_actions(name: str) -> None:
    """And it says how to be quiet."""
    text = chapter(name, AlertSettings()).split("\n\n", 1)[1]
    assert re.findall(r"^(\d)\. ", text, re.MULTILINE) == ["1", "2", "3"]
    assert "\nQuiet: " in text
    assert f"\n## {name}\n" in (ALERTS / "RUNBOOK.md").read_text()


def test_every_command_of_the_runbook_exists() -> None:
    """Its verb, and the verb below it."""
    text = (ALERTS / "RUNBOOK.md").read_text()
    lines = set(re.findall(r"`otel-straggler\s+([a-z]+)(?:\s+([a-z]+))?", text))
    assert ("verdict", "explain") in lines
    with click.Context(otel_straggler) as context:
        for verb, below in lines:
            if verb == "maintenance" and verb not in VERBS:
                continue
            command = otel_straggler.get_command(context, verb)
            assert command is not None, verb
            if isinstance(command, click.Group) and below in ("explain", "mute", "dismiss"):
                assert command.get_command(context, below) is not None, below


def test_a_summary_names_no_number_and_no_label_holds_one() -> None:
    """Else each new value were a new alert."""
    for rule in CATALOGUE:
        assert "{value" not in rule.summary.text
        used = (rule.summary.labels | rule.description.labels) - {"cluster", "collector"}
        assert used <= {*rule.labels, *rule.details}, rule.name


def test_every_alert_says_what_to_do_next() -> None:
    """At the end of its text; the watchdog says nothing that one could act on."""
    for rule in CATALOGUE:
        assert "Next: " in rule.description.text or rule.name == "StragglerWatchdog", rule.name


def test_only_vanished_runs_are_looked_for_over_days() -> None:
    """One recorded series looks back further than an hour, and no template does."""
    [group] = read(ALERTS / RULES[0])["groups"]
    long = [rule["record"] for rule in group["rules"] if re.search(r"\[\d+d\]", str(rule))]
    assert long == ["run:straggler_run_hung:last_seen_seconds"]


def test_no_label_of_an_alert_is_a_template() -> None:
    """A query for each label of each alert took a third of the time between two evaluations."""
    [group] = read(ALERTS / RULES[0])["groups"]
    values = [v for rule in group["rules"] if "alert" in rule for v in rule["labels"].values()]
    assert not [value for value in values if "{{" in value]


def alerts_in(text: str) -> dict[tuple[str, str, str], Any]:
    """Each with what is recorded of it."""
    [group] = yaml.safe_load(text)["groups"]
    recorded = {rule["record"]: rule["expr"] for rule in group["rules"] if "record" in rule}

    def used(expr: str, known: frozenset[str] = frozenset()) -> dict[str, str]:
        names = set(re.findall(r"(?:alert|condition|subjects|rank):\w+:\w+", expr))
        names &= recorded.keys() - known
        result = {name: recorded[name] for name in names}
        for name in names:
            result |= used(recorded[name], known | names)
        return result

    return {
        (rule["alert"], rule["labels"]["severity"], rule["labels"].get("subjects", "")): [
            rule,
            used(rule["expr"]),
        ]
        for rule in group["rules"]
        if "alert" in rule
    }


def read(file: Path) -> Any:
    return yaml.safe_load(file.read_text(encoding="utf-8"))

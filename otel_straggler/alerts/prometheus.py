"""Rules files for Prometheus and Mimir: the catalogue, and scores without a collector."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from otel_straggler import semconv
from otel_straggler.alerts.catalogue import CATALOGUE
from otel_straggler.alerts.low_score_rules import LOW_RECORDED
from otel_straggler.alerts.messages import links_in_go
from otel_straggler.alerts.promql import (
    EVICTED,
    OF_COLLECTOR,
    RECORDED,
    WORLD,
    allowed,
    by,
    duration,
    labelled,
    recorded_name,
    series,
)
from otel_straggler.alerts.rule import AlertRule
from otel_straggler.alerts.settings import AlertSettings
from otel_straggler.alerts.yaml_text import to_yaml
from otel_straggler.semconv import Attribute

NOTE: Final = (
    "# Made by `otel-straggler alerts render` from the catalogue of otel-straggler. Do not edit:\n"
    "# other thresholds are `otel-straggler alerts render --set NAME=VALUE`.\n"
)


def rules_file(settings: AlertSettings) -> str:
    """Recording rules, then alerts, in one group: within a group rules run in order."""
    every = (*RECORDED, *LOW_RECORDED)
    recorded = [{"record": one.name, "expr": one.written(settings)} for one in every]
    for rule in CATALOGUE:
        recorded += _recorded(rule, settings)
    group = {
        "name": "otel-straggler",
        "interval": duration(settings.evaluation_seconds),
        "rules": recorded + [_alert(rule, settings) for rule in CATALOGUE],
    }
    return NOTE + to_yaml({"groups": [group]})


def _alert(rule: AlertRule, settings: AlertSettings) -> dict[str, Any]:
    """What is recorded of it, with the labels that all alerts have, and without those that only its
    text needs: Prometheus drops a label that is set to nothing."""
    written: dict[str, Any] = {
        "alert": rule.name,
        "expr": _expression(rule),
    }
    if rule.for_s(settings) and rule.scope is None and not rule.is_lasting:
        written["for"] = duration(rule.for_s(settings))
    written["labels"] = {
        "severity": rule.severity,
        "domain": rule.domain,
        **({"subjects": rule.subjects} if rule.subjects else {}),
        **({"mode": "page"} if _is_of_a_target(rule) else {}),
        **dict.fromkeys(rule.details, ""),
    }
    written["annotations"] = {
        **{name: message.in_go() for name, message in rule.messages.items()},
        **links_in_go(rule.name, rule.labels, settings),
    }
    return written


# --- what is recorded of an alert ----------------------------------------------------------------


def _expression(rule: AlertRule) -> str:
    """A target that was never scraped has no mode, and somebody has to look at it."""
    return _name(rule) if _is_of_a_target(rule) else labelled(rule.labels, _name(rule))


def _is_of_a_target(rule: AlertRule) -> bool:
    return "instance" in rule.labels


def _name(rule: AlertRule, level: str = "alert") -> str:
    return recorded_name(rule.name, rule.severity, level, rule.subjects)


def _recorded(rule: AlertRule, settings: AlertSettings) -> Iterator[dict[str, str]]:
    """Where it holds; if it outlasts its condition, that too. Of one on single subjects, that on
    many of them first: while these are one alert, they are none by themselves."""
    expression = rule.expression(settings)
    if rule.keep_firing_s(settings):
        condition, crowd = _name(rule, "condition"), _crowd_of(rule)
        if crowd is not None:
            subjects = _name(rule, "subjects")
            yield {"record": subjects, "expr": expression}
            yield {"record": _name(crowd, "condition"), "expr": crowd.expression(settings)}
            expression = f"{subjects}\n{_counted(crowd, 'unless', settings)}"
        if rule.counts is None:
            yield {"record": condition, "expr": expression}
        expression = _outlasting(rule, condition, settings)
    expression = allowed(rule.during, rule.labels, expression)
    yield {"record": _name(rule), "expr": expression}


def _crowd_of(rule: AlertRule) -> AlertRule | None:
    return next((each for each in CATALOGUE if each.counts is rule), None)


def _counted(crowd: AlertRule, operator: str, settings: AlertSettings) -> str:
    """Subjects that one alert counts, now or for as long as it keeps firing."""
    of = ", ".join((WORLD, *crowd.labels[len(semconv.OF_RUN) :]))
    lately = f"last_over_time({_name(crowd, 'condition')}[{_kept(crowd, settings)}])"
    return f"{operator} on ({of}) {lately}"


def _kept(rule: AlertRule, settings: AlertSettings) -> str:
    return duration(rule.keep_firing_s(settings) + settings.evaluation_seconds / 2.0)


def _outlasting(rule: AlertRule, condition: str, settings: AlertSettings) -> str:
    """A condition, and what fires for a while after it: Prometheus' ``keep_firing_for`` would
    outlast the end of the run as well, and a mute."""
    labels = ", ".join((*OF_COLLECTOR, *rule.labels))
    lately = f"last_over_time({condition}[{_kept(rule, settings)}])"
    before = f"max {by((*rule.labels, *rule.details))} ({lately})"
    if rule.details:
        before = f"topk by ({labels}) (1, {before})"
    firing = f'alertname="{rule.name}", severity="{rule.severity}", alertstate="firing"'
    if rule.subjects:
        firing += f', subjects="{rule.subjects}"'
    held = [before, f"and on ({labels}) ALERTS{{{firing}}}", f"unless on ({WORLD}) {EVICTED.name}"]
    if rule.scope is not None:
        silenced = series(semconv.VERDICT_SILENCED, f'scope="{rule.scope}"')
        held.append(f"unless on ({labels}) ({silenced} == 1)")
    if (crowd := _crowd_of(rule)) is not None:
        counted = f"{_name(rule, 'subjects')} {_counted(crowd, 'and', settings)}"
        held.append(f"unless on ({labels}) ({counted})")
    lines = "\n  ".join(held)
    return f"{condition}\nor on ({labels})\n({lines})"


# --- scores without a collector ------------------------------------------------------------------

WINDOW: Final = "5m"
"""Five exports of a rank, which sends once a minute."""
MIN_EXECUTIONS: Final = 3
_EVERY_S: Final = 60.0
LABELS: Final[dict[str, Attribute]] = {
    "job_name": semconv.SERVICE_NAME,
    "run_id": semconv.RUN_ID,
    "group": semconv.GROUP,
    "section": semconv.SECTION,
    "kind": semconv.SECTION_KIND,
    "rank": semconv.RANK,
    "node": semconv.HOST_NAME,
    "role": semconv.ROLE,
}
"""Recorded labels, and their attributes."""
REFERENCES: Final = {"best": "min", "p5": "quantile", "median": "quantile"}
_QUANTILES: Final = {"p5": "0.05, ", "median": "0.5, "}
_PEERS: Final = "cluster, job_name, run_id, group, section, kind, role"
_P50: Final = "run_section_rank:straggler_section_duration_seconds:p50"
_MEAN: Final = "run_section_rank:straggler_section_duration_seconds:mean"
_NOTE: Final = (
    "# Made by `otel-straggler alerts render --only recording`. Do not edit.\n"
    "# Scores of sections from histograms alone. A relative score is against the best rank, the\n"
    "# 5th percentile of the ranks, or their median: of thousands of ranks the best is lucky.\n"
    "# A median is as exact as its bucket; the mean is exact, and follows single long runs.\n"
)


def recording_file() -> str:
    """Rules for scores from section histograms, by Prometheus or Mimir alone.

    Ranks that send to an endpoint that does not score send ``straggler.section.duration`` as a
    histogram. Its labels are OpenTelemetry's translation of the attributes, the resource's included
    (``resource_to_telemetry_conversion`` of the OpenTelemetry Collector, or
    ``promote_resource_attributes`` of Prometheus). The recorded series have the collector's labels.
    """
    rules = [
        {"record": _P50, "expr": _medians()},
        {"record": _MEAN, "expr": _means()},
        *(rule for reference in REFERENCES for rule in _relative(_P50, "p50", reference)),
        *_relative(_MEAN, "mean", "best"),
        {
            "record": "run_section_rank:straggler_individual_score:p50",
            "expr": f"min_over_time({_P50}[1h]) / ({_P50} > 0)",
        },
    ]
    group = {"name": "otel-straggler-scores", "interval": duration(_EVERY_S), "rules": rules}
    return _NOTE + to_yaml({"groups": [group]})


def label_of(attribute: Attribute) -> str:
    """OpenTelemetry's label for an attribute.

    >>> label_of(semconv.RUN_ID)
    'training_run_id'
    """
    return attribute.replace(".", "_")


def _relative(recorded: str, statistic: str, reference: str) -> list[dict[str, str]]:
    """The reference of the peers, and every rank against it; never above 1."""
    of_peers = f"run_section:straggler_section_duration_seconds:{statistic}_{reference}"
    function, quantile = REFERENCES[reference], _QUANTILES.get(reference, "")
    peers = f"{function} by ({_PEERS}) ({quantile}{recorded})"
    score = f"{of_peers}\n/ on ({_PEERS}) group_right ()\n({recorded} > 0)"
    return [
        {"record": of_peers, "expr": peers},
        {
            "record": f"run_section_rank:straggler_relative_score:{statistic}_{reference}",
            "expr": f"clamp_max(\n  {_indented(score)},\n  1\n)",
        },
    ]


def _medians() -> str:
    name, by = semconv.SECTION_DURATION.prometheus_name, _by()
    enough = f"sum by ({by}) (increase({name}_count[{WINDOW}])) >= {MIN_EXECUTIONS}"
    median = f"histogram_quantile(0.5, sum by ({by}, le) (rate({name}_bucket[{WINDOW}])))"
    return _renamed(f"{median}\nand on ({by})\n{enough}")


def _means() -> str:
    name, by = semconv.SECTION_DURATION.prometheus_name, _by()
    total = f"sum by ({by}) (rate({name}_sum[{WINDOW}]))"
    return _renamed(f"{total}\n/\n(sum by ({by}) (rate({name}_count[{WINDOW}])) > 0)")


def _by() -> str:
    return ", ".join(("cluster", *map(label_of, LABELS.values())))


def _renamed(expression: str) -> str:
    """The same with the collector's labels."""
    inner = f"(\n{expression}\n)"
    for name, attribute in LABELS.items():
        inner = f'label_replace({inner},\n"{name}", "$1", "{label_of(attribute)}", "(.*)")'
    return f"max by ({', '.join(('cluster', *LABELS))}) (\n  {_indented(inner)}\n)"


def _indented(text: str) -> str:
    return text.replace("\n", "\n  ")

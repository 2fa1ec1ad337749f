"""Rules files for Prometheus and Mimir: the catalogue, and scores without a collector."""

from __future__ import annotations

from typing import Any, Final

from otel_straggler import semconv
from otel_straggler.alerts.catalogue import CATALOGUE
from otel_straggler.alerts.low_score_rules import low_recorded
from otel_straggler.alerts.messages import links_in_go, query_of
from otel_straggler.alerts.promql import (
    OF_COLLECTOR,
    RECORDED,
    WORLD,
    by,
    duration,
    number,
    only_during,
    recorded_name,
    series,
    subjects_name,
)
from otel_straggler.alerts.rule import AlertRule
from otel_straggler.alerts.settings import AlertSettings
from otel_straggler.alerts.yaml_text import to_yaml
from otel_straggler.model.causes import CAUSES
from otel_straggler.semconv import Attribute, Metric

NOTE: Final = (
    "# Made by `otel-straggler alerts render` from the catalogue of otel-straggler. Do not edit:\n"
    "# other thresholds are `otel-straggler alerts render --set NAME=VALUE`.\n"
)


def rules_file(settings: AlertSettings) -> str:
    """Recording rules, then alerts, in one group: within a group rules run in order."""
    recorded = [{"record": one.name, "expr": one.expression} for one in RECORDED]
    recorded.append({"record": _EVICTED, "expr": _evicted(settings)})
    recorded += [{"record": one.name, "expr": one.expression} for one in low_recorded(settings)]
    recorded += [
        {"record": name, "expr": expression}
        for rule in CATALOGUE
        if rule.keep_firing_s(settings)
        for name, expression in _conditions(rule, settings)
    ]
    alerts = [_alert(rule, settings) for rule in CATALOGUE]
    group = {
        "name": "otel-straggler",
        "interval": duration(settings.evaluation_seconds),
        "rules": recorded + alerts,
    }
    return NOTE + to_yaml({"groups": [group]})


def _alert(rule: AlertRule, settings: AlertSettings) -> dict[str, Any]:
    written: dict[str, Any] = {"alert": rule.name, "expr": _expression(rule, settings)}
    if rule.for_s(settings) and not rule.subject and rule.counts is None:
        written["for"] = duration(rule.for_s(settings))
    written["labels"] = {
        "severity": rule.severity,
        "domain": rule.domain or _domain_by_cause(rule),
        "mode": _mode(rule, settings),
        **({"subjects": rule.subjects} if rule.subjects else {}),
        **({"team": _team(rule, settings)} if "run_id" in rule.labels else {}),
    }
    written["annotations"] = {
        "summary": rule.summary.in_go(),
        "description": rule.description.in_go(),
        "resolved": rule.past.in_go(),
        **links_in_go(rule.name, rule.labels, settings),
    }
    return written


# --- what keeps firing ---------------------------------------------------------------------------

_EVICTED: Final = "run:straggler_run_evicted:max"


def _expression(rule: AlertRule, settings: AlertSettings) -> str:
    """The condition of a rule, and what it outlasts: Prometheus' ``keep_firing_for`` would outlast
    the end of the run as well."""
    if not rule.keep_firing_s(settings):
        return only_during(rule.during, rule.labels, rule.expression(settings))
    labels, condition = by(rule.labels), recorded_name(rule)
    firing = f'alertname="{rule.name}", severity="{rule.severity}", alertstate="firing"'
    if rule.subjects:
        firing += f', subjects="{rule.subjects}"'
    held = [
        f"max {labels} ({_lately(condition, rule, settings)})",
        f"and on {labels.removeprefix('by ')} ALERTS{{{firing}}}",
        f"unless on ({WORLD}) {_EVICTED}",
    ]
    if rule.subject:
        of_subject = ", ".join((*OF_COLLECTOR, *rule.subject))
        held.append(f"unless on ({of_subject}) {subjects_name(rule.name, rule.severity)}")
    kept = "\n  ".join(held)
    return only_during(rule.during, rule.labels, f"max {labels} ({condition})\nor\n({kept})")


def _conditions(rule: AlertRule, settings: AlertSettings) -> list[tuple[str, str]]:
    """What is recorded for a rule: its condition, without its time. Of one on single subjects, that
    on many of them first: while these are one alert, they are none by themselves."""
    crowd = _crowd_of(rule)
    if rule.counts is not None:
        return []  # with the rule that it counts
    if crowd is None:
        return [(recorded_name(rule), rule.expression(settings))]
    subjects, many = subjects_name(rule.name, rule.severity), recorded_name(crowd)
    of = ", ".join((WORLD, *crowd.labels[len(semconv.OF_RUN) :]))
    single = (
        f"max {by(rule.labels)} (\n"
        f"  {subjects}\n"
        f"  unless on ({of}) {_lately(many, rule, settings)}\n)"
    )
    return [
        (subjects, rule.expression(settings)),
        (many, crowd.expression(settings)),
        (recorded_name(rule), single),
    ]


def _crowd_of(rule: AlertRule) -> AlertRule | None:
    return next((each for each in CATALOGUE if each.counts is rule), None)


def _lately(name: str, rule: AlertRule, settings: AlertSettings) -> str:
    """A recorded series, now or for as long as its alert keeps firing."""
    kept_s = rule.keep_firing_s(settings) + settings.evaluation_seconds / 2.0
    return f"last_over_time({name}[{duration(kept_s)}])"


def _evicted(settings: AlertSettings) -> str:
    """Runs that a collector has known, and knows no more although it has long been there."""
    kept_s, known = settings.keep_firing_seconds, series(semconv.RUN_PAGES)
    start = f"max by (cluster, collector) ({series(semconv.COLLECTOR_START)})"
    window = duration(kept_s + settings.evaluation_seconds)
    return (
        f"max {by(semconv.OF_RUN)} (last_over_time({known}[{window}]))\n"
        f"unless on ({WORLD}) {known}\n"
        f"and on (cluster, collector) (time() - {start} > {number(kept_s)})"
    )


# --- labels that another series has --------------------------------------------------------------


def _mode(rule: AlertRule, settings: AlertSettings) -> str:
    """Of the run, else of the collector; the last known one if that is gone; else observe."""
    of = _known(rule)
    metric = semconv.RUN_PAGES if "run_id" in of else semconv.COLLECTOR_PAGES
    query = query_of(_now_or_last("max", metric, settings), of)
    is_page = "eq (. | first | value) 1.0"
    mode = f"{{{{ if {is_page} }}}}page{{{{ else }}}}observe{{{{ end }}}}"
    return f"{{{{ with {query} }}}}{mode}{{{{ else }}}}observe{{{{ end }}}}"


def _team(rule: AlertRule, settings: AlertSettings) -> str:
    teams = _now_or_last("max by (team)", semconv.RUN_INFO, settings)
    query = query_of(teams, _known(rule), 'team!=""')
    first = '{{ . | sortByLabel "team" | first | label "team" }}'
    return f"{{{{ with {query} }}}}{first}{{{{ end }}}}"


def _known(rule: AlertRule) -> tuple[str, ...]:
    return (*OF_COLLECTOR, *(name for name in ("run_id", "group") if name in rule.labels))


def _now_or_last(aggregate: str, metric: Metric, settings: AlertSettings) -> str:
    name, window = metric.prometheus_name, duration(settings.remembered_s)
    return f"{aggregate} ({name}{{}}) or on () {aggregate} (last_over_time({name}{{}}[{window}]))"


def _domain_by_cause(rule: AlertRule) -> str:
    of_hardware = [cause for cause, info in CAUSES.items() if info.domain == "hardware"]
    if "section" not in rule.labels:
        hardware = " ".join(f'"{cause}"' for cause in of_hardware)
        return f"{{{{ if eq $labels.cause {hardware} }}}}hardware{{{{ else }}}}model{{{{ end }}}}"
    is_data = query_of(
        f"{semconv.SECTION_INFO.prometheus_name}{{}}",
        ("cluster", "collector", "run_id", "group", "section"),
        'kind="data"',
    )
    of_host = f"{{{{ with {is_data} }}}}data{{{{ else }}}}{CAUSES['slow_host'].domain}{{{{ end }}}}"
    hardware = " ".join(f'"{cause}"' for cause in of_hardware if cause != "slow_host")
    return (
        f'{{{{ if eq $labels.cause "slow_host" }}}}{of_host}'
        f"{{{{ else if eq $labels.cause {hardware} }}}}hardware"
        "{{ else }}model{{ end }}"
    )


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

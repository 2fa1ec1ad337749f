"""The catalogue as a rules file for Prometheus and Mimir."""

from __future__ import annotations

from typing import Any, Final

from otel_straggler import semconv
from otel_straggler.alerts.catalogue import GROUPS
from otel_straggler.alerts.links import links_in_go
from otel_straggler.alerts.promql import duration
from otel_straggler.alerts.recorded import RECORDED
from otel_straggler.alerts.rule import AlertRule
from otel_straggler.alerts.score_rules import DOMAINS
from otel_straggler.alerts.sentences import query_of
from otel_straggler.alerts.settings import AlertSettings
from otel_straggler.alerts.yaml_text import to_yaml
from otel_straggler.semconv import Metric

RULES_FILE: Final = "otel-straggler-rules.yaml"
NOTE: Final = (
    "# Made by `otel-straggler alerts render` from the catalogue of otel-straggler. Do not edit:\n"
    "# other thresholds are `otel-straggler alerts render --set NAME=VALUE`.\n"
)


def rules_file(settings: AlertSettings) -> str:
    """All of it: what rules remember, then the alerts by theme.

    Groups that need what is recorded are one group with it: within a group rules run in order.
    """
    recorded = [{"record": one.name, "expr": one.expression} for one in RECORDED]
    alerts = [_alert(rule, settings) for rules in GROUPS.values() for rule in rules]
    group = {
        "name": "otel-straggler",
        "interval": duration(settings.evaluation_seconds),
        "rules": recorded + alerts,
    }
    return NOTE + to_yaml({"groups": [group]})


def _alert(rule: AlertRule, settings: AlertSettings) -> dict[str, Any]:
    written: dict[str, Any] = {"alert": rule.name, "expr": rule.expression(settings)}
    for name, seconds in (
        ("for", rule.for_s(settings)),
        ("keep_firing_for", rule.keep_firing_s(settings)),
    ):
        if seconds:
            written[name] = duration(seconds)
    written["labels"] = {
        "severity": rule.severity,
        "domain": rule.domain or _DOMAIN_BY_CAUSE,
        "mode": mode_in_go(rule, settings),
        **({"team": team_in_go(rule, settings)} if "run_id" in rule.labels else {}),
    }
    written["annotations"] = {
        "summary": rule.summary.in_go(),
        "description": rule.description.in_go(),
        **links_in_go(rule, settings),
    }
    return written


# --- labels that another series tells ------------------------------------------------------------


def mode_in_go(rule: AlertRule, settings: AlertSettings) -> str:
    """Of the run, else of the collector; the last word if that is gone, and observe without one."""
    of = _known(rule)
    metric = semconv.RUN_PAGES if "run_id" in of else semconv.COLLECTOR_PAGES
    asked = query_of(_now_or_last("max", metric, settings), of)
    is_page = "eq (. | first | value) 1.0"
    said = f"{{{{ if {is_page} }}}}page{{{{ else }}}}observe{{{{ end }}}}"
    return f"{{{{ with {asked} }}}}{said}{{{{ else }}}}observe{{{{ end }}}}"


def team_in_go(rule: AlertRule, settings: AlertSettings) -> str:
    asked = query_of(
        _now_or_last("max by (team)", semconv.RUN_INFO, settings), _known(rule), 'team!=""'
    )
    first = '{{ . | sortByLabel "team" | first | label "team" }}'
    return f"{{{{ with {asked} }}}}{first}{{{{ end }}}}"


def _known(rule: AlertRule) -> tuple[str, ...]:
    return tuple(
        name
        for name in ("cluster", "collector", "run_id", "group")
        if name in ("cluster", "collector", *rule.labels)
    )


def _now_or_last(aggregate: str, metric: Metric, settings: AlertSettings) -> str:
    name, window = metric.prometheus_name, duration(settings.remembered_s)
    return f"{aggregate} ({name}{{}}) or on () {aggregate} (last_over_time({name}{{}}[{window}]))"


def _domain_by_cause() -> str:
    is_data = query_of(
        f"{semconv.SECTION_INFO.prometheus_name}{{}}",
        ("cluster", "collector", "run_id", "group", "section"),
        'kind="data"',
    )
    of_host = f"{{{{ with {is_data} }}}}data{{{{ else }}}}{DOMAINS['slow_host']}{{{{ end }}}}"
    hardware = " ".join(f'"{cause}"' for cause, domain in DOMAINS.items() if cause != "slow_host")
    return (
        f'{{{{ if eq $labels.cause "slow_host" }}}}{of_host}'
        f"{{{{ else if eq $labels.cause {hardware} }}}}hardware"
        "{{ else }}model{{ end }}"
    )


_DOMAIN_BY_CAUSE: Final = _domain_by_cause()

"""An example of a configuration for Alertmanager: who hears of what, and what is inhibited."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from otel_straggler.alerts.hang_rules import (
    RUN_FORGOTTEN,
)
from otel_straggler.alerts.inhibition import INHIBITIONS, Inhibition
from otel_straggler.alerts.platform_rules import WATCHDOG
from otel_straggler.alerts.promql import duration
from otel_straggler.alerts.settings import AlertSettings
from otel_straggler.alerts.yaml_text import to_yaml

ALERTMANAGER_FILE: Final = "alertmanager.yaml"
GROUP_BY: Final = ("cluster", "job_name", "run_id")
LEAST_GROUP_WAIT_S: Final = 15.0
_NOTE: Final = (
    "# An example, made by `otel-straggler alerts render --only alertmanager`. Put your own\n"
    "# receivers in; the routes and the inhibition are what matters. To add it to a configuration\n"
    "# that you have: take the route below `routes`, the inhibition and the receivers.\n"
)


def alertmanager_file(settings: AlertSettings) -> str:
    """All of it. ``group_wait`` is never shorter than an evaluation: an alert that inhibits others
    must have the time to arrive."""
    document = {
        "route": {
            "receiver": "nobody",
            "routes": [_route(settings)],
        },
        "inhibit_rules": _inhibition(),
        "templates": ["templates/*.tmpl"],
        "receivers": _receivers(),
    }
    return _NOTE + to_yaml(document)


# --- who hears of it -----------------------------------------------------------------------------


def _route(settings: AlertSettings) -> dict[str, Any]:
    wait_s = max(LEAST_GROUP_WAIT_S, settings.evaluation_seconds)
    return {
        "matchers": ['alertname=~"Straggler.+"'],
        "receiver": "chat",
        "group_by": list(GROUP_BY),
        "group_wait": duration(wait_s),
        "group_interval": "2m",
        "repeat_interval": "4h",
        "routes": [
            {
                "matchers": [_is("alertname", WATCHDOG)],
                "receiver": "dead-mans-switch",
                "group_by": ["cluster", "collector"],
                "group_wait": "0s",
                "group_interval": "1m",
                "repeat_interval": "1m",
            },
            {"matchers": [_is("mode", "observe")], "receiver": "nobody"},
            {"matchers": [_is("alertname", RUN_FORGOTTEN)], "receiver": "chat-without-ends"},
            {"matchers": [_is("severity", "critical")], "receiver": "pager"},
            {"matchers": [_is("severity", "warning")], "receiver": "chat"},
            {"matchers": [_is("severity", "info")], "receiver": "nobody"},
        ],
    }


def _receivers() -> list[dict[str, Any]]:
    return [
        {"name": "nobody"},
        {"name": "dead-mans-switch", "webhook_configs": [_webhook("https://switch.example/ping")]},
        {
            "name": "pager",
            "pagerduty_configs": [
                {
                    "routing_key": "put the integration key here",
                    "send_resolved": True,
                    "description": _template("straggler.pagerduty.description"),
                    "severity": "{{ .CommonLabels.severity }}",
                    "client_url": "{{ .CommonAnnotations.dashboard_url }}",
                    "details": {
                        "alerts": _template("straggler.pagerduty.details"),
                        "runbook": "{{ .CommonAnnotations.runbook_url }}",
                        "silence": "{{ .CommonAnnotations.silence_url }}",
                    },
                }
            ],
        },
        {"name": "chat", "slack_configs": [_slack(send_resolved=True)]},
        {"name": "chat-without-ends", "slack_configs": [_slack(send_resolved=False)]},
    ]


def _slack(*, send_resolved: bool) -> dict[str, Any]:
    return {
        "api_url_file": "/etc/alertmanager/slack-url",
        "channel": "#training",
        "send_resolved": send_resolved,
        "title": _template("straggler.slack.title"),
        "title_link": "{{ .CommonAnnotations.dashboard_url }}",
        "text": _template("straggler.slack.text"),
    }


def _webhook(url: str) -> dict[str, Any]:
    return {"url": url, "send_resolved": False}


def _template(name: str) -> str:
    return f'{{{{ template "{name}" . }}}}'


# --- what is not said twice ----------------------------------------------------------------------


_MILD: Final = 'severity!="critical"'


def _inhibition() -> list[dict[str, Any]]:
    """The table, in Alertmanager's words."""
    return [rule for inhibition in INHIBITIONS for rule in _rules_of(inhibition)]


def _rules_of(inhibition: Inhibition) -> Iterator[dict[str, Any]]:
    source, target = [_any((inhibition.source,))], [_any(inhibition.targets)]
    critical = [*source, _is("severity", "critical")]
    if inhibition.covered == "any":
        yield _inhibits(source, target, inhibition)
    if inhibition.covered == "not_graver":
        yield _inhibits(critical, target, inhibition)
        yield _inhibits([*source, _MILD], [*target, _MILD], inhibition)
    if inhibition.covered == "milder":
        yield _inhibits(critical, [*target, _MILD], inhibition)


def _inhibits(sources: list[str], targets: list[str], inhibition: Inhibition) -> dict[str, Any]:
    return {
        "source_matchers": sources,
        "target_matchers": targets,
        "equal": list(inhibition.equal),
    }


def _is(label: str, value: str) -> str:
    return f'{label}="{value}"'


def _any(names: Sequence[str]) -> str:
    return _is("alertname", names[0]) if len(names) == 1 else f'alertname=~"{"|".join(names)}"'

"""An example of a configuration for Alertmanager: who hears of what, and what is inhibited."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from otel_straggler.alerts.hang_rules import (
    RANK_LOST,
    RANK_STUCK,
    RANKS_MISSING,
    RUN_FORGOTTEN,
    RUN_HUNG,
)
from otel_straggler.alerts.platform_rules import COLLECTOR_DOWN, NO_DATA, RUN_SILENT, WATCHDOG
from otel_straggler.alerts.promql import duration
from otel_straggler.alerts.score_rules import (
    GPU_SLOW,
    HOST_SLOW,
    RANK_DEGRADED,
    RANK_STRAGGLING,
    SCORE_LOW,
)
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


def _inhibition() -> list[dict[str, Any]]:
    """``equal`` names only labels that both sides carry: one that both lack counts as equal. The
    mode is always among them: what calls nobody must not silence what does."""
    of_hung = (
        RANK_LOST,
        RANK_STUCK,
        RUN_SILENT,
        RANKS_MISSING,
        NO_DATA,
        RANK_STRAGGLING,
        SCORE_LOW,
    )
    of_host = (RANK_STRAGGLING, SCORE_LOW, GPU_SLOW, RANK_DEGRADED)
    not_critical = 'severity!="critical"'
    return [
        _inhibits([_is("alertname", RUN_HUNG)], [_any(of_hung)], "cluster", "run_id", "group"),
        _inhibits(
            [_is("alertname", RUN_FORGOTTEN)],
            [_is("alertname", RUN_HUNG)],
            *("cluster", "run_id", "group"),
        ),
        _inhibits(
            [_is("alertname", HOST_SLOW), _is("severity", "critical")],
            [_any(of_host)],
            *("cluster", "run_id", "node"),
        ),
        _inhibits(
            [_is("alertname", HOST_SLOW), not_critical],
            [_any(of_host), not_critical],
            *("cluster", "run_id", "node"),
        ),
        *(
            _inhibits(
                [_is("alertname", name), _is("severity", "critical")],
                [_is("alertname", name), not_critical],
                *("cluster", "run_id", "group", subject),
            )
            for name, subject in ((RANK_STRAGGLING, "rank"), (HOST_SLOW, "node"))
        ),
        _inhibits(
            [_is("alertname", COLLECTOR_DOWN)],
            [_any((RUN_SILENT, NO_DATA))],
            *("cluster", "collector"),
        ),
    ]


def _inhibits(sources: list[str], targets: list[str], *equal: str) -> dict[str, Any]:
    return {"source_matchers": sources, "target_matchers": targets, "equal": [*equal, "mode"]}


def _is(label: str, value: str) -> str:
    return f'{label}="{value}"'


def _any(names: Iterable[str]) -> str:
    return f'alertname=~"{"|".join(names)}"'

"""Render every file of the catalogue, by its name below ``alerts/``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.resources import files
from typing import Any, Final

from otel_straggler.alerts.catalogue import CATALOGUE, INHIBITIONS, NAMES, Inhibition
from otel_straggler.alerts.prometheus import recording_file, rules_file
from otel_straggler.alerts.promql import duration
from otel_straggler.alerts.settings import AlertSettings
from otel_straggler.alerts.yaml_text import to_yaml

PARTS: Final[dict[str, Callable[[AlertSettings], dict[str, str]]]] = {
    "rules": lambda settings: {"otel-straggler-rules.yaml": rules_file(settings)},
    "recording": lambda _: {"otel-straggler-recording-rules.yaml": recording_file()},
    "alertmanager": lambda settings: {
        "alertmanager.yaml": alertmanager_file(settings),
        _TEMPLATES: (files("otel_straggler.alerts") / _TEMPLATES).read_text(encoding="utf-8"),
    },
}
"""Files by name, by the part that ``alerts render --only`` takes."""
_TEMPLATES: Final = "templates/straggler.tmpl"


def render_all(settings: AlertSettings) -> dict[str, str]:
    rendered = {"RUNBOOK.md": runbook_file(settings)}
    for part in PARTS.values():
        rendered |= part(settings)
    return rendered


# --- the runbook ---------------------------------------------------------------------------------

_HEAD: Final = """\
<!-- Made by `otel-straggler alerts render` from the catalogue. -->
# Runbook

One chapter for each alert: what it means, the first three things to do, how to be quiet. Times \
and thresholds are the defaults; `docs/operate/alerts.md` has them all. Commands ask a collector \
at `127.0.0.1:9464`; `--collector URL` names another.

To acknowledge for a while: the silence link of the alert, or \
`amtool silence add run_id="ID" --duration 4h --comment WHY`.

"""


def runbook_file(settings: AlertSettings) -> str:
    contents = "".join(f"- [{name}](#{name.lower()})\n" for name in NAMES)
    chapters = "\n".join(chapter(name, settings) for name in NAMES)
    return f"{_HEAD}{contents}\n{chapters}"


def chapter(name: str, settings: AlertSettings) -> str:
    """One alert: heading, a line of facts, the text."""
    rules = [rule for rule in CATALOGUE if rule.name == name and rule.counts is None]
    rule = rules[0]
    facts = [
        " or ".join(f"`{each.severity}`" for each in rules),
        f"domain {rule.domain}",
        f"after {duration(rule.for_s(settings))}" if rule.for_s(settings) else "at once",
    ]
    if rule.predicate is None:
        facts.append("from Prometheus only")
    source = (files("otel_straggler.alerts") / "runbook.md").read_text(encoding="utf-8")
    text = source.partition(f"## {name}\n\n")[2].partition("\n## ")[0]
    return f"## {name}\n{', '.join(facts)}.\n\n{text}"


# --- an example for Alertmanager -----------------------------------------------------------------

MIN_GROUP_WAIT_S: Final = 15.0
HUNG_WAIT_S: Final = 1.0
"""Of alerts that nothing on the same run inhibits: long enough for all groups of a run."""
_NOTE: Final = (
    "# An example, made by `otel-straggler alerts render --only alertmanager`. Put your own\n"
    "# receivers in; the routes and the inhibition are what matters. To add it to a configuration\n"
    "# that you have: take the route below `routes`, the inhibition and the receivers.\n"
)


def alertmanager_file(settings: AlertSettings) -> str:
    """The configuration. ``group_wait`` is never shorter than an evaluation: an alert that inhibits
    others must have time to arrive. A hung run waits for no others, and has a group of its own."""
    document = {
        "route": {"receiver": "nobody", "routes": [_route(settings)]},
        "inhibit_rules": [rule for each in INHIBITIONS for rule in _inhibit_rules(each)],
        "templates": ["templates/*.tmpl"],
        "receivers": _receivers(),
    }
    return _NOTE + to_yaml(document)


def _route(settings: AlertSettings) -> dict[str, Any]:
    wait_s = max(MIN_GROUP_WAIT_S, settings.evaluation_seconds)
    return {
        "matchers": ['alertname=~"Straggler.+"'],
        "receiver": "chat",
        "group_by": ["cluster", "job_name", "run_id"],
        "group_wait": duration(wait_s),
        "group_interval": "2m",
        "repeat_interval": "4h",
        "routes": [
            {
                "matchers": [_is("alertname", "StragglerWatchdog")],
                "receiver": "dead-mans-switch",
                "group_by": ["cluster", "collector"],
                "group_wait": "0s",
                "group_interval": "1m",
                "repeat_interval": "1m",
            },
            {"matchers": [_is("mode", "observe")], "receiver": "nobody"},
            {
                "matchers": [_is("alertname", "StragglerRunHung")],
                "receiver": "pager",
                "group_wait": duration(HUNG_WAIT_S),
                "group_interval": "30s",
            },
            {
                "matchers": [_is("alertname", "StragglerRunForgotten")],
                "receiver": "chat-without-ends",
            },
            {"matchers": [_is("severity", "critical")], "receiver": "pager"},
            {"matchers": [_is("severity", "warning")], "receiver": "chat"},
            {"matchers": [_is("severity", "info")], "receiver": "nobody"},
        ],
    }


def _receivers() -> list[dict[str, Any]]:
    return [
        {"name": "nobody"},
        {
            "name": "dead-mans-switch",
            "webhook_configs": [{"url": "https://switch.example/ping", "send_resolved": False}],
        },
        {
            "name": "pager",
            "pagerduty_configs": [
                {
                    "routing_key": "put the integration key here",
                    "send_resolved": True,
                    "description": _template("straggler.pagerduty.description"),
                    "severity": "{{ .CommonLabels.severity }}",
                    "client_url": "{{ with .CommonAnnotations.page_url }}{{ . }}{{ else }}"
                    "{{ .CommonAnnotations.dashboard_url }}{{ end }}",
                    "details": {
                        "alerts": _template("straggler.pagerduty.details"),
                        "page": "{{ .CommonAnnotations.page_url }}",
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


def _template(name: str) -> str:
    return f'{{{{ template "{name}" . }}}}'


def _inhibit_rules(inhibition: Inhibition) -> list[dict[str, Any]]:
    source, target = [_any((inhibition.source,))], [_any(inhibition.targets)]
    critical, mild = _is("severity", "critical"), 'severity!="critical"'
    pairs = {
        "any": [(source, target)],
        "not_graver": [([*source, critical], target), ([*source, mild], [*target, mild])],
        "milder": [([*source, critical], [*target, mild])],
    }
    return [
        {"source_matchers": sources, "target_matchers": targets, "equal": list(inhibition.equal)}
        for sources, targets in pairs[inhibition.covered]
    ]


def _is(label: str, value: str) -> str:
    return f'{label}="{value}"'


def _any(names: Sequence[str]) -> str:
    return _is("alertname", names[0]) if len(names) == 1 else f'alertname=~"{"|".join(names)}"'

"""The links of an alert, as a Prometheus template and from Python: the same to the letter."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final
from urllib.parse import quote

from otel_straggler.alerts.rule import AlertRule
from otel_straggler.alerts.settings import AlertSettings

_ON_PAGE: Final = ("cluster", "run_id", "group", "rank", "node")
"""Labels that a dashboard takes as variables."""
_IN_SILENCE: Final = ("cluster", "collector", "run_id", "group", "rank", "node")
_OF_RUN: Final = ("cluster", "run_id", "group", "rank", "node")
"""The same of an alert about a run: whichever collector tells of it."""
_AN_HOUR: Final = "from=now-1h&to=now"


def links_in_go(rule: AlertRule, settings: AlertSettings) -> dict[str, str]:
    """By the annotation's name; those that lead nowhere are left out."""
    found = {"runbook_url": _runbook(rule, settings)}
    if settings.dashboard_url:
        found["dashboard_url"] = _dashboard(settings.dashboard_url) + "".join(
            f"{{{{ with $labels.{name} }}}}&var-{name}={_ESCAPED}{{{{ end }}}}"
            for name in _known(rule, _ON_PAGE)
        )
    if settings.alertmanager_url:
        found["silence_url"] = (
            _silence(settings.alertmanager_url, rule.name)
            + "".join(
                f"{{{{ with $labels.{name} }}}}%2C{name}%3D%22{_ESCAPED_TWICE}%22{{{{ end }}}}"
                for name in _in_silence(rule)
            )
            + _END_OF_SILENCE
        )
    return {name: link for name, link in found.items() if link}


def links(rule: AlertRule, settings: AlertSettings, labels: Mapping[str, str]) -> dict[str, str]:
    """The same for the labels of one alert."""
    found = {"runbook_url": _runbook(rule, settings)}
    if settings.dashboard_url:
        found["dashboard_url"] = _dashboard(settings.dashboard_url) + "".join(
            f"&var-{name}={_escaped(labels[name])}"
            for name in _known(rule, _ON_PAGE)
            if labels.get(name)
        )
    if settings.alertmanager_url:
        found["silence_url"] = (
            _silence(settings.alertmanager_url, rule.name)
            + "".join(
                f"%2C{name}%3D%22{_escaped(_quoted(labels[name]))}%22"
                for name in _in_silence(rule)
                if labels.get(name)
            )
            + _END_OF_SILENCE
        )
    return {name: link for name, link in found.items() if link}


_ESCAPED: Final = '{{ reReplaceAll "[+]" "%20" (urlquery .) }}'
_ESCAPED_TWICE: Final = (
    r'{{ reReplaceAll "[+]" "%20" (urlquery (reReplaceAll "([\"\\\\])" "\\$1" .)) }}'
)
_END_OF_SILENCE: Final = "%7D"


def _runbook(rule: AlertRule, settings: AlertSettings) -> str:
    return settings.runbook_url and f"{settings.runbook_url}#{rule.name.lower()}"


def _dashboard(url: str) -> str:
    return f"{url}{'&' if '?' in url else '?'}{_AN_HOUR}"


def _silence(url: str, name: str) -> str:
    return f"{url.rstrip('/')}/#/silences/new?filter=%7Balertname%3D%22{name}%22"


def _known(rule: AlertRule, names: tuple[str, ...]) -> Iterator[str]:
    carried = {"cluster", "collector", *rule.labels}
    return (name for name in names if name in carried)


def _in_silence(rule: AlertRule) -> Iterator[str]:
    return _known(rule, _OF_RUN if "run_id" in rule.labels else _IN_SILENCE)


def _escaped(text: str) -> str:
    return quote(text, safe="")


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')

"""Every file that is made of the catalogue, by its name below ``alerts/``."""

from __future__ import annotations

from collections.abc import Callable
from importlib.resources import files
from typing import Final

from otel_straggler.alerts.alertmanager import ALERTMANAGER_FILE, alertmanager_file
from otel_straggler.alerts.prometheus import RULES_FILE, rules_file
from otel_straggler.alerts.recording import RECORDING_FILE, recording_file
from otel_straggler.alerts.runbook_page import RUNBOOK_FILE, runbook_file
from otel_straggler.alerts.settings import AlertSettings

TEMPLATES_FILE: Final = "templates/straggler.tmpl"
Rendered = dict[str, str]


def render_rules(settings: AlertSettings) -> Rendered:
    return {RULES_FILE: rules_file(settings)}


def render_recording(settings: AlertSettings) -> Rendered:
    return {RECORDING_FILE: recording_file(settings)}


def render_alertmanager(settings: AlertSettings) -> Rendered:
    """The example and the templates that it names."""
    return {ALERTMANAGER_FILE: alertmanager_file(settings), TEMPLATES_FILE: _templates()}


PARTS: Final[dict[str, Callable[[AlertSettings], Rendered]]] = {
    "rules": render_rules,
    "recording": render_recording,
    "alertmanager": render_alertmanager,
}


def render_all(settings: AlertSettings) -> Rendered:
    rendered: Rendered = {RUNBOOK_FILE: runbook_file(settings)}
    for part in PARTS.values():
        rendered |= part(settings)
    return rendered


def _templates() -> str:
    return (files("otel_straggler.alerts") / TEMPLATES_FILE).read_text(encoding="utf-8")

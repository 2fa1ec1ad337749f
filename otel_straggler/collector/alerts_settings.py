"""Alerts, as a collector's file says it: when they fire, and whom the collector tells itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from otel_straggler.alerts.settings import RULES as ALERT_RULES
from otel_straggler.alerts.settings import AlertSettings
from otel_straggler.collector.notify_settings import NOTIFY_RULES, NotifySettings


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertsSettings(AlertSettings):
    """See :class:`AlertSettings`; a rule file that is rendered has the same thresholds only if it
    is rendered with them.

    Attributes:
        notify: whom the collector tells itself.
    """

    notify: NotifySettings = field(default_factory=NotifySettings)


RULES_OF_KIND: Final[Mapping[type, Mapping[str, tuple[str, Any]]]] = {
    AlertsSettings: ALERT_RULES,
    NotifySettings: NOTIFY_RULES,
}
"""Rules of names that other sections may have too, with a meaning of their own."""

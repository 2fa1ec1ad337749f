"""What stands behind ``POST /v1/alerts/test``: an alert on the way that the settings name."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any, cast

from otel_straggler.alerts.rule import FleetStatus
from otel_straggler.collector.asked import Asked
from otel_straggler.collector.run_wishes import mode_of
from otel_straggler.collector.settings import CollectorSettings
from otel_straggler.model.alert import Alert, Severity
from otel_straggler.publish.alert_json import rfc3339
from otel_straggler.publish.trial import (
    LONGEST_TRIAL_S,
    Place,
    trial_alert,
    try_alertmanagers,
    try_webhook,
)
from otel_straggler.publish.webhook import calls

_SEVERITIES = ("info", "warning", "critical")
_NOBODY = (
    "This collector tells nobody of its alerts. Name Alertmanagers or a webhook in alerts.notify "
    "of its file, unless Prometheus has the rules."
)
_OBSERVES = "alerts.mode is observe: real alerts carry mode=observe as well, and call nobody."
_NOT_TOLD = "not sent: a webhook is told of no alerts while alerts.mode is observe."


class AlertTrial:
    """Sends test alerts, one request at a time.

    Args:
        settings: of the collector.
        watched: has the labels that every alert carries.
        wall_s: clock.
    """

    def __init__(
        self,
        settings: CollectorSettings,
        watched: Callable[[], FleetStatus],
        wall_s: Callable[[], float],
    ) -> None:
        self._settings = settings
        self._watched = watched
        self._wall_s = wall_s
        self._lock = threading.Lock()

    def take(self, body: bytes) -> dict[str, Any]:
        """Send what a request asks for: JSON with ``severity`` and ``seconds``.

        Raises:
            InputError: it is no such thing.

        Cost: seconds, where servers do not answer.
        """
        asked = Asked(body, remedy="See docs/operate/notify-without-prometheus.md.")
        severity = asked.text("severity")
        if severity not in _SEVERITIES:
            raise asked.wrong("severity", severity, f"one of {', '.join(_SEVERITIES)}")
        seconds = asked.number("seconds", 1.0, LONGEST_TRIAL_S, "a number of 1 to 3600")
        with self._lock:
            return self._tried(cast("Severity", severity), seconds)

    def _tried(self, severity: Severity, seconds: float) -> dict[str, Any]:
        notify, now_s = self._settings.alerts.notify, self._wall_s()
        watched, mode = self._watched(), mode_of(self._settings)
        labels = {"collector": watched.collector, "cluster": watched.cluster}
        alert = trial_alert(severity, mode, now_s=now_s, lasts_s=seconds, labels=labels)
        ends_at_s = now_s + seconds
        places: tuple[Place, ...] = ()
        if notify.alertmanagers:
            urls = notify.alertmanagers
            places = try_alertmanagers(urls, notify.access(), alert, ends_at_s)
        elif notify.webhook:
            places = (self._told(alert, seconds),)
        note = _NOBODY if not places else _OBSERVES if mode == "observe" else ""
        return {
            "labels": dict(alert.labels),
            "ends_at": rfc3339(ends_at_s),
            "note": note,
            "places": [asdict(place) for place in places],
        }

    def _told(self, alert: Alert, seconds: float) -> Place:
        """A webhook is told that it fires now and, from a thread that waits, that it has ended."""
        notify = self._settings.alerts.notify
        if not calls(alert, notify.least_severity):
            why = f"not sent: it is told of nothing below {notify.least_severity}."
            is_page = alert.labels["mode"] == "page"
            return Place(url=notify.webhook, arrived=False, why=why if is_page else _NOT_TOLD)
        place = try_webhook(notify.webhook, notify.access(), alert)
        if place.arrived and notify.send_resolved:
            ended = replace(alert, ends_at_s=alert.starts_at_s + seconds)
            arguments = notify.webhook, notify.access(), ended
            timer = threading.Timer(seconds, try_webhook, arguments)
            timer.daemon = True
            timer.start()
        return place

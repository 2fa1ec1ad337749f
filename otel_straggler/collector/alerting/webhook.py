"""Alerts to a plain URL, in the format of Alertmanager's webhooks.

A change is sent at once, but at most one message per interval; a critical alert waits for the
interval of critical ones only. Grouping and routes are Alertmanager's.
"""

from __future__ import annotations

import json
import logging
import random
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from typing import Any, Final

from otel_straggler.collector.alerting.alert_json import (
    fingerprint,
    webhook_payload,
)
from otel_straggler.collector.alerting.posting import (
    DROPPED,
    TOO_LARGE,
    Answer,
    NotifySettings,
    Poster,
)
from otel_straggler.model.alert import Alert, Severity
from otel_straggler.model.decoding import read_as
from otel_straggler.otlp.clients.client import retry_delay_s

_log = logging.getLogger(__name__)

MAX_ALERTS: Final = 100
"""Alerts of one message; the rest is counted in it."""
_RANK: Final[Mapping[str, int]] = {"info": 0, "warning": 1, "critical": 2}
_NEVER_RESOLVED: Final = "StragglerRunForgotten"
"""Its end is never sent: no rank reporting any more has no end that is good news."""
_STATE_VERSION: Final = 2


def calls(alert: Alert, minimum: Severity) -> bool:
    """Whether a webhook gets an alert at all."""
    severity = alert.labels.get("severity", "")
    return alert.labels.get("mode") == "page" and _RANK.get(severity, -1) >= _RANK[minimum]


class Changes:
    """Alerts that one receiver has been sent, and those yet to be sent. Time is an argument; one
    thread owns it, or a lock."""

    def __init__(self, settings: NotifySettings) -> None:
        self._settings = settings
        self._firing: dict[str, Alert] = {}
        self._ended: dict[str, Alert] = {}
        self._sent: dict[str, Alert] = {}
        self._sending: dict[str, Alert] = {}
        self._sent_at_s = float("-inf")
        self._next_at_s = float("-inf")
        self._next_critical_at_s = float("-inf")

    def update(self, alerts: Iterable[Alert], unreported: Iterable[Alert] = ()) -> None:
        """Set what fires now, and what has ended since the last call; the ends of ``unreported``
        are not sent."""
        for alert in unreported:
            self._drop(fingerprint(alert.labels))
        self._firing = {}
        for alert in alerts:
            key = fingerprint(alert.labels)
            if alert.ends_at_s is None:
                self._firing[key] = alert
                self._ended.pop(key, None)
            elif not self._settings.send_resolved or alert.name == _NEVER_RESOLVED:
                self._drop(key)
            elif key in self._sent or key in self._sending:
                self._ended[key] = alert

    def _drop(self, key: str) -> None:
        for part in (self._ended, self._sent, self._sending):
            part.pop(key, None)

    def due(self, now_s: float, *, is_last: bool = False) -> tuple[Alert, ...]:
        """Alerts to be sent now, then settled or put off; firing ones first. ``is_last``: also news
        that would have waited."""
        news = {key: one for key, one in self._firing.items() if key not in self._sent}
        if not (is_last and (news or self._ended)) and now_s < self.due_at_s():
            return ()
        self._sending = news if news or self._ended else dict(self._firing)
        return (*self._sending.values(), *self._ended.values())

    def due_at_s(self) -> float:
        """The earliest time at which something is due."""
        news = self._firing.keys() - self._sent.keys()
        if any(_is_critical(self._firing[key]) for key in news):
            return self._next_critical_at_s
        if self._ended or news:
            return self._next_at_s
        if self._firing:
            return max(self._next_at_s, self._sent_at_s + self._settings.repeat_s)
        return float("inf")

    def settle(self, message: Iterable[Alert], now_s: float) -> None:
        """Record a message as sent, or as useless to send again."""
        next_at_s = now_s + self._settings.interval_s
        for alert in message:
            key = fingerprint(alert.labels)
            if alert.ends_at_s is None and key in self._sending:
                if _is_critical(alert) and key not in self._sent:
                    self._next_critical_at_s = next_at_s
                self._sent[key] = alert
            elif alert.ends_at_s is not None:
                self._sent.pop(key, None)
                if self._ended.get(key) is alert:
                    del self._ended[key]
        self._sending = {}
        self._sent_at_s = now_s
        self._next_at_s = next_at_s

    def put_off(self, until_s: float) -> None:
        """Record a message as failed; not before ``until_s`` again."""
        self._sending = {}
        self._ended = {key: alert for key, alert in self._ended.items() if key in self._sent}
        self._next_at_s = self._next_critical_at_s = until_s

    def state(self, now_s: float) -> dict[str, Any]:
        """In JSON's types; times as ages."""
        return {
            "version": _STATE_VERSION,
            "age_s": now_s - self._sent_at_s if self._sent else None,
            "sent": [asdict(alert) for alert in self._sent.values()],
            "ended": [asdict(alert) for alert in self._ended.values()],
        }

    def restore(self, state: Mapping[str, Any], passed_s: float, now_s: float) -> None:
        """Go on from :meth:`state`, which is ``passed_s`` old.

        Raises:
            ValueError, KeyError, TypeError, AttributeError: it is none.
        """
        if state["version"] != _STATE_VERSION:
            raise ValueError(f"version {state['version']!r}")
        sent, ended = (read_as(list[Alert], state[part]) for part in ("sent", "ended"))
        if state["age_s"] is not None:
            self._sent_at_s = now_s - float(state["age_s"]) - passed_s
            self._next_at_s = self._sent_at_s + self._settings.interval_s
        self._sent = {fingerprint(alert.labels): alert for alert in sent}
        self._ended = {fingerprint(alert.labels): alert for alert in ended}


def _is_critical(alert: Alert) -> bool:
    return alert.labels.get("severity") == "critical"


class Webhook:
    """The receiver and its thread; ``page``: address of the collector for people. ``is_changed``:
    whether anything was sent since :meth:`state` was asked for."""

    def __init__(
        self,
        settings: NotifySettings,
        page: str = "",
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._poster = Poster(settings.webhook, settings, has_secret_path=True)
        self._settings = settings
        self._page = page
        self._now_s = monotonic_s
        self._changes = Changes(settings)
        self._failed = 0
        self.is_changed = False
        self._changed = threading.Condition()
        self._stop_at_s: float | None = None
        self._thread = threading.Thread(target=self._run, name="straggler-webhook", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def update(self, alerts: Iterable[Alert], unreported: Iterable[Alert] = ()) -> None:
        """See :meth:`Changes.update`. Never waits."""
        with self._changed:
            self._changes.update(alerts, unreported)
            self._changed.notify()

    def counts(self) -> dict[tuple[str, str], int]:
        """(receiver, outcome) to requests."""
        return {(self._poster.name, outcome): n for outcome, n in self._poster.counts().items()}

    @property
    def trouble(self) -> str:
        return self._poster.trouble

    def stop(self, deadline_s: float) -> None:
        """Send news, also what would have waited, for at most ``deadline_s``."""
        with self._changed:
            self._stop_at_s = time.monotonic() + deadline_s
            self._changed.notify()
        if self._thread.is_alive():
            self._thread.join(deadline_s + 1.0)

    # --- over restarts ---------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        with self._changed:
            self.is_changed = False
            return self._changes.state(self._now_s())

    def restore(self, state: Mapping[str, Any], passed_s: float) -> None:
        """Before :meth:`start`; raises as :meth:`Changes.restore`."""
        self._changes.restore(state, passed_s, self._now_s())

    # --- the thread ------------------------------------------------------------------------------

    def _run(self) -> None:
        while self._stop_at_s is None:
            with self._changed:
                message = self._changes.due(self._now_s())
                if not message:
                    wait_s = self._changes.due_at_s() - self._now_s()
                    self._changed.wait(min(max(wait_s, 0.0), 60.0))
            if message:
                self._send(message)
        with self._changed:
            message = self._changes.due(self._now_s(), is_last=True)
        if message:
            self._send(message)
        self._poster.close()

    def _send(self, message: tuple[Alert, ...]) -> None:
        answer = self._posted(message)
        now_s = self._now_s()
        with self._changed:
            if answer.outcome in ("accepted", "invalid"):
                self._failed = 0
                self._changes.settle(message, now_s)
                self.is_changed = True
                return
            if self._stop_at_s is not None:
                self._poster.count(DROPPED, len(message))
            self._failed += 1
            delay_s = retry_delay_s(self._failed, answer.retry_after_s, random.random)
            if answer.outcome == "blocked":
                delay_s = max(delay_s, self._settings.interval_s)
            self._changes.put_off(now_s + delay_s)

    def _posted(self, message: tuple[Alert, ...]) -> Answer:
        """Post it whole, or shortened while it is too large for the other side."""
        limit = MAX_ALERTS
        while True:
            alerts = message[:limit]
            left_out = len(message) - len(alerts)
            payload = webhook_payload(alerts, left_out=left_out, page=self._page)
            body = json.dumps(payload, separators=(",", ":")).encode()
            left_s = 1e6 if self._stop_at_s is None else self._stop_at_s - time.monotonic()
            answer = self._poster.post(body, max(left_s, 0.1))
            if answer.status != TOO_LARGE or len(alerts) <= 1:
                return answer
            limit = len(alerts) // 2

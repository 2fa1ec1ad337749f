"""Alerts to Alertmanager's API v2, as Prometheus sends them: everything to every replica, again
while it fires.

Only the newest state of each alert waits for a replica, so the queue is bounded by the number of
alerts, however long an outage lasts.
"""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote

from otel_straggler.collector.alerting.alert_json import (
    fingerprint,
    posted_alert,
    seconds_of_rfc3339,
)
from otel_straggler.collector.alerting.posting import DROPPED, TOO_LARGE, Access, Answer, Poster
from otel_straggler.model.alert import Alert
from otel_straggler.otlp.clients.client import retry_delay_s
from otel_straggler.strict_json import parse_json

PATH: Final = "/api/v2/alerts"
MAX_WAITING: Final = 10_000
"""Alerts that may wait for one replica."""
_AT_ONCE: Final = 64
"""Alerts of one request."""
_MAX_REFUSALS: Final = 3
"""An alert whose content was refused so often is not sent again unchanged. More than once, because
not every proxy that answers 400 means it."""

Json = dict[str, Any]


class Alertmanagers:
    """All replicas.

    Args:
        urls: of each, with the prefix of its path if it has one.
        access: the same for all.
        resend_s: a firing alert is sent again after this time.
        holds_s: how long an alert fires in Alertmanager without being sent again.
        page: address of the collector for people; may be empty.
    """

    def __init__(
        self,
        urls: Sequence[str],
        access: Access,
        *,
        resend_s: float = 60.0,
        holds_s: Callable[[Alert], float] = lambda _: 240.0,
        page: str = "",
    ) -> None:
        self._resend_s, self._holds_s, self._page = resend_s, holds_s, page
        self._replicas = tuple(
            Replica(Poster(url.rstrip("/") + PATH, access), resend_s) for url in urls
        )
        self._sent_at_s: dict[str, float] = {}

    def start(self) -> None:
        for replica in self._replicas:
            replica.start()

    def update(self, alerts: Iterable[Alert], now_s: float) -> None:
        """Send what fires now, and what has ended since the last call; ``now_s``: wall clock."""
        fires: set[str] = set()
        due: dict[str, Json] = {}
        for alert in alerts:
            key = fingerprint(alert.labels)
            if alert.ends_at_s is not None:
                due[key] = posted_alert(alert, alert.ends_at_s, self._page)
                continue
            fires.add(key)
            sent_at_s = self._sent_at_s.get(key)
            # A clock that was set back must not keep an alert from being sent again.
            if sent_at_s is None or not 0 <= now_s - sent_at_s < self._resend_s:
                self._sent_at_s[key] = now_s
                ends_at_s = now_s + self._holds_s(alert)
                due[key] = posted_alert(alert, ends_at_s, self._page)
        self._sent_at_s = {key: at for key, at in self._sent_at_s.items() if key in fires}
        for replica in self._replicas:
            replica.put(due)

    def known(self, labels: Mapping[str, str]) -> tuple[Alert, ...]:
        """Alerts with these labels that an earlier process has sent, of the first replica that
        answers. Cost: the timeout for each replica."""
        matchers = (quote(f'{name}="{_escaped(value)}"', safe="") for name, value in labels.items())
        query = "&".join(f"filter={matcher}" for matcher in matchers)
        for replica in self._replicas:
            response = replica.poster.get(f"{replica.poster.url}?{query}")
            try:
                posted = parse_json(response.body, None) if response.is_success else None
                if posted is not None:
                    ours = f"{self._page}/v1/report"
                    return tuple(
                        _read(one) for one in posted if str(one["generatorURL"]).startswith(ours)
                    )
            except (ValueError, TypeError, KeyError, AttributeError):
                continue  # it is no Alertmanager; posting to it says so
        return ()

    def counts(self) -> dict[tuple[str, str], int]:
        """(receiver, outcome) to requests."""
        return {
            (replica.poster.name, outcome): count
            for replica in self._replicas
            for outcome, count in replica.poster.counts().items()
        }

    @property
    def trouble(self) -> str:
        """Of the first replica that has one."""
        return next((r.poster.trouble for r in self._replicas if r.poster.trouble), "")

    def stop(self, deadline_s: float) -> None:
        """Send what waits, for at most ``deadline_s`` in all. Nothing is resolved."""
        until_s = time.monotonic() + deadline_s
        for replica in self._replicas:
            replica.begin_to_stop(until_s)
        for replica in self._replicas:
            replica.join(until_s)


class Replica:
    """The queue and the thread of one Alertmanager.

    Args:
        patience_s: wait between tries while the configuration has to be corrected.
        max_waiting: alerts.
    """

    def __init__(self, poster: Poster, patience_s: float, max_waiting: int = MAX_WAITING) -> None:
        self.poster = poster
        self._patience_s = patience_s
        self._max = max_waiting
        self._waiting: dict[str, Json] = {}
        self._refused: dict[str, tuple[int, Json]] = {}
        self._at_once = _AT_ONCE
        self._failed = 0
        self._changed = threading.Condition()
        self._stop_at_s: float | None = None
        self._thread = threading.Thread(target=self._run, name="straggler-alerts-out", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def put(self, alerts: Mapping[str, Json]) -> None:
        """Queue the newest state of alerts; never waits."""
        with self._changed:
            for key, alert in alerts.items():
                times, refused = self._refused.get(key, (0, alert))
                if times and _content(refused) != _content(alert):
                    del self._refused[key]
                elif times >= _MAX_REFUSALS:
                    continue
                self._waiting[key] = alert
            extra = list(self._waiting)[: max(len(self._waiting) - self._max, 0)]
            for key in extra:
                del self._waiting[key]
            self.poster.count(DROPPED, len(extra))
            self._changed.notify()

    def begin_to_stop(self, at_s: float) -> None:
        with self._changed:
            self._stop_at_s = at_s
            self._changed.notify()

    def join(self, at_s: float) -> None:
        if self._thread.is_alive():
            self._thread.join(max(0.0, at_s - time.monotonic()) + 1.0)
        with self._changed:
            self.poster.count(DROPPED, len(self._waiting))
            self._waiting.clear()

    def _run(self) -> None:
        while batch := self._next():
            body = json.dumps(list(batch.values()), separators=(",", ":")).encode()
            answer = self.poster.post(body, max(self._left_s(), 0.1))
            wait_s = self._settle(batch, answer)
            if wait_s:
                self._pause(wait_s)
        self.poster.close()

    def _next(self) -> dict[str, Json]:
        """Alerts that have waited longest; none once stopped, empty, or out of time."""
        with self._changed:
            while not self._waiting and self._stop_at_s is None:
                self._changed.wait()
            if self._left_s() <= 0:
                return {}
            return dict(list(self._waiting.items())[: self._at_once])

    def _settle(self, batch: Mapping[str, Json], answer: Answer) -> float:
        """Act on the answer to a batch; returns seconds until the next try."""
        with self._changed:
            if answer.outcome == "accepted":
                self._failed = 0
                self._at_once = min(_AT_ONCE, 2 * self._at_once)
                self._remove(batch)
                return 0.0
            if answer.outcome == "invalid" and len(batch) > 1:
                # One of them is at fault, or they are too many.
                self._at_once = len(batch) // 2 if answer.status == TOO_LARGE else 1
                return 0.0
            if answer.outcome == "invalid":
                self._remove(batch)
                for key, alert in batch.items():
                    times, _ = self._refused.pop(key, (0, alert))
                    self._refused[key] = (times + 1, alert)
                while len(self._refused) > self._max:
                    del self._refused[next(iter(self._refused))]
                return 0.0
            if answer.outcome == "blocked":
                return self._patience_s
            self._failed += 1
            return retry_delay_s(self._failed, answer.retry_after_s, random.random)

    def _remove(self, batch: Mapping[str, Json]) -> None:
        """Remove alerts that have not changed meanwhile."""
        for key, alert in batch.items():
            if self._waiting.get(key) is alert:
                del self._waiting[key]

    def _pause(self, seconds: float) -> None:
        until_s = time.monotonic() + seconds
        with self._changed:
            while (left_s := min(until_s - time.monotonic(), self._left_s())) > 0:
                self._changed.wait(left_s)

    def _left_s(self) -> float:
        stop_at_s = self._stop_at_s
        return 1e6 if stop_at_s is None else stop_at_s - time.monotonic()


def _read(posted: Json) -> Alert:
    return Alert(
        labels={str(k): str(v) for k, v in posted["labels"].items()},
        annotations={str(k): str(v) for k, v in posted["annotations"].items()},
        starts_at_s=seconds_of_rfc3339(posted["startsAt"]),
    )


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _content(alert: Json) -> tuple[Json, Json]:
    return alert["labels"], alert["annotations"]

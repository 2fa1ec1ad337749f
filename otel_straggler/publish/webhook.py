"""Alerts to a plain URL, in the words in which Alertmanager tells a webhook.

Whatever understands Alertmanager's webhooks understands these. What Alertmanager would do between
the alerts and the webhook (which of them call somebody, grouping, repeats, retries) is done here.
"""

from __future__ import annotations

import json
import logging
import random
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from otel_straggler.model.alert import Alert, Severity
from otel_straggler.publish.alert_json import webhook_payload
from otel_straggler.publish.grouping import GroupRules, Groups, Message
from otel_straggler.publish.posting import DROPPED, Access, Poster
from otel_straggler.publish.refusals import TOO_LARGE, Judged
from otel_straggler.transport.response import retry_delay_s

_log = logging.getLogger(__name__)

MOST_TOLD: Final = 100
"""Alerts of one message; the rest is counted in it."""
_RANK: Final[Mapping[str, int]] = {"info": 0, "warning": 1, "critical": 2}


def calls(alert: Alert, least: Severity) -> bool:
    """Whether a webhook is told of an alert at all: it may page, and is grave enough."""
    severity = alert.labels.get("severity", "")
    return alert.labels.get("mode") == "page" and _RANK.get(severity, -1) >= _RANK[least]


class Webhook:
    """One receiver, and the thread that sends to it. Which alerts it is told of, others decide.

    Args:
        url: complete.
        access: how to get in.
        rules: when it is told what.
        page: address of the collector for people; may be empty.
        monotonic_s: clock.
    """

    def __init__(
        self,
        url: str,
        access: Access,
        rules: GroupRules,
        page: str = "",
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._poster = Poster(url, access)
        self._rules = rules
        self._page = page
        self._now_s = monotonic_s
        self._groups = Groups(rules)
        self._failed: dict[tuple[str, ...], int] = {}
        self._is_changed = False
        self._changed = threading.Condition()
        self._stop_at_s: float | None = None
        self._thread = threading.Thread(target=self._run, name="straggler-webhook", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def take(self, alerts: Iterable[Alert], unsaid: Iterable[Alert] = ()) -> None:
        """All that is to be told of and fires now, and what has ended since the last call; of
        ``unsaid`` nobody is told that it ended. Never waits."""
        with self._changed:
            self._groups.take(alerts, self._now_s(), unsaid)
            self._changed.notify()

    def counts(self) -> dict[tuple[str, str], int]:
        """(receiver, outcome) to requests."""
        return {(self._poster.name, outcome): n for outcome, n in self._poster.counts().items()}

    def stop(self, deadline_s: float) -> None:
        """Say what is new, also what would have waited, for at most ``deadline_s``."""
        with self._changed:
            self._stop_at_s = time.monotonic() + deadline_s
            self._changed.notify()
        if self._thread.is_alive():
            self._thread.join(deadline_s + 1.0)

    # --- over restarts ---------------------------------------------------------------------------

    @property
    def is_changed(self) -> bool:
        """Whether anything was told since :meth:`state` was asked for."""
        return self._is_changed

    def state(self) -> dict[str, Any]:
        with self._changed:
            self._is_changed = False
            return self._groups.state(self._now_s())

    def restore(self, state: Mapping[str, Any], passed_s: float) -> None:
        """Before :meth:`start`.

        Raises:
            ValueError, KeyError, TypeError, AttributeError: it is no state.
        """
        self._groups.restore(state, passed_s, self._now_s())

    # --- the thread ------------------------------------------------------------------------------

    def _run(self) -> None:
        while self._stop_at_s is None:
            with self._changed:
                messages = self._groups.due(self._now_s())
                if not messages and self._stop_at_s is None:
                    wait_s = self._groups.next_at_s() - self._now_s()
                    self._changed.wait(min(max(wait_s, 0.0), 60.0))
            for message in messages:
                self._send(message)
        with self._changed:
            messages = self._groups.due(self._now_s(), is_last=True)
        for message in messages:
            self._send(message)
        self._poster.close()

    def _send(self, message: Message) -> None:
        answer = self._posted(message)
        now_s = self._now_s()
        with self._changed:
            if answer.fate in ("taken", "unfit"):
                self._failed.pop(message.group, None)
                self._groups.settle(message, now_s)
                self._is_changed = True
                return
            if self._stop_at_s is not None:
                self._poster.count(DROPPED, len(message.alerts))
            times = self._failed[message.group] = self._failed.get(message.group, 0) + 1
            delay_s = retry_delay_s(times, answer.retry_after_s, random.random)
            if answer.fate == "barred":
                delay_s = max(delay_s, self._rules.interval_s)
            self._groups.put_off(message, now_s + delay_s)

    def _posted(self, message: Message) -> Judged:
        """Sent whole, or cut as long as it is too large for the other side."""
        most = MOST_TOLD
        while True:
            told = message.alerts[:most]
            payload = webhook_payload(
                told, message.labels, left_out=len(message.alerts) - len(told), page=self._page
            )
            body = json.dumps(payload, separators=(",", ":")).encode()
            left_s = 1e6 if self._stop_at_s is None else self._stop_at_s - time.monotonic()
            answer = self._poster.post(body, max(left_s, 0.1))
            if answer.status != TOO_LARGE or len(told) <= 1:
                return answer
            most = len(told) // 2

"""Sends the reports of agents and launchers to the supervisor, in a thread of its own.

A report waits in a bounded queue until the supervisor has it, which may restart or be away. It is
sent again under the same id, so nothing happens twice.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from otel_straggler.errors import ConfigError
from otel_straggler.model.fleet_reports import RENEW_S, REPORTS_PATH, FleetReport, report_json
from otel_straggler.otlp.clients.client import NO_ANSWER, Response, is_retryable, retry_delay_s
from otel_straggler.otlp.clients.http import HttpClient
from otel_straggler.otlp.clients.token import token_headers
from otel_straggler.secret import without_secrets

_log = logging.getLogger(__name__)

SUPERVISOR_VARIABLE: Final = "OTEL_STRAGGLER_SUPERVISOR"
SUPERVISOR_TOKEN_VARIABLE: Final = "OTEL_STRAGGLER_SUPERVISOR_TOKEN_FILE"  # noqa: S105  a name
MAX_WAITING: Final = 1_000
"""Reports; the oldest gives way."""
TIMEOUT_S: Final = 5.0
_NOT_SENT: Final = 400
_REFUSED_TOKEN: Final = frozenset({401, 403})
"""May be corrected while reports wait: tokens are renewed in place."""


class ReportSender:
    """The queue to one supervisor. Thread-safe.

    Args:
        url: base URL of the supervisor.
        token_file: holds a bearer token, read for each request; empty: none is sent.

    Attributes:
        counts: reports by outcome: sent, refused, dropped.
    """

    def __init__(self, url: str, token_file: str = "") -> None:
        self._shown = without_secrets(url)
        self._token_file = token_file
        self._client = HttpClient(url.rstrip("/") + REPORTS_PATH, timeout_s=TIMEOUT_S)
        self._waiting: deque[FleetReport] = deque()
        self._kept: FleetReport | None = None
        self._changed = threading.Condition()
        self._stop_at_s: float | None = None
        self._is_failing = False
        self.counts: Counter[str] = Counter()
        self._thread = threading.Thread(target=self._run, name="straggler-reports", daemon=True)
        self._thread.start()

    def send(self, report: FleetReport) -> None:
        """Queue one report. Never waits and never raises."""
        with self._changed:
            if len(self._waiting) >= MAX_WAITING:
                self._waiting.popleft()
                self.counts["dropped"] += 1
            self._waiting.append(report)
            self._changed.notify()

    def keep(self, report: FleetReport) -> None:
        """Queue one report, and again under the same id whenever there was none for
        :data:`RENEW_S`: what it is about is still there."""
        self._kept = report
        self.send(report)

    def close(self, deadline_s: float = 2.0) -> None:
        """Send what waits, for at most ``deadline_s``. May be called twice."""
        with self._changed:
            self._stop_at_s = time.monotonic() + deadline_s
            self._changed.notify()
        self._thread.join(deadline_s + 1.0)
        with self._changed:
            self.counts["dropped"] += len(self._waiting)
            self._waiting.clear()

    # --- the thread ------------------------------------------------------------------------------

    def _run(self) -> None:
        failed = 0
        while (report := self._next()) is not None:
            try:
                response = self._post(report)
            except Exception as error:  # noqa: BLE001  the next report is sent all the same
                response = Response(_NOT_SENT, error=repr(error))
            if is_retryable(response) or response.status in _REFUSED_TOKEN:
                failed += 1
                self._log_failure(response)
                self._pause(retry_delay_s(failed, response.retry_after_s))
                continue
            failed = 0
            self._settle(report, response)
        self._client.close()

    def _next(self) -> FleetReport | None:
        """The oldest; None once stopped and empty, or out of time."""
        with self._changed:
            while not self._waiting and self._stop_at_s is None:
                is_silent = not self._changed.wait(RENEW_S)
                if is_silent and self._kept is not None:
                    self._waiting.append(replace(self._kept, at_unix_s=time.time()))
            is_late = self._stop_at_s is not None and time.monotonic() >= self._stop_at_s
            return None if is_late or not self._waiting else self._waiting[0]

    def _post(self, report: FleetReport) -> Response:
        env = {SUPERVISOR_TOKEN_VARIABLE: self._token_file}
        try:
            headers = token_headers(env, SUPERVISOR_TOKEN_VARIABLE)
        except ConfigError as error:
            return Response(NO_ANSWER, error=str(error))
        stop_at_s = self._stop_at_s
        left_s = TIMEOUT_S if stop_at_s is None else max(0.1, stop_at_s - time.monotonic())
        return self._client.post(
            report_json(report),
            content_type="application/json",
            headers=headers,
            timeout_s=left_s,
        )

    def _settle(self, report: FleetReport, response: Response) -> None:
        with self._changed:
            if self._waiting and self._waiting[0] is report:
                self._waiting.popleft()
            self.counts["sent" if response.is_success else "refused"] += 1
        if not response.is_success:
            self._log_failure(response)
        elif self._is_failing:
            self._is_failing = False
            _log.info("the supervisor %s accepts reports again", self._shown)

    def _log_failure(self, response: Response) -> None:
        """Once until it succeeds again."""
        if not self._is_failing:
            self._is_failing = True
            why = response.error or f"HTTP {response.status}: {response.body[:200]!r}"
            _log.warning("the supervisor %s does not accept reports: %s", self._shown, why)

    def _pause(self, seconds: float) -> None:
        with self._changed:
            if self._stop_at_s is None:
                self._changed.wait_for(lambda: self._stop_at_s is not None, seconds)
            else:
                time.sleep(max(0.0, min(0.1, self._stop_at_s - time.monotonic())))


def report_sender(env: Mapping[str, str] | None = None) -> ReportSender | None:
    """The sender to the supervisor that ``OTEL_STRAGGLER_SUPERVISOR`` names; None if it names none.

    Raises:
        ConfigError: it is no HTTP URL.
    """
    values = os.environ if env is None else env
    url = values.get(SUPERVISOR_VARIABLE, "").strip()
    if not url:
        return None
    if not url.startswith(("http://", "https://")):
        expected = "a URL such as http://supervisor:9470"
        remedy = f"Give {SUPERVISOR_VARIABLE} with http:// or https:// before it."
        raise ConfigError.of(SUPERVISOR_VARIABLE, url, expected, remedy)
    return ReportSender(url, values.get(SUPERVISOR_TOKEN_VARIABLE, "").strip())

"""Forwards requests unchanged. Failures here never reach their senders."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections import Counter, deque

from otel_straggler.collector.ingest.intake import Request
from otel_straggler.otlp.clients.client import Response, is_retryable, retry_delay_s
from otel_straggler.otlp.clients.http import HttpClient
from otel_straggler.secret import without_secrets
from otel_straggler.throttle import Throttle

_log = logging.getLogger(__name__)

SENT, REFUSED, DROPPED = "sent", "refused", "dropped"
_WARN_EVERY_S = 30.0
_NEARLY = 0.8


class Forwarder:
    """A queue bounded in bytes (of ``raw_body``) and one thread that empties it in order.

    A request is retried until it is accepted, refused for good, or pushed out by newer ones.

    Args:
        url: base; requests go to ``url``/v1/traces and so on.

    Attributes:
        shown: the URL without what is secret, for messages.
        why: of the last request that was not taken.
    """

    def __init__(self, url: str, *, max_queue_bytes: int, timeout_s: float = 10.0) -> None:
        self._base = url.rstrip("/")
        self.shown, self.why = without_secrets(self._base), "it does not keep up"
        self._limit = max_queue_bytes
        self._timeout_s = timeout_s
        self._clients: dict[str, HttpClient] = {}
        self._queue: deque[Request] = deque()
        self.queued_bytes = 0
        self._counts: Counter[str] = Counter()
        self._changed = threading.Condition()
        self._stop_at_s: float | None = None
        self._warnings = Throttle(1 / _WARN_EVERY_S)
        self._thread = threading.Thread(target=self._run, name="otlp-forwarder", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def put(self, item: Request) -> None:
        """Queue a request; never waits."""
        with self._changed:
            if self._stop_at_s is not None:
                self._counts[DROPPED] += 1
                return
            self._queue.append(item)
            self.queued_bytes += len(item.raw_body)
            while self.queued_bytes > self._limit and self._queue:
                self._drop_oldest()
            self._changed.notify()

    def counts(self) -> dict[str, int]:
        with self._changed:
            return dict(self._counts)

    @property
    def is_nearly_full(self) -> bool:
        return self.queued_bytes > _NEARLY * self._limit

    def stop(self, deadline_s: float) -> None:
        """Send what waits, for at most ``deadline_s``; the rest is dropped and counted."""
        with self._changed:
            self._stop_at_s = time.monotonic() + deadline_s
            self._changed.notify()
        if self._thread.is_alive():
            self._thread.join(deadline_s + 1.0)
        with self._changed:
            while self._queue:
                self._drop_oldest()

    def _run(self) -> None:
        while (item := self._next()) is not None:
            outcome = self._deliver(item)
            with self._changed:
                # Not in front: it was pushed out meanwhile.
                if self._queue and self._queue[0] is item:
                    self._queue.popleft()
                    self.queued_bytes -= len(item.raw_body)
                    self._counts[outcome] += 1
                elif outcome == SENT:  # pushed out while it was on its way, and counted as such
                    self._counts[DROPPED] -= 1
                    self._counts[SENT] += 1
        for client in self._clients.values():
            client.close()

    def _next(self) -> Request | None:
        """The oldest request; None once stopped and empty, or out of time."""
        with self._changed:
            while not self._queue and self._stop_at_s is None:
                self._changed.wait()
            if not self._queue or self._left_s() <= 0:
                return None
            return self._queue[0]

    def _deliver(self, item: Request) -> str:
        attempt = 0
        while True:
            response = self._post(item)
            if response.is_success:
                return SENT
            self.why = response.error or f"status {response.status}"
            if self._warnings.passes():
                _log.warning("forwarding %s to %s failed: %s", item.signal, self.shown, self.why)
            if not is_retryable(response):
                return REFUSED
            attempt += 1
            delay_s = retry_delay_s(attempt, response.retry_after_s, random.random)
            if not self._wait(item, delay_s):
                return DROPPED

    def _post(self, item: Request) -> Response:
        client = self._clients.get(item.signal)
        if client is None:
            url = f"{self._base}/v1/{item.signal}"
            client = self._clients[item.signal] = HttpClient(url, timeout_s=self._timeout_s)
        return client.post(
            item.raw_body,
            content_type=item.content_type,
            content_encoding=item.content_encoding or None,
            timeout_s=max(min(self._timeout_s, self._left_s()), 0.1),
        )

    def _wait(self, item: Request, delay_s: float) -> bool:
        """Wait before the next try; False if there will be none."""
        until_s = time.monotonic() + delay_s
        with self._changed:
            while True:
                if not self._queue or self._queue[0] is not item:
                    return False
                now_s = time.monotonic()
                if self._left_s() <= 0:
                    return False
                if now_s >= until_s:
                    return True
                self._changed.wait(min(until_s - now_s, self._left_s()))

    def _left_s(self) -> float:
        stop_at_s = self._stop_at_s
        return float(2**20) if stop_at_s is None else stop_at_s - time.monotonic()

    def _drop_oldest(self) -> None:
        self.queued_bytes -= len(self._queue.popleft().raw_body)
        self._counts[DROPPED] += 1

"""Encoded requests on their way out: a queue bounded in bytes, in order, with retries. Losses are
counted by reason (``straggler.records.dropped``); a full queue drops its oldest request."""

from __future__ import annotations

import logging
import math
import random
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from otel_straggler.config import ClientSettings, Endpoint
from otel_straggler.otlp.answers import message_of
from otel_straggler.otlp.clients.client import (
    NO_ANSWER,
    TOO_MANY_REQUESTS,
    Client,
    Response,
    encoded_body,
    is_retryable,
    retry_delay_s,
)
from otel_straggler.secret import without_secrets
from otel_straggler.semconv import BY_LIMIT, GPU_LOSSES, GPU_MISSING

RING_FULL: Final = "ring_full"
INBOX_FULL: Final = "inbox_full"
QUEUE_FULL: Final = "queue_full"
REJECTED: Final = "rejected"
PROCESS_ENDED: Final = "process_ended"
ENCODE_ERROR: Final = "encode_error"
GPU_REASONS: Final = (GPU_MISSING, *GPU_LOSSES)
"""In the order in which the native part counts them."""
SPAN_BUDGET, SDK_RATE = BY_LIMIT
KERNELS_LOST: Final = "kernels_lost"
SDK_ERROR: Final = "sdk_error"
SDK_QUEUE_FULL: Final = "sdk_queue_full"
DROP_REASONS: Final = (
    *(RING_FULL, INBOX_FULL, QUEUE_FULL, REJECTED, SPAN_BUDGET, PROCESS_ENDED, ENCODE_ERROR),
    *(*GPU_REASONS, KERNELS_LOST, SDK_RATE, SDK_ERROR, SDK_QUEUE_FULL),
)
"""Values of ``reason`` of ``straggler.records.dropped``."""


class Drops:
    """Cumulative counts by reason."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}

    def add(self, reason: str, count: int) -> None:
        if count > 0:
            self._counts[reason] = self._counts.get(reason, 0) + count

    def counts(self) -> dict[str, int]:
        return dict(self._counts)


PROTOBUF = "application/x-protobuf"
_LOG = logging.getLogger("otel_straggler")


@dataclass(frozen=True, slots=True)
class _Queued:
    body: bytes
    encoding: str | None
    runs: int


class SpanSender:
    """Sends span requests in order, one at a time."""

    def __init__(
        self,
        endpoint: Endpoint,
        client: Client,
        *,
        budget_bytes: int,
        drops: Drops,
        monotonic_s: Callable[[], float],
        on_answer: Callable[[Response], None],
        rng: Callable[[], float] | None = None,
        what: str = "spans",
    ) -> None:
        self._what = what
        self._endpoint = endpoint
        self._client = client
        self._budget_bytes = budget_bytes
        self._drops = drops
        self._monotonic_s = monotonic_s
        self._on_answer = on_answer
        self._rng = rng or random.Random().random  # not the user's generator
        self._queue: deque[_Queued] = deque()
        self._queued_bytes = 0
        self._failures = 0
        self._has_no_answer = False
        self.not_before_s = float("-inf")
        self._logged: set[int] = set()

    @property
    def queued_requests(self) -> int:
        return len(self._queue)

    def mark_reachable(self) -> None:
        """Another request got through: do not wait any longer, unless the server asked for it."""
        if self._has_no_answer:
            self.not_before_s = float("-inf")

    def put(self, body: bytes, runs: int) -> None:
        """Queue a request for ``runs`` executions; drop the oldest to make room."""
        body, encoding = encoded_body(self._endpoint, body)
        self._queue.append(_Queued(body, encoding, runs))
        self._queued_bytes += len(body)
        while self._queued_bytes > self._budget_bytes:
            self._drops.add(QUEUE_FULL, self._pop_oldest().runs)

    def send(self, until_s: float) -> None:
        """Send what is queued, until ``until_s`` or the first answer that asks for patience."""
        while self._queue:
            now_s = self._monotonic_s()
            if now_s >= until_s or now_s < self.not_before_s:
                return
            self._try_oldest(self._endpoint.timeout_s)

    def send_before(self, deadline_s: float) -> None:
        """Send at the end of the process: no try outlives ``deadline_s``."""
        self.not_before_s = float("-inf")
        while self._queue and self.not_before_s <= self._monotonic_s() < deadline_s:
            self._try_oldest(deadline_s - self._monotonic_s())

    def give_up(self, reason: str) -> None:
        runs = sum(request.runs for request in self._queue)
        self._queue.clear()
        self._queued_bytes = 0
        self._drops.add(reason, runs)
        if runs:
            log_loss(self._endpoint.url, runs)

    def close(self) -> None:
        self._client.close()

    def _try_oldest(self, timeout_s: float) -> None:
        oldest = self._queue[0]
        response = self._client.post(
            oldest.body,
            content_type=PROTOBUF,
            content_encoding=oldest.encoding,
            timeout_s=timeout_s,
        )
        self._on_answer(response)
        if response.is_success:
            self._pop_oldest()
            self._record_success(response, oldest.runs)
        elif is_retryable(response):
            self._wait(response)
        else:
            self._pop_oldest()
            self._drops.add(REJECTED, oldest.runs)
            self._log_once(response, log_rejection)

    def _pop_oldest(self) -> _Queued:
        oldest = self._queue.popleft()
        self._queued_bytes -= len(oldest.body)
        return oldest

    def _record_success(self, response: Response, runs: int) -> None:
        if self._failures:
            log_recovery(self._endpoint.url, response, self._what)
        self._failures = 0
        self._has_no_answer = False
        self._logged.clear()
        rejected = min(_rejected_spans(response.body), runs)
        self._drops.add(REJECTED, rejected)

    def _wait(self, response: Response) -> None:
        self._failures += 1
        self._has_no_answer = response.status == NO_ANSWER
        delay_s = retry_delay_s(self._failures, response.retry_after_s, self._rng)
        self.not_before_s = self._monotonic_s() + delay_s
        self._log_once(response, log_retry)
        _LOG.debug("%s: %s", without_secrets(self._endpoint.url), response.error)

    def _log_once(self, response: Response, log: Callable[[str, Response, str], None]) -> None:
        if response.status not in self._logged:
            self._logged.add(response.status)
            log(self._endpoint.url, response, self._what)


_not_before_s: dict[str, float] = {}
"""When (monotonic) each address that refused metrics for its limits takes more."""


def post_metrics(
    client: Client,
    settings: ClientSettings,
    body: bytes,
    timeout_s: float,
    *,
    is_last: bool = False,
) -> Response:
    """Send a request of metrics once: heartbeats and histograms are never queued or retried. Once a
    server's limits are reached, nothing is sent before the time that it names, unless ``is_last``:
    it says how the rank ended."""
    url = settings.metrics.url
    left_s = _not_before_s.get(url, -math.inf) - time.monotonic()
    if left_s > 0.0 and not is_last:
        return Response(TOO_MANY_REQUESTS, {"retry-after": str(math.ceil(left_s))})
    body, encoding = encoded_body(settings.metrics, body)
    response = client.post(
        body, content_type=PROTOBUF, content_encoding=encoding, timeout_s=timeout_s
    )
    if response.status == TOO_MANY_REQUESTS:
        _not_before_s[url] = time.monotonic() + (response.retry_after_s or 0.0)
    return response


def log_recovery(url: str, _: Response, what: str = "spans") -> None:
    _LOG.info("%s accepts %s again", without_secrets(url), what)


def log_retry(url: str, response: Response, what: str = "spans") -> None:
    _log(url, response, f"{what} are kept and retried; 'otel-straggler doctor' says what is wrong")


def log_rejection(url: str, response: Response, what: str = "spans") -> None:
    _log(url, response, f"{what} are refused for good, and dropped")


def log_loss(url: str, runs: int) -> None:
    _LOG.warning(
        "otel-straggler: %s: %d records were not sent before the end", without_secrets(url), runs
    )


def _log(url: str, response: Response, what: str) -> None:
    why = response.error or message_of(response.body)
    detail = f" ({why})" if why else ""
    answer = f"answered {response.status}{detail}" if response.status else "did not answer"
    _LOG.warning("otel-straggler: %s %s: %s.", without_secrets(url), answer, what)


def _rejected_spans(body: bytes) -> int:
    if not body:
        return 0
    try:
        return int(ExportTraceServiceResponse.FromString(body).partial_success.rejected_spans)
    except DecodeError:  # a proxy's idea of success
        return 0

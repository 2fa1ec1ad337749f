"""Requests on their way to the scorer: decoded, bounded by the bytes that wait, counted."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

from otel_straggler.errors import InputError
from otel_straggler.otlp.answers import Signal
from otel_straggler.otlp.decode_metrics import MetricDecoder
from otel_straggler.otlp.decode_spans import SpanDecoder
from otel_straggler.otlp.identity import Aliases, Resources
from otel_straggler.otlp.metric_rules import DecodedMetrics
from otel_straggler.otlp.span_rules import DecodedSpans, SpanNames

ContentType = Literal["application/x-protobuf", "application/json"]
PROTOBUF: Final[ContentType] = "application/x-protobuf"
JSON: Final[ContentType] = "application/json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One OTLP request: its decompressed body, and ``raw_body`` as received, in
    ``content_encoding``, which is empty or "gzip"."""

    signal: Signal
    content_type: ContentType
    body: bytes
    raw_body: bytes
    content_encoding: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The result of a request. A client retries ``busy`` and ``stopping`` only.

    Attributes:
        rejected: spans or points that were refused: a partial success.
    """

    status: Literal["ok", "malformed", "busy", "stopping"]
    rejected: int = 0
    message: str = ""
    retry_after_s: int = 1


_KEPT_FREE: Final = 8
"""One part in so many is reserved for metrics: a rank whose heartbeats found no room in a flood of
spans would be lost."""


class ByteBudget:
    """A budget of bytes, shared by threads.

    >>> budget = ByteBudget(16)
    >>> budget.reserve(8, "traces"), budget.reserve(8, "traces"), budget.reserve(8, "metrics")
    (True, False, True)
    """

    def __init__(self, limit_bytes: int) -> None:
        self._limit = limit_bytes
        self._waiting = 0
        self._lock = threading.Lock()

    @property
    def waiting_bytes(self) -> int:
        return self._waiting

    def is_full(self, signal: Signal) -> bool:
        return self._waiting >= self._limit_of(signal)

    def reserve(self, size: int, signal: Signal) -> bool:
        """Reserve ``size`` bytes; one request always fits into an empty budget."""
        with self._lock:
            if self._waiting and self._waiting + size > self._limit_of(signal):
                return False
            self._waiting += size
            return True

    def release(self, size: int) -> None:
        with self._lock:
            self._waiting -= size

    def _limit_of(self, signal: Signal) -> int:
        return self._limit if signal == "metrics" else self._limit - self._limit // _KEPT_FREE


_JSON_COST: Final = 4
_BUSY = "too much waits to be scored; send it again later"


@dataclass(frozen=True, slots=True, kw_only=True)
class IntakeCounts:
    """Requests by (signal, answer), spans by outcome, data points by use, and refused GPU times."""

    answers: dict[tuple[str, str], int]
    outcomes: dict[str, int]
    points: dict[str, int]
    refused_gpu_times: int = 0


class Intake:
    """The service behind all receivers. A request is answered "ok" once its rows are with the
    worker. Fast and thread-safe.

    Args:
        ingest: hands spans or metrics to the worker, which releases their bytes. Called from
            several threads; must not wait.
        forward: called with each ingested request, and its spans if it has any.
        budget: of bytes that may wait for the worker.
    """

    def __init__(
        self,
        ingest: Callable[[DecodedSpans | DecodedMetrics, int], None],
        forward: Callable[[Request, DecodedSpans | None], None],
        budget: ByteBudget,
        aliases: Aliases | None = None,
        names: SpanNames | None = None,
    ) -> None:
        self.ingest = ingest
        self.forward = forward
        self._budget = budget
        resources = Resources(aliases or Aliases())
        self._spans = SpanDecoder(aliases, names, resources=resources)
        self._metrics = MetricDecoder(aliases, resources=resources)
        self._lock = threading.Lock()
        self._is_open = True
        self._answers: Counter[tuple[str, str]] = Counter()
        self._outcomes: Counter[str] = Counter()
        self._points: Counter[str] = Counter()
        self._refused_gpu_times = 0

    def close(self) -> None:
        """Refuse everything from now on."""
        self._is_open = False

    def is_busy(self, signal: Signal) -> bool:
        """Whether a request would be refused now; asked before a body is read."""
        return not self._is_open or self._budget.is_full(signal)

    def handle(self, request: Request, max_slow_bytes: int | None = None) -> Answer:
        """Ingest one request; never raises for what is in it.

        Raises:
            SlowError: it has more than ``max_slow_bytes``, and is slow to decode.
        """
        answer = self._handle(request, max_slow_bytes)
        self.count_answers({(request.signal, answer.status): 1})
        return answer

    def count_answers(self, answers: dict[tuple[str, str], int]) -> None:
        with self._lock:
            self._answers.update(answers)

    def counts(self) -> IntakeCounts:
        with self._lock:
            return IntakeCounts(
                answers=dict(self._answers),
                outcomes=dict(self._outcomes),
                points=dict(self._points),
                refused_gpu_times=self._refused_gpu_times,
            )

    def _handle(self, request: Request, max_slow_bytes: int | None) -> Answer:
        if not self._is_open:
            return Answer(status="stopping", message="the collector is shutting down")
        size = _cost_bytes(request)
        if not self._budget.reserve(size, request.signal):
            return Answer(status="busy", message=_BUSY)
        try:
            answer, spans = self._decode_and_ingest(request, size, max_slow_bytes)
        except InputError as error:
            self._budget.release(size)
            return Answer(status="malformed", message=str(error))
        except BaseException:
            self._budget.release(size)
            raise
        self.forward(request, spans)
        return answer

    def _decode_and_ingest(
        self, request: Request, size: int, max_slow_bytes: int | None
    ) -> tuple[Answer, DecodedSpans | None]:
        body, is_json = request.body, request.content_type == JSON
        if request.signal == "traces":
            decode = self._spans.decode_json if is_json else self._spans.decode
            spans = decode(body, max_slow_bytes)
            with self._lock:
                self._outcomes.update(spans.outcomes)
                self._refused_gpu_times += spans.refused_gpu_times
            self.ingest(spans, size)
            return _partial(spans.rejected, "spans"), spans
        if request.signal == "metrics":
            read = self._metrics.decode_json if is_json else self._metrics.decode
            metrics = read(body, max_slow_bytes)
            with self._lock:
                self._points.update(metrics.points)
            self.ingest(metrics, size)
            return _partial(metrics.rejected, "data points"), None
        self._budget.release(size)
        return Answer(status="ok"), None


def _cost_bytes(request: Request) -> int:
    """Bytes that a request takes until it is scored: of JSON, a multiple of its own."""
    return len(request.body) * (_JSON_COST if request.content_type == JSON else 1)


def _partial(rejected: dict[str, int], what: str) -> Answer:
    if not rejected:
        return Answer(status="ok")
    reasons = ", ".join(f"{reason}: {count}" for reason, count in sorted(rejected.items()))
    return Answer(
        status="ok", rejected=sum(rejected.values()), message=f"malformed {what}: {reasons}"
    )

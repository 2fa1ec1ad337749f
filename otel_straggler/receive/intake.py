"""What every OTLP receiver does with a request, whatever carried it: admit, decode, hand over."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass
from typing import Protocol

from otel_straggler.errors import InputError
from otel_straggler.receive.admission import Admission
from otel_straggler.wire.answers import Code, Signal
from otel_straggler.wire.decode_metrics import DecodedMetrics, MetricDecoder
from otel_straggler.wire.decode_spans import DecodedSpans, SpanDecoder
from otel_straggler.wire.identity import Aliases

RETRY_AFTER_S = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Original:
    """A request as it came, to be passed on untouched."""

    signal: Signal
    body: bytes
    content_type: str
    content_encoding: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepted:
    """The answer to a request that was taken: how many items were not, and why."""

    rejected: int = 0
    message: str = ""


class Refused(Exception):  # noqa: N818 - an answer, not an error of ours
    """Raised for a request that was not taken at all."""

    def __init__(self, code: Code, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class Consumer(Protocol):
    """Takes what was received. Called from several threads; must not wait."""

    def take_spans(self, spans: DecodedSpans, size: int) -> None:
        """Spans to score; ``size`` bytes are reserved until the consumer releases them."""

    def take_metrics(self, metrics: DecodedMetrics, size: int) -> None:
        """Signs of life; ``size`` bytes are reserved until the consumer releases them."""

    def take_original(self, original: Original) -> None:
        """The request as it came, after it was taken."""


class Intake:
    """Admits, decodes, hands over and counts. One for all receivers of a collector."""

    def __init__(
        self, consumer: Consumer, admission: Admission, aliases: Aliases | None = None
    ) -> None:
        self._consumer = consumer
        self._admission = admission
        self._spans = SpanDecoder(aliases)
        self._metrics = MetricDecoder(aliases)
        self._lock = threading.Lock()
        self._is_open = True
        self._answers: Counter[tuple[str, str, str]] = Counter()
        self._fates: Counter[str] = Counter()
        self._points: Counter[str] = Counter()

    def close(self) -> None:
        """Refuse everything from now on: the collector is about to stop."""
        self._is_open = False

    @property
    def is_ready(self) -> bool:
        return self._is_open and not self._admission.is_full

    def receive(
        self, signal: Signal, payload: bytes, *, is_json: bool, original: Original
    ) -> Accepted:
        """Take one request of ``payload`` bytes, already decompressed.

        Raises:
            Refused: not taken; nothing of it was kept.
        """
        if not self._is_open:
            raise Refused(Code.UNAVAILABLE, "the collector is shutting down")
        if not self._admission.reserve(len(payload)):
            raise Refused(Code.UNAVAILABLE, "too much waits to be scored; send it again later")
        try:
            accepted = self._hand_over(signal, payload, is_json=is_json)
        except InputError as error:
            self._admission.release(len(payload))
            raise Refused(Code.INVALID_ARGUMENT, str(error)) from error
        except BaseException:
            self._admission.release(len(payload))
            raise
        self._consumer.take_original(original)
        return accepted

    def _hand_over(self, signal: Signal, payload: bytes, *, is_json: bool) -> Accepted:
        size = len(payload)
        if signal == "traces":
            decoder = self._spans
            spans = decoder.decode_json(payload) if is_json else decoder.decode(payload)
            self._consumer.take_spans(spans, size)
            with self._lock:
                self._fates.update(spans.fates)
            return _partial(spans)
        if signal == "metrics":
            reader = self._metrics
            metrics = reader.decode_json(payload) if is_json else reader.decode(payload)
            self._consumer.take_metrics(metrics, size)
            with self._lock:
                self._points.update(metrics.points)
            return Accepted()
        self._admission.release(size)
        return Accepted()

    def count_answer(self, signal: str, transport: str, answer: str) -> None:
        """``answer`` as it went out: an HTTP status or the name of a gRPC code."""
        with self._lock:
            self._answers[signal, transport, answer] += 1

    def counts(self) -> IntakeCounts:
        """What was received so far."""
        with self._lock:
            return IntakeCounts(
                answers=dict(self._answers), fates=dict(self._fates), points=dict(self._points)
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class IntakeCounts:
    """Counters since the start.

    Attributes:
        answers: requests by (signal, transport, answer).
        fates: spans by fate; see ``decode_spans``.
        points: data points by use.
    """

    answers: dict[tuple[str, str, str], int]
    fates: dict[str, int]
    points: dict[str, int]


def _partial(spans: DecodedSpans) -> Accepted:
    rejected = spans.rejected
    if not rejected:
        return Accepted()
    reasons = ", ".join(f"{reason}: {count}" for reason, count in sorted(rejected.items()))
    return Accepted(rejected=sum(rejected.values()), message=f"malformed spans: {reasons}")

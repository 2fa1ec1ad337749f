"""Requests on their way to the scorer: decoded, bounded by the bytes that wait, counted."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import dataclass, replace
from typing import Final, Literal, TypeAlias

from otel_straggler.collector.access.quotas import QuotaError, Quotas, Rank, Usage
from otel_straggler.collector.access.roles import ANYBODY, Principal
from otel_straggler.collector.history.spool import Record, Spool
from otel_straggler.collector.runs.admission import Refusal
from otel_straggler.collector.runs.contents import Content, count_of, senders_of, without
from otel_straggler.collector.runs.places import RETRY_AFTER_S
from otel_straggler.errors import InputError
from otel_straggler.model.rank import Source
from otel_straggler.otlp.answers import Signal
from otel_straggler.otlp.decode_logs import decode_launch_events, launches_of
from otel_straggler.otlp.decode_metrics import MetricDecoder
from otel_straggler.otlp.decode_spans import SpanDecoder
from otel_straggler.otlp.identity import Aliases, Resources
from otel_straggler.otlp.metric_rules import DecodedMetrics
from otel_straggler.otlp.span_rules import DecodedSpans, SpanNames

ContentType = Literal["application/x-protobuf", "application/json"]
AnswerStatus = Literal["ok", "malformed", "busy", "stopping", "limited", "forbidden"]
PROTOBUF: Final[ContentType] = "application/x-protobuf"
JSON: Final[ContentType] = "application/json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One OTLP request: its decompressed body, ``raw_body`` as received, in ``content_encoding``,
    which is empty or "gzip", and who ``sender`` is."""

    signal: Signal
    content_type: ContentType
    body: bytes
    raw_body: bytes
    content_encoding: str
    sender: Principal = ANYBODY


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The result of a request. A client retries ``busy``, ``stopping`` and ``limited`` only.

    Attributes:
        status: ``busy``: the collector does not keep up; ``limited``: its sender is beyond a limit.
        rejected: spans or points that were refused: a partial success.
        stored: done once the request is on the disk, and not to be acknowledged before; None: at
            once.
        reason, run_id: of one that is forbidden, for the audit trail; run_id: that its sender may
            not send.
    """

    status: AnswerStatus
    rejected: int = 0
    message: str = ""
    retry_after_s: int = 1
    stored: Future[None] | None = None
    reason: str = ""
    run_id: str = ""


STORED_WITHIN_S: Final = 30.0
NOT_STORED: Final = "the disk of the spool does not respond; send it again later"


def is_stored(stored: Future[None]) -> bool:
    """Wait until a request is on the disk; False if that takes too long."""
    try:
        stored.result(STORED_WITHIN_S)
    except FutureTimeoutError:
        return False
    return True


async def is_stored_soon(stored: Future[None]) -> bool:
    """The same on an event loop."""
    try:
        await asyncio.wait_for(asyncio.shield(asyncio.wrap_future(stored)), STORED_WITHIN_S)
    except asyncio.TimeoutError:
        return False
    return True


_KINDS: Final[tuple[tuple[Signal, ContentType], ...]] = (
    ("traces", PROTOBUF),
    ("traces", JSON),
    ("metrics", PROTOBUF),
    ("metrics", JSON),
    ("logs", PROTOBUF),
    ("logs", JSON),
)
"""Kinds of records in the spool, by number."""
_REPLAY_WAIT_S: Final = 0.005
"""For room, while requests of the spool are replayed."""
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


Beyond: TypeAlias = tuple[int, str]
"""Spans or points beyond a limit, and why."""
_NOTHING: Final = (0, "")
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
        quotas: of grants.
        spool: stores each request before it is acknowledged.
        claim: takes places for the senders of a request, before it is acknowledged.
    """

    def __init__(
        self,
        ingest: Callable[..., None],
        forward: Callable[[Request, DecodedSpans | None], None],
        budget: ByteBudget,
        aliases: Aliases | None = None,
        names: SpanNames | None = None,
        quotas: Quotas | None = None,
        spool: Spool | None = None,
        claim: Callable[[Content], Refusal] = lambda _: Refusal(),
    ) -> None:
        self._spool = spool
        self._claim = claim
        self._order = threading.Lock()
        self.ingest = ingest
        self.forward = forward
        self._budget = budget
        self._quotas = quotas or Quotas(frozenset)
        resources = Resources(aliases or Aliases())
        self._spans = SpanDecoder(aliases, names, resources=resources)
        self._metrics = MetricDecoder(aliases, resources=resources)
        self._lock = threading.Lock()
        self.is_open = True
        self._answers: Counter[tuple[str, str]] = Counter()
        self._outcomes: Counter[str] = Counter()
        self._points: Counter[str] = Counter()
        self._refused_gpu_times = 0

    def close(self) -> None:
        """Refuse everything from now on."""
        self.is_open = False

    def is_busy(self, signal: Signal) -> bool:
        """Whether a request would be refused now; asked before a body is read."""
        return not self.is_open or self._budget.is_full(signal)

    def handle(self, request: Request, max_slow_bytes: int | None = None) -> Answer:
        """Ingest one request; never raises for what is in it.

        Raises:
            SlowError: it has more than ``max_slow_bytes``, and is slow to decode.
        """
        answer = self._handle(request, max_slow_bytes)
        self.count_answers({(request.signal, answer.status): 1})
        return answer

    def replay(self, records: Iterable[Record]) -> int:
        """Ingest requests of the spool, in order, without forwarding them again; returns how many.
        Waits for room."""
        assert self._spool is not None
        count = 0
        for record in records:
            signal, content_type = _KINDS[record.kind % len(_KINDS)]
            size = len(record.body)
            while not self._budget.reserve(size, signal):
                time.sleep(_REPLAY_WAIT_S)
            try:
                content = self._decode(signal, content_type, record.body)
            except InputError as error:
                self._budget.release(size)
                self._spool.count("rejected", str(error))
                continue
            self.ingest(content, size, record.sequence)
            count += 1
        return count

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
        if not self.is_open:
            return Answer(status="stopping", message="the collector is shutting down")
        size = _cost_bytes(request)
        if not self._budget.reserve(size, request.signal):
            return Answer(status="busy", message=_BUSY)
        try:
            answer, spans = self._decode_and_ingest(request, size, max_slow_bytes)
        except InputError as error:
            self._budget.release(size)
            return Answer(status="malformed", message=str(error))
        except ForeignRunError as error:
            self._budget.release(size)
            return Answer(status="forbidden", message=str(error), reason="run", run_id=error.run_id)
        except QuotaError as error:
            self._budget.release(size)
            if error.retry_after_s is None:
                return Answer(status="forbidden", message=str(error), reason=error.limit)
            return Answer(status="limited", message=str(error), retry_after_s=error.retry_after_s)
        except BaseException:
            self._budget.release(size)
            raise
        self.forward(request, spans)
        return answer

    def _decode_and_ingest(
        self, request: Request, size: int, max_slow_bytes: int | None
    ) -> tuple[Answer, DecodedSpans | None]:
        content = self._decode(request.signal, request.content_type, request.body, max_slow_bytes)
        if request.signal == "logs" and not content.run_ids():
            self._budget.release(size)  # nothing of a launcher
            return Answer(status="ok"), None
        self._check(request, content)
        content, refused = self._with_places(content)
        stored = self._hand_over(request, content, size)
        spans = content if isinstance(content, DecodedSpans) else None
        what = "data points" if spans is None else "spans"
        answer = replace(_partial(content.rejected, refused, what), stored=stored)
        return answer, spans

    def _check(self, request: Request, content: DecodedSpans | DecodedMetrics) -> None:
        """ForeignRunError or QuotaError if the sender may not send this."""
        check_runs(request.sender, content.run_ids)
        self._quotas.spend(request.sender, usage_of(content, len(request.body)))

    def _with_places(self, content: Content) -> tuple[Content, Beyond]:
        """A request without what is beyond the limits of runs and groups, and what that was.

        Raises:
            QuotaError: nothing is left of it.
        """
        refusal = self._claim(content)
        if not refusal.senders:
            return content, _NOTHING
        left = without(content, refusal.senders)
        n_left = count_of(left)
        if not n_left:
            raise QuotaError(refusal.why, "runs", RETRY_AFTER_S)
        return left, (max(count_of(content) - n_left, 1), refusal.why)

    def _decode(
        self,
        signal: Signal,
        content_type: ContentType,
        body: bytes,
        max_slow_bytes: int | None = None,
    ) -> DecodedSpans | DecodedMetrics:
        is_json = content_type == JSON
        if signal == "traces":
            decode = self._spans.decode_json if is_json else self._spans.decode
            spans = decode(body, max_slow_bytes)
            with self._lock:
                self._outcomes.update(spans.outcomes)
                self._refused_gpu_times += spans.refused_gpu_times
            return spans
        if signal == "logs":
            return launches_of(decode_launch_events(body, is_json=is_json))
        read = self._metrics.decode_json if is_json else self._metrics.decode
        metrics = read(body, max_slow_bytes)
        with self._lock:
            self._points.update(metrics.points)
        return metrics

    def _hand_over(
        self, request: Request, content: DecodedSpans | DecodedMetrics, size: int
    ) -> Future[None] | None:
        """To the worker, in the order of the spool, so that what it has processed is a part of the
        spool from its beginning."""
        if self._spool is None:
            self.ingest(content, size)
            return None
        kind = _KINDS.index((request.signal, request.content_type))
        with self._order:
            sequence, stored = self._spool.append(kind, request.body)
            self.ingest(content, size, sequence)
        return stored


class ForeignRunError(Exception):
    """Raised for a run that the sender's grant does not cover."""

    def __init__(self, message: str, run_id: str) -> None:
        super().__init__(message)
        self.run_id = run_id


def usage_of(content: DecodedSpans | DecodedMetrics, body_bytes: int) -> Usage:
    """What a request counts for the limits of its sender."""

    def ranks(sources: Iterable[Source]) -> set[Rank]:
        return {(source.run_id, source.group, source.rank) for source in sources}

    if isinstance(content, DecodedSpans):
        return Usage(
            run_ids=content.run_ids,
            ranks=lambda: ranks(senders_of(content)),
            spans=sum(content.outcomes.values()),
            body_bytes=body_bytes,
        )
    ended = [beat.source for beat in content.heartbeats if beat.finished_at_s is not None]
    return Usage(
        run_ids=content.run_ids,
        ranks=lambda: ranks(senders_of(content)),
        ended=lambda: ranks(ended),
        body_bytes=body_bytes,
    )


def check_runs(sender: Principal, run_ids: Callable[[], set[str]]) -> None:
    """ForeignRunError if the sender may not send for a run; ``run_ids`` is asked only for a sender
    with limits."""
    foreign = [run_id for run_id in run_ids() if not sender.covers(run_id)] if sender.runs else []
    if foreign:
        run_id = min(foreign)
        msg = f"{sender.name} may send runs named {sender.runs}..., and not {run_id[:100]!r}"
        raise ForeignRunError(msg, run_id)


def _cost_bytes(request: Request) -> int:
    """Bytes that a request takes until it is scored: of JSON, a multiple of its own."""
    return len(request.body) * (_JSON_COST if request.content_type == JSON else 1)


def _partial(malformed: dict[str, int], beyond: Beyond, what: str) -> Answer:
    n_beyond, why = beyond
    reasons = ", ".join(f"{reason}: {count}" for reason, count in sorted(malformed.items()))
    messages = [f"malformed {what}: {reasons}"] * bool(malformed) + [why] * bool(n_beyond)
    return Answer(
        status="ok", rejected=sum(malformed.values()) + n_beyond, message="; ".join(messages)
    )

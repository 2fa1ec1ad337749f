"""The fallback packer: records of the recorder in Python to encoded requests.

Spans are as the native packer encodes them, but nothing is folded: above the span budget whole
steps are left out and counted, the same steps on all ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from otel_straggler import semconv
from otel_straggler.client.packing import Request
from otel_straggler.client.recorder import (
    NO_SPAN,
    Context,
    Record,
    RecordingSession,
    SectionTimer,
    WorkSize,
    is_failure,
)
from otel_straggler.client.sender import SPAN_BUDGET
from otel_straggler.config import ClientSettings
from otel_straggler.otlp.encode_spans import SpanGroup, encode_request, encode_resource, encode_rows
from otel_straggler.otlp.ids import (
    WINDOW_NS,
    Ids,
    SpanIds,
    is_sampled,
    root_span_id,
    step_trace_id,
    window_trace_id,
)
from otel_straggler.semconv import AttributeValue

_MAX_SESSIONS = 8


class SectionCounts:
    """Numbers the executions of every section, from 0 in each session.

    Sinks that see the same executions give them the same numbers, so a collector that gets one from
    both counts it once. An execution of an earlier session may still end after a new one has begun,
    so the counts of the last few are kept.
    """

    def __init__(self) -> None:
        self._session: RecordingSession | None = None
        self._counts: dict[str, int] = {}
        self._of_sessions: dict[RecordingSession, dict[str, int]] = {}

    def next(self, session: RecordingSession, name: str, runs: int = 1) -> int:
        """The number of this execution, from 0."""
        if session is not self._session:
            self._session = session
            self._counts = self._of_sessions.setdefault(session, {})
            while len(self._of_sessions) > _MAX_SESSIONS:
                del self._of_sessions[next(iter(self._of_sessions))]
        number = self._counts.get(name, 0)
        self._counts[name] = number + runs
        return number


MAX_SPANS = 512
MAX_BYTES = 1_000_000
_SECOND_NS = 1_000_000_000
_NO_WORK = WorkSize()


_Key = tuple[SectionTimer, str, str, bool, bool, bool, bool, bool, bool, bool, bool]
"""The shape of a span; spans of one shape have one layout on the wire: section, phase, enclosing
section, whether it is a step's own, and is scored, has a step, parent, microbatch and tokens,
waited in collectives, and has failed."""

_Row = tuple[int, int, int, int, int, int, int, int, int, int, bytes]
"""One span, still as numbers: place, span, parent, start, end, step, seq, microbatch, tokens, wait,
trace id. A plain tuple: there is one per span."""


class SpanPacker:
    """Encodes drained records: requests of at most 512 spans and 1 MB, in order of their ends."""

    def __init__(
        self,
        settings: ClientSettings,
        resource: Callable[[RecordingSession], Mapping[str, AttributeValue]],
        generation: int,
        ids: SpanIds | None = None,
    ) -> None:
        self._settings = settings
        self._resource = resource
        self._generation = generation
        self._ids = ids or SpanIds()
        self._seq = SectionCounts()
        self._window = (-1, b"")
        self._budget = _StepBudget(settings.span_budget)
        self._whole_steps = _WholeSteps()

    @property
    def folded_runs(self) -> dict[str, int]:
        return {}

    def losses(self) -> dict[str, int]:
        return {SPAN_BUDGET: self._budget.left_out} if self._budget.left_out else {}

    def pack(
        self, records: Sequence[Record], offset_ns: int, sample_every: int = 1
    ) -> list[Request]:
        rows: list[bytes] = []
        sessions: list[RecordingSession] = []
        groups: dict[_Key, list[_Row]] = {}
        for record, trace_id in self._chosen(records, offset_ns, sample_every):
            key, row = self._row(record, trace_id, len(rows))
            groups.setdefault(key, []).append(row)
            sessions.append(record[0][3].session)
            rows.append(b"")
        for key, members in groups.items():
            pieces = encode_rows(_columns(key, members, offset_ns, self._ids))
            for member, piece in zip(members, pieces, strict=True):
                rows[member[0]] = piece
        return self._requests(rows, sessions)

    def _chosen(
        self, records: Sequence[Record], offset_ns: int, sample_every: int
    ) -> Iterator[tuple[Record, bytes]]:
        for record in records:
            context = record[0][3]
            self._whole_steps.add(record)
            if context.session.generation != self._generation:
                continue
            trace_id = context.trace_id or self._trace_id(context, record[0][2] + offset_ns)
            if not is_sampled(trace_id, sample_every):
                continue
            if self._budget.admits(trace_id, record[2]):
                yield record, trace_id
            else:
                self._seq.next(context.session, record[0][0].name)

    def _row(self, record: Record, trace_id: bytes, index: int) -> tuple[_Key, _Row]:
        (timer, span, start_ns, context, work), enclosing, end_ns, error, waited_ns = record
        step = context.step
        is_step_span = span == context.step_span
        if enclosing is None:
            parent, around = NO_SPAN if is_step_span else context.step_span, ""
        else:
            parent, around = enclosing[1], enclosing[0].name
        microbatch, tokens = work or _NO_WORK
        has_parent = is_step_span or parent != NO_SPAN
        waited_ns = min(waited_ns, end_ns - start_ns)
        key = (
            timer,
            context.phase,
            around,
            is_step_span,
            is_step_span and self._whole_steps.is_scored,
            step is not None,
            has_parent,
            microbatch >= 0,
            tokens >= 0,
            waited_ns > 0,
            error is not None and is_failure(error),
        )
        row = (
            index,
            span,
            parent,
            start_ns,
            end_ns if end_ns > start_ns else start_ns + 1,
            -1 if step is None else step,
            -1 if is_step_span else self._seq.next(context.session, timer.name),
            microbatch,
            tokens,
            waited_ns,
            trace_id,
        )
        return key, row

    def _trace_id(self, context: Context, start_ns: int) -> bytes:
        run = self._settings
        if context.step is not None:
            context.trace_id = step_trace_id(run.run_id, run.attempt, run.group, context.step)
            return context.trace_id
        window = start_ns // WINDOW_NS
        if window != self._window[0]:
            trace_id = window_trace_id(run.run_id, run.attempt, run.group, run.rank, start_ns)
            self._window = (window, trace_id)
        return self._window[1]

    def _requests(self, rows: list[bytes], sessions: list[RecordingSession]) -> list[Request]:
        requests: list[Request] = []
        first = 0
        size = 0
        for at, row in enumerate(rows):
            is_full = at - first == MAX_SPANS or size + len(row) > MAX_BYTES
            if at > first and (is_full or sessions[at] is not sessions[first]):
                requests.append(self._request(rows[first:at], sessions[first]))
                first, size = at, 0
            size += len(row)
        if rows:
            requests.append(self._request(rows[first:], sessions[first]))
        return requests

    def _request(self, rows: list[bytes], session: RecordingSession) -> Request:
        resource = encode_resource(self._resource(session))
        return Request(encode_request(resource, rows), len(rows), len(rows))


class _WholeSteps:
    """Which steps are scored as one section: those in which no section ended, but not the first
    of them, because a loop may be marked from its second step on. Sections come before their step.

    Attributes:
        is_scored: the record added last is such a step.
    """

    def __init__(self) -> None:
        self.is_scored = False
        self._sectioned = NO_SPAN
        self._was_whole = False

    def add(self, record: Record) -> None:
        (_, span, _, context, _), enclosing, *_ = record
        self.is_scored = False
        if span != context.step_span:
            if enclosing is None:
                self._sectioned = max(self._sectioned, context.step_span)
        else:
            is_whole = span > self._sectioned
            self.is_scored, self._was_whole = is_whole and self._was_whole, is_whole


class _StepBudget:
    """Takes one step in so many (a power of two) that the spans fit into the budget, decided each
    second of the records' own clock: ranks take the same steps, unless one has room for fewer."""

    def __init__(self, spans_per_s: int) -> None:
        self._spans_per_s = spans_per_s
        self._sample_every = 1
        self._began_ns = 0
        self._seen = 0
        self.left_out = 0

    def admits(self, trace_id: bytes, end_ns: int) -> bool:
        if not self._spans_per_s:
            return True
        if not 0 <= end_ns - self._began_ns < _SECOND_NS:
            self._began_ns, self._seen, self._sample_every = end_ns, 0, self._needed()
        self._seen += 1
        if self._seen > self._spans_per_s * self._sample_every:
            self._sample_every = self._needed()
        if is_sampled(trace_id, self._sample_every):
            return True
        self.left_out += 1
        return False

    def _needed(self) -> int:
        return 1 << max(0, -(-self._seen // self._spans_per_s) - 1).bit_length()


def _columns(key: _Key, members: list[_Row], offset_ns: int, ids: SpanIds) -> SpanGroup:
    (
        timer, phase, around, is_step_span, is_scored, has_step, has_parent, has_batch, has_tokens,
        has_waited, failed,
    ) = key  # fmt: skip
    _, span, parent, start, end, step, seq, microbatch, tokens, waits, traces = zip(
        *members, strict=True
    )
    candidates = {
        semconv.STEP: (has_step, step),
        semconv.SEQ: (not is_step_span, seq),
        semconv.MICROBATCH: (has_batch, microbatch),
        semconv.TOKENS: (has_tokens, tokens),
        semconv.COLLECTIVE_WAIT_TIME: (has_waited, waits),
    }
    parents: Ids | None = None
    if is_step_span:
        roots = b"".join(map(root_span_id, traces))
        parents = np.frombuffer(roots, np.dtype("<u8")).astype(np.uint64)
    elif has_parent:
        parents = ids.of(np.array(parent, np.uint64))
    return SpanGroup(
        name=timer.name,
        labels=_labels(timer, phase, around, (is_step_span, is_scored), has_waited=has_waited),
        numbers={k: np.array(c, np.int64) for k, (is_set, c) in candidates.items() if is_set},
        trace_ids=np.frombuffer(b"".join(traces), np.uint8).reshape(-1, 16),
        span_ids=ids.of(np.array(span, np.uint64)),
        parent_ids=parents,
        start_ns=np.array(start, np.int64) + offset_ns,
        end_ns=np.array(end, np.int64) + offset_ns,
        is_error=failed,
    )


def _labels(
    timer: SectionTimer,
    phase: str,
    around: str,
    step: tuple[bool, bool],
    *,
    has_waited: bool,
) -> tuple[tuple[str, str], ...]:
    """Text attributes: a step span is like a section, but it is none, unless it is scored."""
    labels: list[tuple[str, str]] = []
    is_step_span, is_scored = step
    if is_scored:
        labels.append((semconv.SECTION, semconv.STEP_SPAN))
    if not is_step_span:
        labels += [(semconv.SECTION, timer.name), (semconv.SECTION_KIND, timer.kind)]
        if around:
            labels.append((semconv.SECTION_PARENT, around))
    basis = semconv.COLLECTIVE_BASIS if has_waited else semconv.HOST_BASIS
    labels.append((semconv.TIME_BASIS, basis))
    if phase:
        labels.append((semconv.PHASE, phase))
    return tuple(labels)

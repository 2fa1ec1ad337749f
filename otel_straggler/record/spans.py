"""Records to encoded requests: numbers become ids, clocks become Unix time, runs get their seq."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from otel_straggler import semconv
from otel_straggler.config import ClientSettings
from otel_straggler.record.folding import Chosen, Fold, Folding
from otel_straggler.record.recorder import (
    NO_SPAN,
    Context,
    Epoch,
    Record,
    SectionTimer,
    WorkSize,
    is_failure,
)
from otel_straggler.record.sequence import SectionCounts
from otel_straggler.wire.encode_spans import (
    AttributeValue,
    SpanGroup,
    encode_request,
    encode_resource,
    encode_rows,
    with_octets,
)
from otel_straggler.wire.folded_spans import write_sketch
from otel_straggler.wire.ids import (
    WINDOW_NS,
    Ids,
    SpanIds,
    is_sampled,
    root_span_id,
    step_trace_id,
    window_trace_id,
)

MOST_SPANS = 512
MOST_BYTES = 1_000_000


_NO_WORK = WorkSize()
_SUMMARIES: dict[str, Callable[[list[int]], int]] = {
    semconv.FOLD_COUNT: len,
    semconv.FOLD_SUM: sum,
    semconv.FOLD_MIN: min,
    semconv.FOLD_MAX: max,
}


@dataclass(frozen=True, slots=True)
class Request:
    """An encoded request, how many spans it holds, and of how many runs they tell: a folded span
    tells of many."""

    body: bytes
    spans: int
    runs: int


class _Shape(NamedTuple):
    """Spans of one shape have one layout on the wire."""

    name: str
    kind: str
    phase: str
    enclosing: str
    is_step_span: bool
    has_step: bool
    has_parent: bool
    has_microbatch: bool
    has_tokens: bool
    is_error: bool


_Key = tuple[SectionTimer, str, str, bool, bool, bool, bool, bool, bool]
"""What decides the shape of a span, as it stands in a record."""

_Row = tuple[int, int, int, int, int, int, int, int, int, bytes]
"""One span, still as numbers: place, span, parent, start, end, step, seq, microbatch, tokens, trace
id. A plain tuple: there is one per span."""


class SpanPacker:
    """Turns drained records into requests of at most 512 spans and 1 MB, in order of their ends.

    Args:
        settings: identity, and the span budget.
        resource: resource attributes of an epoch.
        generation: records of another one belong to a session that was shut down.
    """

    def __init__(
        self,
        settings: ClientSettings,
        resource: Callable[[Epoch], Mapping[str, AttributeValue]],
        generation: int,
        ids: SpanIds | None = None,
    ) -> None:
        self._settings = settings
        self._resource = resource
        self._generation = generation
        self._ids = ids or SpanIds()
        self._seq = SectionCounts()
        self._window = (-1, b"")
        self._folding = Folding(settings.span_budget)

    @property
    def folded_runs(self) -> dict[str, int]:
        """Runs so far that went out in spans for several, by section."""
        return dict(self._folding.folded_runs)

    @property
    def bad_records(self) -> int:
        """None: tuples name what they are of."""
        return 0

    def pack(self, records: Sequence[Record], offset_ns: int, one_in: int = 1) -> list[Request]:
        """Encode ``records``.

        Args:
            records: of any epochs, in order.
            offset_ns: Unix time minus ``perf_counter_ns``.
            one_in: keep one step in so many.
        """
        found = self._folding.fold(self._chosen(records, offset_ns, one_in))
        rows: list[bytes] = [b""] * len(found)
        epochs: list[Epoch] = []
        runs = [1] * len(found)
        groups: dict[_Key, list[_Row]] = {}
        folds: dict[_Shape, list[tuple[_Row, list[int]]]] = {}
        for place, one in enumerate(found):
            if isinstance(one, Fold):
                epochs.append(one.records[0][0][3].epoch)
                shape, folded = self._folded_row(one, place)
                runs[place] = len(one.records)
                folds.setdefault(shape, []).append(folded)
            else:
                record, trace_id = one
                epochs.append(record[0][3].epoch)
                key, row = self._row(record, trace_id, place)
                members = groups.get(key)
                if members is None:
                    groups[key] = members = []
                members.append(row)
        for key, members in groups.items():
            pieces = encode_rows(self._columns(_shape(key), members, offset_ns))
            for member, piece in zip(members, pieces, strict=True):
                rows[member[0]] = piece
        for shape, of_shape in folds.items():
            for (row, _), piece in zip(
                of_shape, self._folded_spans(shape, of_shape, offset_ns), strict=True
            ):
                rows[row[0]] = piece
        return self._requests(rows, epochs, runs)

    def _chosen(self, records: Sequence[Record], offset_ns: int, one_in: int) -> list[Chosen]:
        chosen: list[Chosen] = []
        for record in records:
            context = record[0][3]
            if context.epoch.generation != self._generation:
                continue
            trace_id = context.trace_id or self._trace_id(context, record[0][2] + offset_ns)
            if one_in == 1 or is_sampled(trace_id, one_in):
                chosen.append((record, trace_id))
        return chosen

    def _row(self, record: Record, trace_id: bytes, place: int) -> tuple[_Key, _Row]:
        (timer, span, start_ns, context, work), enclosing, end_ns, error, _ = record
        step = context.step
        is_step_span = span == context.step_span
        if enclosing is None:
            parent, around = NO_SPAN if is_step_span else context.step_span, ""
        else:
            parent, around = enclosing[1], enclosing[0].name
            if around in self._folding.sections:  # that run has no span
                parent = context.step_span
        microbatch, tokens = work or _NO_WORK
        has_parent = is_step_span or parent != NO_SPAN
        key = (
            timer,
            context.phase,
            around,
            is_step_span,
            step is not None,
            has_parent,
            microbatch >= 0,
            tokens >= 0,
            error is not None and is_failure(error),
        )
        row = (
            place,
            span,
            parent,
            start_ns,
            end_ns if end_ns > start_ns else start_ns + 1,
            -1 if step is None else step,
            -1 if is_step_span else self._seq.next(context.epoch, timer.name),
            microbatch,
            tokens,
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

    def _columns(self, shape: _Shape, members: list[_Row], offset_ns: int) -> SpanGroup:
        _, span, parent, start, end, step, seq, microbatch, tokens, traces = zip(
            *members, strict=True
        )
        candidates = {
            semconv.STEP: (shape.has_step, step),
            semconv.SEQ: (not shape.is_step_span, seq),
            semconv.MICROBATCH: (shape.has_microbatch, microbatch),
            semconv.TOKENS: (shape.has_tokens, tokens),
        }
        return SpanGroup(
            name=shape.name,
            labels=_labels(shape),
            numbers={k: np.array(c, np.int64) for k, (is_told, c) in candidates.items() if is_told},
            trace_ids=np.frombuffer(b"".join(traces), np.uint8).reshape(-1, 16),
            span_ids=self._ids.of(np.array(span, np.uint64)),
            parent_ids=self._parents(shape, parent, traces),
            start_ns=np.array(start, np.int64) + offset_ns,
            end_ns=np.array(end, np.int64) + offset_ns,
            is_error=shape.is_error,
        )

    def _folded_row(self, fold: Fold, place: int) -> tuple[_Shape, tuple[_Row, list[int]]]:
        """The span for several runs, and how long they were."""
        (timer, span, _, context, work), enclosing, _, _, _ = fold.records[0]
        lengths_ns = fold.lengths_ns()
        shape = _Shape(
            name=timer.name,
            kind=timer.kind,
            phase=context.phase,
            enclosing="" if enclosing is None else enclosing[0].name,
            is_step_span=False,
            has_step=context.step is not None,
            has_parent=context.step_span != NO_SPAN,
            has_microbatch=False,
            has_tokens=work is not None and work.tokens >= 0,
            is_error=False,
        )
        seq = self._seq.next(context.epoch, timer.name, len(lengths_ns))
        step = -1 if context.step is None else context.step
        row = (
            *(place, span, context.step_span, fold.start_ns, fold.end_ns),
            *(step, seq, -1, fold.tokens, fold.trace_id),
        )
        return shape, (row, lengths_ns)

    def _folded_spans(
        self, shape: _Shape, folds: list[tuple[_Row, list[int]]], offset_ns: int
    ) -> list[bytes]:
        plain = self._columns(shape, [row for row, _ in folds], offset_ns)
        lengths = [lengths_ns for _, lengths_ns in folds]
        told = {
            str(key): np.array([summary(lengths_ns) for lengths_ns in lengths], np.int64)
            for key, summary in _SUMMARIES.items()
        }
        pieces = encode_rows(replace(plain, numbers={**plain.numbers, **told}))
        return [
            with_octets(piece, semconv.FOLD_SKETCH, write_sketch(lengths_ns))
            for piece, lengths_ns in zip(pieces, lengths, strict=True)
        ]

    def _parents(
        self, shape: _Shape, parents: tuple[int, ...], traces: tuple[bytes, ...]
    ) -> Ids | None:
        if shape.is_step_span:
            roots = b"".join(map(root_span_id, traces))
            return np.frombuffer(roots, np.dtype("<u8")).astype(np.uint64)
        return self._ids.of(np.array(parents, np.uint64)) if shape.has_parent else None

    def _requests(self, rows: list[bytes], epochs: list[Epoch], runs: list[int]) -> list[Request]:
        requests: list[Request] = []
        first = 0
        size = 0
        for at, row in enumerate(rows):
            is_full = at - first == MOST_SPANS or size + len(row) > MOST_BYTES
            if at > first and (is_full or epochs[at] is not epochs[first]):
                requests.append(self._request(rows[first:at], epochs[first], sum(runs[first:at])))
                first, size = at, 0
            size += len(row)
        if rows:
            requests.append(self._request(rows[first:], epochs[first], sum(runs[first:])))
        return requests

    def _request(self, rows: list[bytes], epoch: Epoch, runs: int) -> Request:
        resource = encode_resource(self._resource(epoch))
        return Request(encode_request(resource, rows), len(rows), runs)


def _shape(key: _Key) -> _Shape:
    timer, phase, enclosing, *told = key
    return _Shape(timer.name, timer.kind, phase, enclosing, *told)


def _labels(shape: _Shape) -> tuple[tuple[str, str], ...]:
    """Text attributes: a step span is like a section, but it is none."""
    labels: list[tuple[str, str]] = []
    if not shape.is_step_span:
        labels += [(semconv.SECTION, shape.name), (semconv.SECTION_KIND, shape.kind)]
        if shape.enclosing:
            labels.append((semconv.SECTION_PARENT, shape.enclosing))
    labels.append((semconv.TIME_BASIS, semconv.HOST_BASIS))
    if shape.phase:
        labels.append((semconv.PHASE, shape.phase))
    return tuple(labels)

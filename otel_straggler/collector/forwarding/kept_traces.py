"""The traces of forwarded spans: each has a bound, and each of a step gets its root."""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from otel_straggler import semconv
from otel_straggler.collector.forwarding.batch import Piece, SpanTimes, absent_parents
from otel_straggler.collector.forwarding.known import WorldKey
from otel_straggler.collector.forwarding.trace_spans import ClosedTrace, RankStep, StandIn
from otel_straggler.model.observation import NO_STEP
from otel_straggler.model.rank import Source
from otel_straggler.otlp.identity import as_int, read_value
from otel_straggler.otlp.ids import root_span_id
from otel_straggler.otlp.slices import Bools

REMEMBERED = 100_000
"""Closed traces; what comes later for an older one begins a second one with the same ids."""
SETTLED_S = 5.0
"""A trace is closed after this time without a new span, once its step has been scored."""
_MAX_SUMMARIES = 8
_SPANS_PER_SUMMARY = 250
_INTS = 3
"""Of one ``step`` span in an array: rank, start, end."""


@dataclass(slots=True)
class _Trace:
    """A trace that is not closed.

    Attributes:
        ranks, flagged: in the trace.
        steps: ids of their ``step`` spans.
        left_steps: rank, start, end of those that are not in the trace.
        missing: by id, parents that have not come.
    """

    root: int
    first_at_s: float
    touched_at_s: float = 0.0
    spans: int = 0
    is_full: bool = False
    left_out: int = 0
    first_ns: int = 2**63 - 1
    last_ns: int = 0
    source: Source | None = None  # of a span whose parent is the root
    step: int = NO_STEP
    ranks: set[int] = field(default_factory=set)
    flagged: set[int] = field(default_factory=set)
    steps: set[int] = field(default_factory=set)
    left_steps: array[int] = field(default_factory=lambda: array("q"))
    missing: dict[int, StandIn] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Closed:
    spans: int
    is_full: bool
    stand_ins: frozenset[int] = frozenset()


class KeptTraces:
    """Bounds every trace, and closes those of steps.

    A rank is in a trace with all its spans or with none, so that no span lacks its parent; of the
    first one that is too large alone, the longest spans are kept, which are the outer ones.

    Args:
        max_spans: of one trace, with its root and the summaries.

    Attributes:
        large: worlds of which a trace was full.
    """

    def __init__(self, max_spans: int) -> None:
        self.max_spans = max_spans
        self.max_summaries = max(1, min(_MAX_SUMMARIES, max_spans // _SPANS_PER_SUMMARY))
        self.large: OrderedDict[WorldKey, None] = OrderedDict()
        self._open: OrderedDict[bytes, _Trace] = OrderedDict()
        self._closed: OrderedDict[bytes, _Closed] = OrderedDict()

    def root_of(self, trace_id: bytes) -> int:
        trace = self._open.get(trace_id)
        return _root_of(trace_id) if trace is None else trace.root

    def has_sent(self, trace_id: bytes) -> bool:
        """From any thread."""
        trace = self._open.get(trace_id) or self._closed.get(trace_id)
        return trace is not None and trace.spans > 0

    def admit(self, piece: Piece, now_s: float) -> Bools | bool:
        """Which of the wanted spans of a piece are kept: all, none, or a mask. Cost: O(1), unless
        the piece is too large for its trace alone."""
        closed = self._closed.get(piece.trace_id)
        if closed is not None:
            return self._admit_late(piece, closed)
        trace = self._open.get(piece.trace_id)
        if trace is None:
            trace = self._open[piece.trace_id] = _Trace(_root_of(piece.trace_id), now_s)
        trace.touched_at_s = now_s
        self._open.move_to_end(piece.trace_id)
        if piece.last_ns:
            trace.first_ns = min(trace.first_ns, piece.first_ns)
            trace.last_ns = max(trace.last_ns, piece.last_ns)
        reserved = 1 + self.max_summaries + len(trace.missing)
        room = max(0, self.max_spans - reserved - trace.spans)
        if piece.wanted > room:
            return self._admit_into_full(trace, piece, room)
        kept = piece.steps if piece.wanted else ()
        _record(trace, piece, piece.wanted, kept, piece.absent)
        return piece.wanted > 0

    def _admit_late(self, piece: Piece, closed: _Closed) -> Bools | bool:
        """A rank whose spans did not come before is kept if there is room for all of it."""
        if closed.is_full or closed.spans + piece.wanted > self.max_spans:
            return False
        admitted: Bools | bool = True
        if closed.stand_ins:
            admitted = ~np.isin(piece.wanted_heads().span_ids, list(closed.stand_ins))
        after = _Closed(closed.spans + piece.wanted, is_full=False, stand_ins=closed.stand_ins)
        self._closed[piece.trace_id] = after
        return admitted

    def _admit_into_full(self, trace: _Trace, piece: Piece, room: int) -> Bools | bool:
        """A rank that is in the trace already, and one that is too large alone, have the longest of
        their spans in it."""
        trace.is_full = True
        if piece.sender.source is not None and piece.sender.is_own:
            self.large[WorldKey.of(piece.sender.source)] = None
            if len(self.large) > REMEMBERED:
                self.large.popitem(last=False)
        is_known = piece.sender.source is not None and piece.sender.source.rank in trace.ranks
        if trace.spans and not is_known:
            _record(trace, piece, 0, (), ())
            return False
        heads = piece.wanted_heads()
        expected = sum(span_id in trace.missing for span_id in heads.span_ids.tolist())
        room = min(room + expected, piece.wanted)
        if not room:
            _record(trace, piece, 0, (), ())
            return False
        admitted = np.zeros(piece.wanted, bool)
        longest = np.argsort(heads.start_ns - heads.end_ns, kind="stable")
        admitted[longest[:room]] = True
        kept = heads.of_rows(admitted)
        ids = frozenset(kept.span_ids.tolist())
        steps = [step for step in piece.steps if step.span_id in ids]
        _record(trace, piece, room, steps, absent_parents(kept, trace.root))
        return admitted

    def close(
        self,
        now_s: float,
        is_scored: Callable[[WorldKey, int], bool],
        *,
        longest_s: float,
        is_end: bool = False,
    ) -> list[ClosedTrace]:
        """Close settled traces; those of steps of which something was kept.

        Args:
            longest_s: so long a trace waits for the scores of its step.
            is_end: close all.
        """
        due: list[ClosedTrace] = []
        while self._open:
            trace_id, trace = next(iter(self._open.items()))
            is_forced = is_end or len(self._open) > REMEMBERED
            if not is_forced and trace.touched_at_s > now_s - SETTLED_S:
                break
            if not is_forced and not _is_done(trace, now_s, is_scored, longest_s):
                trace.touched_at_s = now_s  # asked again
                self._open.move_to_end(trace_id)
                continue
            del self._open[trace_id]
            if trace.spans:
                due += self._close(trace_id, trace)
        return due

    def _close(self, trace_id: bytes, trace: _Trace) -> list[ClosedTrace]:
        left_out = _steps_in(trace.left_steps)
        if trace.source is None:
            self._remember(trace_id, _Closed(trace.spans, trace.is_full))
            return []
        room = max(0, self.max_spans - trace.spans - 1)
        stand_ins = tuple(trace.missing.values())[:room]
        max_summaries = min(self.max_summaries, room - len(stand_ins))
        spans = trace.spans + 1 + len(stand_ins) + max_summaries
        ids = frozenset(missing.span_id for missing in stand_ins)
        self._remember(trace_id, _Closed(spans, trace.is_full, ids))
        closed = ClosedTrace(
            trace_id=trace_id,
            root_id=trace.root,
            source=trace.source,
            step=trace.step,
            first_ns=trace.first_ns,
            last_ns=trace.last_ns,
            ranks=len(trace.ranks.union(step.rank for step in left_out)),
            left_out=[step for step in left_out if step.rank not in trace.ranks],
            flagged=sorted(trace.flagged),
            spans_left_out=trace.left_out,
            stand_ins=stand_ins,
            max_summaries=max_summaries,
        )
        return [closed]

    def _remember(self, trace_id: bytes, closed: _Closed) -> None:
        self._closed[trace_id] = closed
        if len(self._closed) > REMEMBERED:
            self._closed.popitem(last=False)


def _is_done(
    trace: _Trace, now_s: float, is_scored: Callable[[WorldKey, int], bool], longest_s: float
) -> bool:
    if trace.source is None or trace.step == NO_STEP or now_s - trace.first_at_s >= longest_s:
        return True
    return is_scored(WorldKey.of(trace.source), trace.step)


def _record(
    trace: _Trace,
    piece: Piece,
    admitted: int,
    kept: Sequence[SpanTimes],
    absent: Sequence[SpanTimes],
) -> None:
    trace.spans += admitted
    trace.left_out += piece.spans - admitted
    if piece.sender.source is None:
        return
    rank = piece.sender.source.rank
    trace.steps.update(step.span_id for step in kept)
    if not kept:
        for step in piece.steps:
            trace.left_steps.extend((rank, step.start_ns, step.end_ns))
    if not admitted:
        return
    trace.ranks.add(rank)
    if piece.is_flagged:
        trace.flagged.add(rank)
    if piece.sender.is_own:
        _follow_parents(trace, piece, absent, rank)
    if trace.source is None and (trace.steps or trace.missing):
        trace.source = piece.sender.source
        trace.step = _step_of(piece.sample())


def _follow_parents(trace: _Trace, piece: Piece, absent: Sequence[SpanTimes], rank: int) -> None:
    """Children mostly come before their parent, in the same request or an earlier one."""
    if trace.missing:
        for span_id in piece.wanted_heads().span_ids.tolist():
            trace.missing.pop(span_id, None)
    for parent, start_ns, end_ns in absent:
        if parent in trace.steps:
            continue
        known = trace.missing.get(parent)
        trace.missing[parent] = StandIn(
            span_id=parent,
            rank=rank,
            start_ns=start_ns if known is None else min(start_ns, known.start_ns),
            end_ns=max(start_ns, end_ns, 0 if known is None else known.end_ns),
        )


def _steps_in(numbers: array[int]) -> list[RankStep]:
    """One of each rank, the first that came."""
    steps: dict[int, RankStep] = {}
    for at in range(0, len(numbers), _INTS):
        rank, start_ns, end_ns = numbers[at : at + _INTS]
        steps.setdefault(rank, RankStep(rank=rank, start_ns=start_ns, end_ns=end_ns))
    return list(steps.values())


def _root_of(trace_id: bytes) -> int:
    return int.from_bytes(root_span_id(trace_id), "little")


def _step_of(content: bytes) -> int:
    for pair in Span.FromString(content).attributes:
        if pair.key == semconv.STEP:
            step = as_int(read_value(pair.value))
            return NO_STEP if step is None else step
    return NO_STEP

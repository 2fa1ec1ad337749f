"""The traces of which something was kept: how much, and the root span that no rank sends."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field

import numpy as np
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from otel_straggler import semconv
from otel_straggler.model.observation import NO_STEP
from otel_straggler.model.rank import Source
from otel_straggler.otlp.encode_spans import (
    AttributeValue,
    SpanGroup,
    encode_request,
    encode_resource,
    encode_rows,
)
from otel_straggler.otlp.identity import as_int, read_value
from otel_straggler.otlp.ids import root_span_id

REMEMBERED = 100_000
"""Traces; beyond it the oldest are forgotten, and might get a second root, of the same id."""
SETTLED_S = 5.0
"""Without a new span for so long, a trace gets its root."""


@dataclass(slots=True)
class _Trace:
    """What was kept of one trace."""

    root_id: bytes
    spans: int = 0
    first_ns: int = 2**63 - 1
    last_ns: int = 0
    source: Source | None = None  # of a span whose parent is the root
    step: int = NO_STEP
    touched_at_s: float = 0.0


@dataclass(slots=True)
class KeptTraces:
    """Counts the kept spans of every trace, and makes the root spans of those of steps.

    A trace gets a root if a span that was kept has it as its parent: the ``step`` span of a rank.
    The root is made once, when nothing came for :data:`SETTLED_S`; it covers what was kept.

    Args:
        most_spans: that are kept of one trace.
    """

    most_spans: int
    _traces: OrderedDict[bytes, _Trace] = field(default_factory=OrderedDict)
    _waiting: dict[bytes, _Trace] = field(default_factory=dict)

    def admit(self, trace_id: bytes) -> bool:
        """Count one more span of the trace; False if there is no room for it."""
        trace = self._traces.get(trace_id)
        if trace is None:
            trace = self._traces[trace_id] = _Trace(root_span_id(trace_id))
            if len(self._traces) > REMEMBERED:
                self._traces.popitem(last=False)
        if trace.spans >= self.most_spans:
            return False
        trace.spans += 1
        return True

    def note(self, content: bytes, source: Source | None, now_s: float) -> None:
        """Look at a span that was admitted: its times, and whether the root is its parent."""
        span = Span.FromString(content)
        trace = self._traces.get(span.trace_id)
        if trace is None:
            return
        trace.first_ns = min(trace.first_ns, span.start_time_unix_nano)
        trace.last_ns = max(trace.last_ns, span.end_time_unix_nano)
        trace.touched_at_s = now_s
        if span.parent_span_id == trace.root_id and source is not None and trace.source is None:
            trace.source, trace.step = source, _step_of(span)
            self._waiting[span.trace_id] = trace

    def take_roots(self, settled_before_s: float) -> list[bytes]:
        """A request for every run whose traces have settled, with their roots."""
        due = {
            trace_id: trace
            for trace_id, trace in self._waiting.items()
            if trace.touched_at_s <= settled_before_s
        }
        by_world: dict[tuple[str, int, str, str], list[tuple[bytes, _Trace]]] = {}
        for trace_id, trace in due.items():
            del self._waiting[trace_id]
            source = trace.source
            if source is not None:
                world = source.run_id, source.attempt, source.group, source.job
                by_world.setdefault(world, []).append((trace_id, trace))
        return [_encode_roots(traces) for traces in by_world.values()]

    @property
    def n_waiting(self) -> int:
        """Traces that will get a root."""
        return len(self._waiting)


def _step_of(span: Span) -> int:
    for pair in span.attributes:
        if pair.key == semconv.STEP:
            step = as_int(read_value(pair.value))
            return NO_STEP if step is None else step
    return NO_STEP


def _encode_roots(traces: list[tuple[bytes, _Trace]]) -> bytes:
    """Roots of one world. Their resource has no rank: the root is nobody's."""
    source = traces[0][1].source
    assert source is not None
    resource: dict[str, AttributeValue] = {
        semconv.SERVICE_NAME: source.job,
        semconv.RUN_ID: source.run_id,
        semconv.RUN_ATTEMPT: source.attempt,
        semconv.GROUP: source.group,
    }
    ids = b"".join(trace_id for trace_id, _ in traces)
    roots = b"".join(trace.root_id for _, trace in traces)
    group = SpanGroup(
        name=semconv.ROOT_SPAN,
        numbers={semconv.STEP: np.array([max(t.step, 0) for _, t in traces], np.int64)},
        trace_ids=np.frombuffer(ids, np.uint8).reshape(-1, 16),
        span_ids=np.frombuffer(roots, "<u8").astype(np.uint64),
        parent_ids=None,
        start_ns=np.array([t.first_ns for _, t in traces], np.int64),
        end_ns=np.array([t.last_ns for _, t in traces], np.int64),
    )
    known = {key: value for key, value in resource.items() if value != ""}
    return encode_request(encode_resource(known), encode_rows(group))

"""Flagged ranks and slow steps, and the traces of kept spans with their root spans, which no rank
sends."""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import NamedTuple, TypeVar

import numpy as np
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from otel_straggler import semconv
from otel_straggler.model.observation import NO_STEP
from otel_straggler.model.rank import Source
from otel_straggler.model.scores import WindowScores
from otel_straggler.model.step_table import StepTimes
from otel_straggler.model.verdict import RunVerdicts, Verdict
from otel_straggler.otlp.encode_spans import SpanGroup, encode_request, encode_resource, encode_rows
from otel_straggler.otlp.identity import as_int, read_value
from otel_straggler.otlp.ids import root_span_id, step_trace_id
from otel_straggler.otlp.span_rules import Progress
from otel_straggler.semconv import AttributeValue

REMEMBERED = 100_000
"""Traces; beyond it the oldest are evicted, and might get a second root with the same id."""
SETTLED_S = 5.0
"""A trace gets its root after this time without a new span."""


@dataclass(slots=True)
class _Trace:
    """The kept spans of one trace."""

    root_id: bytes
    spans: int = 0
    first_ns: int = 2**63 - 1
    last_ns: int = 0
    source: Source | None = None  # of a span whose parent is the root
    step: int = NO_STEP
    touched_at_s: float = 0.0


@dataclass(slots=True)
class KeptTraces:
    """Counts the kept spans of every trace, up to ``max_spans``, and makes root spans of steps.

    A trace gets a root if a kept span, the ``step`` span of a rank, has it as its parent. The root
    is made once, after :data:`SETTLED_S` without a new span, and covers what was kept.
    """

    max_spans: int
    _traces: OrderedDict[bytes, _Trace] = field(default_factory=OrderedDict)
    _waiting: dict[bytes, _Trace] = field(default_factory=dict)

    def admit(self, trace_id: bytes) -> bool:
        """Count one more span of the trace; False if it is full."""
        trace = self._traces.get(trace_id)
        if trace is None:
            trace = self._traces[trace_id] = _Trace(root_span_id(trace_id))
            if len(self._traces) > REMEMBERED:
                self._traces.popitem(last=False)
        if trace.spans >= self.max_spans:
            return False
        trace.spans += 1
        return True

    def record(self, content: bytes, source: Source | None, now_s: float) -> None:
        """Record the times of an admitted span, and whether the root is its parent."""
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

    def drain_roots(self, settled_before_s: float) -> tuple[list[bytes], int]:
        """Remove settled traces; a request per run with their roots, and how many."""
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
        return [_encode_roots(traces) for traces in by_world.values()], len(due)


def _step_of(span: Span) -> int:
    for pair in span.attributes:
        if pair.key == semconv.STEP:
            step = as_int(read_value(pair.value))
            return NO_STEP if step is None else step
    return NO_STEP


def _encode_roots(traces: list[tuple[bytes, _Trace]]) -> bytes:
    """Roots of one world; their resource has no rank."""
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


_ACTIVE = frozenset({"suspect", "confirmed", "flapping"})
"""States of a verdict that flag a rank or a host."""

_TYPICAL_OF = 200
"""Steps whose median is the typical step of a run."""
_MIN_STEPS = 10
_MAX_SLOW = 10_000
_MAX_WORLDS = 4_096


class WorldKey(NamedTuple):
    """The ranks whose steps are scored together."""

    run_id: str
    group: str
    attempt: int

    @classmethod
    def of(cls, source: Source) -> WorldKey:
        return cls(source.run_id, source.group, source.attempt)


@dataclass(slots=True)
class _Flags:
    """Ranks and nodes of one run and group."""

    listed: frozenset[int] = frozenset()
    ranks: frozenset[int] = frozenset()
    nodes: frozenset[str] = frozenset()


@dataclass(slots=True)
class Known:
    """Flagged ranks and slow steps. One thread writes, another reads.

    Args:
        slow_ratio: a step is slow if its slowest rank took so many times the typical step of the
            run.
    """

    slow_ratio: float
    _flags: dict[tuple[str, str], _Flags] = field(default_factory=dict)
    _passed: dict[WorldKey, Progress] = field(default_factory=dict)
    _typical: dict[tuple[str, str], deque[float]] = field(default_factory=dict)
    _slow: OrderedDict[int, None] = field(default_factory=OrderedDict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def record_steps(self, times: Iterable[StepTimes]) -> None:
        with self._lock:
            for world in times:
                if not world.is_timed:
                    self._record_steps(world)
            while len(self._slow) > _MAX_SLOW:
                self._slow.popitem(last=False)

    def _record_steps(self, world: StepTimes) -> None:
        known = _entry(self._typical, (world.run_id, world.group), deque(maxlen=_TYPICAL_OF))
        for step, seconds in zip(world.steps, world.slowest_s, strict=True):
            if len(known) >= _MIN_STEPS and seconds > self.slow_ratio * median(known):
                trace_id = step_trace_id(world.run_id, world.attempt, world.group, step)
                self._slow[int.from_bytes(trace_id[8:], "big")] = None
            known.append(seconds)

    def record_windows(
        self, windows: Sequence[WindowScores], run_verdicts: RunVerdicts
    ) -> set[WorldKey]:
        """Record closed windows of one run and its verdicts; returns their worlds."""
        with self._lock:
            for window in windows:
                flags = _entry(self._flags, (window.run_id, window.group), _Flags())
                flags.listed = frozenset(s.source.rank for s in window.stragglers)
                active = [v for v in run_verdicts.current if _is_active(v, window)]
                flags.ranks = frozenset(v.rank for v in active if v.rank is not None)
                flags.nodes = frozenset(v.node for v in active if v.scope == "host" and v.node)
                self._pass(window)
            return {WorldKey(w.run_id, w.group, w.attempt) for w in windows}

    def _pass(self, window: WindowScores) -> None:
        key = WorldKey(window.run_id, window.group, window.attempt)
        passed = _entry(self._passed, key, Progress())
        step = passed.step if window.last_step is None else max(passed.step, window.last_step)
        self._passed[key] = Progress(step=step, end_ns=max(passed.end_ns, window.end_ns))

    def is_flagged(self, source: Source) -> bool:
        """Whether a verdict or the newest window names the rank or its host."""
        flags = self._flags.get((source.run_id, source.group))
        if flags is None:
            return False
        is_listed = source.rank in flags.ranks or source.rank in flags.listed
        return is_listed or (bool(source.node) and source.node in flags.nodes)

    def has_passed(self, source: Source, progress: Progress) -> bool:
        """Whether everything of a source in a request has been scored."""
        passed = self._passed.get(WorldKey.of(source))
        if passed is None:
            return False
        if progress.step != NO_STEP:
            return progress.step <= passed.step
        return progress.end_ns <= passed.end_ns

    def slow_traces(self) -> frozenset[int]:
        """Second halves of the trace ids of the newest slow steps."""
        with self._lock:
            return frozenset(self._slow)


def _is_active(verdict: Verdict, window: WindowScores) -> bool:
    if verdict.state not in _ACTIVE or verdict.scope not in ("rank", "host"):
        return False
    return verdict.scope == "host" or verdict.group == window.group


_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


def _entry(table: dict[_Key, _Value], key: _Key, new: _Value) -> _Value:
    """The value of a key, moved to the end; the first is evicted beyond the limit."""
    value = table.pop(key, new)
    table[key] = value
    if len(table) > _MAX_WORLDS:
        del table[next(iter(table))]
    return value

"""Records to finished spans for the application's TracerProvider, in a thread of their own.

A slow or hanging processor of the application holds up neither training nor heartbeats here. The
spans of a step are begun and ended once the step has ended, in the order in which they ran.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from opentelemetry.context import Context as OtelContext
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import Span, SpanContext

from otel_straggler import semconv
from otel_straggler.client.python_packing import SectionCounts
from otel_straggler.client.recorder import NO_SPAN, RING_CAPACITY, Context, Record, is_failure
from otel_straggler.client.recording import WHY_PYTHON
from otel_straggler.client.sdk_spans import (
    OVER_RATE,
    Attributes,
    SdkSpan,
    SpanBuilder,
    TraceSampling,
)
from otel_straggler.client.sdk_traces import PropagatedRun, SdkTraces
from otel_straggler.client.sender import SDK_ERROR, SDK_QUEUE_FULL, SDK_RATE, Drops
from otel_straggler.client.topology import Topology
from otel_straggler.client.worker import LogOnce, Worker
from otel_straggler.config import ClientSettings
from otel_straggler.otlp.ids import SpanIds

if TYPE_CHECKING:
    from otel_straggler.client.propagation import Propagation

SPANS_AT_ONCE = 32
"""Spans that are built before the training thread may have the interpreter."""
HOLD_S = 5.0
"""The longest that spans wait for the end of their step."""
_MAX_HELD = 4096
_MAX_STEPS = 1024
_BREATH_S = 0.001
_NO_SURROUNDINGS = OtelContext()
_LOG = logging.getLogger("otel_straggler")


@dataclass(slots=True)
class _Held:
    since_s: float
    runs: list[tuple[int, SdkSpan]] = field(default_factory=list)


THREAD_NAME = "otel-straggler-sdk"


class SdkSink:
    """Turns records into spans of the application's SDK: gets them from the exporter thread, builds
    spans in its own.

    Attributes:
        generation: of the records that are used; None: of none, it has not begun.

    Raises:
        ConfigError: the provider's tracers are not the SDK's.
    """

    def __init__(
        self,
        settings: ClientSettings,
        ids: SpanIds,
        topology: Callable[[], Topology],
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        assert isinstance(settings.tracer_provider, TracerProvider)
        self._settings = settings
        self._sleep = sleep
        self._drops = Drops()
        self._log_error = LogOnce(
            "a span processor or the sampler of the tracer provider raised; the span is lost, "
            "training and tracing go on (further ones are counted, not logged)"
        )
        self._builder = SpanBuilder(settings.tracer_provider, self._record_error)
        self._traces = SdkTraces(settings, self._builder, ids, topology)
        self._propagation = self._new_propagation()
        self.generation: int | None = None
        self._worker: Worker | None = None
        self._flushed: threading.Event | None = None
        self._inbox: deque[tuple[Sequence[Record], int]] = deque()
        self._held: dict[int, _Held] = {}
        self._samplings: dict[int, TraceSampling] = {}
        self._seq = SectionCounts()
        self._has_logged_rate = False
        self._built = 0

    def start(self, generation: int) -> None:
        self.generation = generation
        self._worker = Worker(self.tick, self._survive, THREAD_NAME)
        self._worker.start()
        if self._propagation is not None:
            self._propagation.install()

    def put(self, records: Sequence[Record]) -> None:
        """Never waits."""
        if self.generation is None:
            return
        waiting = sum(len(batch) for batch, _ in list(self._inbox))
        if waiting + len(records) > RING_CAPACITY:
            self._drops.add(SDK_QUEUE_FULL, len(records))
            return
        self._inbox.append((records, time.time_ns() - time.perf_counter_ns()))

    def tick(self, now_s: float) -> float:
        """Build what is due at ``now_s`` (monotonic); the time of the next tick."""
        self._builder.refresh()
        self._ingest(now_s)
        is_crowded = sum(len(held.runs) for held in self._held.values()) > _MAX_HELD
        for step_span, held in list(self._held.items()):
            if is_crowded or now_s - held.since_s >= HOLD_S:
                self._build_held(step_span)
        return now_s + self._settings.flush_s

    def begin_flush(self, deadline_s: float) -> None:
        if self._worker is not None:
            self._flushed = self._worker.ask(lambda: self._flush(deadline_s))

    def wait_for_flush(self, deadline_s: float) -> bool:
        flushed = self._flushed
        return flushed is not None and flushed.wait(max(0.0, deadline_s - time.monotonic()))

    def losses(self) -> dict[str, int]:
        return self._drops.counts()

    def stop_propagating(self) -> None:
        if self._propagation is not None:
            self._propagation.uninstall()

    def stop(self, timeout_s: float) -> None:
        """The provider is the application's and goes on."""
        if self._worker is not None:
            self._worker.stop(timeout_s)

    def leave_to_parent(self) -> None:
        if self._propagation is not None:
            self._propagation.leave_to_parent()

    def _record_error(self, error: Exception) -> None:
        self._drops.add(SDK_ERROR, 1)
        self._log_error(error)

    def _new_propagation(self) -> Propagation | None:
        if not self._settings.propagate_context:
            return None
        if WHY_PYTHON:
            _LOG.warning(
                "propagate_context has no effect: it needs the native part; %s", WHY_PYTHON
            )
            return None
        from otel_straggler.client.propagation import Propagation

        return Propagation(self._traces, self._record_error)

    def _flush(self, deadline_s: float) -> None:
        self._builder.refresh()
        self._ingest(time.monotonic())
        for step_span in list(self._held):
            self._build_held(step_span)
        self._builder.force_flush(deadline_s - time.monotonic())

    def _survive(self, error: Exception) -> None:
        self._drops.add(SDK_ERROR, 1)
        _LOG.warning("spans for the tracer provider were lost", exc_info=error)

    def _ingest(self, now_s: float) -> None:
        at_once: list[tuple[int, SdkSpan]] = []
        while self._inbox:
            records, offset_ns = self._inbox.popleft()
            for record in records:
                if record[0][3].session.generation == self.generation:
                    self._add(record, offset_ns, now_s, at_once)
        self._build(at_once)

    def _add(
        self, record: Record, offset_ns: int, now_s: float, at_once: list[tuple[int, SdkSpan]]
    ) -> None:
        timer, number, _, context, _ = record[0]
        is_step_span = number == context.step_span
        seq = -1 if is_step_span else self._seq.next(context.session, timer.name)
        attributes = self._attributes(record, seq)
        trace_id, sampling = self._trace(record, offset_ns, attributes)
        if not sampling.is_built:
            self._count_left_out(sampling)
            return
        if self._propagation is None:
            self._traces.throttle.spend(1)
        run = (number, self._span(record, offset_ns, attributes, trace_id, sampling))
        if context.step is None:
            at_once.append(run)
            return
        self._held.setdefault(context.step_span, _Held(now_s)).runs.append(run)
        if is_step_span:
            self._build_held(context.step_span)

    def _attributes(self, record: Record, seq: int) -> Attributes:
        (timer, _, _, context, work), enclosing, _, _, waited_ns = record
        waiting: Attributes = {}
        if waited_ns > 0:
            waiting[semconv.TIME_BASIS] = semconv.COLLECTIVE_BASIS
            waiting[semconv.COLLECTIVE_WAIT_TIME] = waited_ns
        if seq < 0:
            return {**self._traces.step_attributes(context), **waiting}
        attributes = self._traces.section_attributes(context, timer.name, timer.kind)
        if enclosing is not None:
            attributes[semconv.SECTION_PARENT] = enclosing[0].name
        attributes[semconv.SEQ] = seq
        if work is not None:
            if work.microbatch >= 0:
                attributes[semconv.MICROBATCH] = work.microbatch
            if work.tokens >= 0:
                attributes[semconv.TOKENS] = work.tokens
        return {**attributes, **waiting}

    def _trace(
        self, record: Record, offset_ns: int, attributes: Attributes
    ) -> tuple[int, TraceSampling]:
        timer, _, start_ns, context, work = record[0]
        if isinstance(work, PropagatedRun) and work.sampling is not None:
            return work.trace_id, work.sampling
        if context.step is not None:
            return self._traces.step_trace(context), self._step_sampling(context, start_ns)
        trace_id = self._traces.window_trace(start_ns + offset_ns)
        return trace_id, self._traces.sample_window(trace_id, timer.name, attributes, start_ns)

    def _step_sampling(self, context: Context, now_ns: int) -> TraceSampling:
        """Decided when the step began, if context is propagated; else with its first record."""
        if context.sampling is not None:
            return context.sampling
        sampling = self._samplings.get(context.step_span)
        if sampling is None:
            while len(self._samplings) >= _MAX_STEPS:
                del self._samplings[next(iter(self._samplings))]
            sampling = self._samplings[context.step_span] = self._traces.sample_step(
                context, now_ns
            )
        return sampling

    def _count_left_out(self, sampling: TraceSampling) -> None:
        if sampling is not OVER_RATE:
            return
        self._drops.add(SDK_RATE, 1)
        if not self._has_logged_rate:
            self._has_logged_rate = True
            _LOG.warning(
                "this rank records more spans than its tracer provider is to get, so whole steps "
                "are left out there. Raise configure(sdk_spans_per_s=...), or name a collector in "
                "configure(endpoint=...): it gets all of them."
            )

    def _span(
        self,
        record: Record,
        offset_ns: int,
        attributes: Attributes,
        trace_id: int,
        sampling: TraceSampling,
    ) -> SdkSpan:
        (timer, number, start_ns, context, work), enclosing, end_ns, error, _ = record
        is_step_span = number == context.step_span
        if enclosing is not None:
            parent_number = enclosing[1]
        else:
            parent_number = NO_SPAN if is_step_span else context.step_span
        parent: SpanContext | None = None
        surroundings = _NO_SURROUNDINGS
        links = sampling.links if is_step_span else ()
        if isinstance(work, PropagatedRun):
            parent, surroundings, links = work.parent, work.surroundings, work.links
        if parent is None and parent_number != NO_SPAN:
            parent = sampling.span_context(trace_id, self._traces.span_id(parent_number))
        return SdkSpan(
            name=timer.name,
            trace_id=trace_id,
            span_id=self._traces.span_id(number),
            parent=parent,
            surroundings=surroundings,
            start_ns=start_ns + offset_ns,
            end_ns=max(end_ns, start_ns + 1) + offset_ns,
            attributes=attributes,
            links=links,
            is_error=is_failure(error),
            sampling=sampling,
        )

    def _build_held(self, step_span: int) -> None:
        self._build(self._held.pop(step_span).runs)

    def _build(self, runs: list[tuple[int, SdkSpan]]) -> None:
        """Begin and end ``runs`` in the order in which they ran; they come by their ends."""
        starts = deque(sorted(runs, key=lambda run: (run[1].start_ns, run[0])))
        started: dict[int, Span | None] = {}
        for number, span in sorted(runs, key=lambda run: run[1].end_ns):
            while starts and starts[0][1].start_ns < span.end_ns:
                next_number, next_span = starts.popleft()
                started[next_number] = self._builder.start(next_span)
            own = started.pop(number)
            if own is not None:
                self._builder.end(span, own)
            self._built += 1
            if self._built % SPANS_AT_ONCE == 0:
                self._sleep(_BREATH_S)

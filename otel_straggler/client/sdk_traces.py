"""Ids, identity and sampling of the traces that the application's TracerProvider gets."""

from __future__ import annotations

import threading
from collections.abc import Callable

from opentelemetry.context import Context as OtelContext
from opentelemetry.trace import Link, Span, SpanContext

from otel_straggler import semconv
from otel_straggler.client.recorder import Context, RecordingSession, WorkSize
from otel_straggler.client.sdk_spans import OVER_RATE, Attributes, SpanBuilder, TraceSampling
from otel_straggler.client.topology import Topology, resource_attributes
from otel_straggler.config import ClientSettings
from otel_straggler.otlp.ids import WINDOW_NS, SpanIds, step_trace_id, window_trace_id
from otel_straggler.throttle import Throttle

_ON_EVERY_SPAN = (
    semconv.RUN_ID,
    semconv.RUN_ATTEMPT,
    semconv.GROUP,
    semconv.RANK,
    semconv.WORLD_SIZE,
    semconv.ROLE,
    semconv.SESSION_ID,
)
"""Identity that cannot stand on the resource, which is the application's."""
_MAX_WINDOWS = 16
_NO_SURROUNDINGS = OtelContext()


class PropagatedRun(WorkSize):
    """A work size that also knows what its execution put into the context.

    Attributes:
        sampling: None = it could not be decided.
        span: the current span for user code; None = nothing was put there.
        context: what was put in place, until the execution ends.
        surroundings: the context before.
        parent: the current span before, if it is of the same trace.
        links: to the current span before, if this is the root of another trace.
    """

    trace_id: int = 0
    sampling: TraceSampling | None = None
    span: Span | None = None
    context: OtelContext | None = None
    surroundings: OtelContext = _NO_SURROUNDINGS
    parent: SpanContext | None = None
    links: tuple[Link, ...] = ()
    is_open: bool = False


class SdkTraces:
    """Decides once per trace; gives what all spans of a trace share."""

    def __init__(
        self,
        settings: ClientSettings,
        builder: SpanBuilder,
        ids: SpanIds,
        topology: Callable[[], Topology],
    ) -> None:
        self._settings = settings
        self._builder = builder
        self._topology = topology
        self._identity: tuple[RecordingSession, Topology, Attributes] | None = None
        self._windows: dict[int, TraceSampling] = {}
        self._window = (-1, 0)
        self._lock = threading.RLock()
        per_s = settings.sdk_spans_per_s
        self.throttle = Throttle(per_s, burst=max(0.0, per_s - 1.0))
        self.span_id = ids.one

    def step_trace(self, context: Context) -> int:
        assert context.step is not None
        if context.trace_id is None:
            run = self._settings
            context.trace_id = step_trace_id(run.run_id, run.attempt, run.group, context.step)
        return int.from_bytes(context.trace_id, "big")

    def window_trace(self, start_ns: int) -> int:
        """Of a span without a step that starts at ``start_ns`` (Unix time)."""
        window = start_ns // WINDOW_NS
        if window != self._window[0]:
            run = self._settings
            trace_id = window_trace_id(run.run_id, run.attempt, run.group, run.rank, start_ns)
            self._window = (window, int.from_bytes(trace_id, "big"))
        return self._window[1]

    def sample_step(
        self, context: Context, now_ns: int, links: tuple[Link, ...] = ()
    ) -> TraceSampling:
        """Ask the application's sampler, then whether there is room."""
        trace_id = self.step_trace(context)
        sampling = self._builder.decide(
            semconv.STEP_SPAN, trace_id, self.step_attributes(context), links
        )
        return self._if_room(sampling, now_ns)

    def sample_window(
        self, trace_id: int, name: str, attributes: Attributes, now_ns: int
    ) -> TraceSampling:
        """For a span without a step; the sampler is asked with the first of the trace."""
        sampling = self._windows.get(trace_id)
        if sampling is None:
            with self._lock:
                sampling = self._windows.get(trace_id) or self._learn(trace_id, name, attributes)
        return self._if_room(sampling, now_ns)

    def step_attributes(self, context: Context) -> Attributes:
        return {**self.shared_attributes(context), semconv.TIME_BASIS: "host"}

    def section_attributes(self, context: Context, name: str, kind: str) -> Attributes:
        return {
            **self.shared_attributes(context),
            semconv.SECTION: name,
            semconv.SECTION_KIND: kind,
            semconv.TIME_BASIS: "host",
        }

    def shared_attributes(self, context: Context) -> Attributes:
        attributes = dict(self._identity_of(context.session))
        if context.step is not None:
            attributes[semconv.STEP] = context.step
        if context.phase:
            attributes[semconv.PHASE] = context.phase
        return attributes

    def _learn(self, trace_id: int, name: str, attributes: Attributes) -> TraceSampling:
        while len(self._windows) >= _MAX_WINDOWS:
            del self._windows[next(iter(self._windows))]
        sampling = self._builder.decide(name, trace_id, attributes)
        self._windows[trace_id] = sampling
        return sampling

    def _if_room(self, sampling: TraceSampling, now_ns: int) -> TraceSampling:
        has_room = not sampling.is_built or self.throttle.wait_s(now_ns / 1e9) == 0.0
        return sampling if has_room else OVER_RATE

    def _identity_of(self, session: RecordingSession) -> Attributes:
        topology = self._topology()
        known = self._identity
        if known is not None and known[0] is session and known[1] is topology:
            return known[2]
        resource = resource_attributes(self._settings, session.session_id, topology)
        identity = {
            str(key): resource[key]
            for key in _ON_EVERY_SPAN
            if resource.get(key, "") != "" and not self._builder.resource_has(key, resource[key])
        }
        self._identity = (session, topology, identity)
        return identity

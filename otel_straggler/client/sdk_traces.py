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
    """A work size that also knows what its run put into the context.

    Attributes:
        trace_id, sampling: of the run's trace; no sampling = it could not be found out.
        span: what user code finds as the current span; None = nothing was put there.
        context: the context that was put in place, until the run ends.
        surroundings: the context as it was found.
        parent: the current span as it was found, if it is of the same trace.
        links: to the current span as it was found, if this is the root of another trace.
        is_open: whether it is still in place.
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
        """The trace of the step that ``context`` is of."""
        assert context.step is not None
        if context.trace_id is None:
            run = self._settings
            context.trace_id = step_trace_id(run.run_id, run.attempt, run.group, context.step)
        return int.from_bytes(context.trace_id, "big")

    def window_trace(self, start_ns: int) -> int:
        """The trace of a span without a step that starts at ``start_ns`` (Unix time)."""
        window = start_ns // WINDOW_NS
        if window != self._window[0]:
            run = self._settings
            trace_id = window_trace_id(run.run_id, run.attempt, run.group, run.rank, start_ns)
            self._window = (window, int.from_bytes(trace_id, "big"))
        return self._window[1]

    def sample_step(
        self, context: Context, now_ns: int, links: tuple[Link, ...] = ()
    ) -> TraceSampling:
        """Ask the application's sampler about a step, then whether there is room for it."""
        trace_id = self.step_trace(context)
        sampling = self._builder.decide(
            semconv.STEP_SPAN, trace_id, self.step_attributes(context), links
        )
        return self._if_room(sampling, now_ns)

    def sample_window(
        self, trace_id: int, name: str, attributes: Attributes, now_ns: int
    ) -> TraceSampling:
        """The same for a span without a step; the sampler is asked with the first of the trace."""
        sampling = self._windows.get(trace_id)
        if sampling is None:
            with self._lock:
                sampling = self._windows.get(trace_id) or self._learn(trace_id, name, attributes)
        return self._if_room(sampling, now_ns)

    def step_attributes(self, context: Context) -> Attributes:
        """Those of the step span."""
        return {**self.shared_attributes(context), semconv.TIME_BASIS: "host"}

    def section_attributes(self, context: Context, name: str, kind: str) -> Attributes:
        """Those of a section span, but for its numbers."""
        return {
            **self.shared_attributes(context),
            semconv.SECTION: name,
            semconv.SECTION_KIND: kind,
            semconv.TIME_BASIS: "host",
        }

    def shared_attributes(self, context: Context) -> Attributes:
        """Identity, step, phase."""
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


class TokenBucket:
    """Says whether there is room for more. Who is let in may overdraw; what follows then waits.

    Two threads may lose each other's update now and then: this is a budget, not an account.

    Args:
        per_s: tokens that come in a second.
    """

    def __init__(self, per_s: float) -> None:
        self._per_ns = per_s / 1e9
        self._limit = per_s
        self._tokens = per_s
        self._filled_at_ns: int | None = None

    def has_room(self, now_ns: int) -> bool:
        """Whether a token is left at ``now_ns`` (any clock; going back counts as standing still).

        >>> bucket = TokenBucket(2)
        >>> bucket.spend(5)
        >>> [bucket.has_room(second * 1_000_000_000) for second in (0, 1, 2)]
        [False, False, True]
        """
        before_ns = now_ns if self._filled_at_ns is None else self._filled_at_ns
        self._filled_at_ns = max(before_ns, now_ns)
        came = (self._filled_at_ns - before_ns) * self._per_ns
        self._tokens = min(self._limit, self._tokens + came)
        return self._tokens > 0

    def spend(self, tokens: int) -> None:
        self._tokens -= tokens

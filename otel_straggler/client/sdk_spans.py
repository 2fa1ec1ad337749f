"""Which TracerProvider of the application is fit to take our spans, and what to do about others."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.sdk.trace import Tracer, TracerProvider
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.sdk.trace.sampling import Decision, Sampler, SamplingResult
from opentelemetry.trace import (
    INVALID_SPAN,
    Link,
    NonRecordingSpan,
    Span,
    SpanContext,
    SpanKind,
    StatusCode,
    TraceFlags,
    TraceState,
    set_span_in_context,
)

from otel_straggler import semconv
from otel_straggler._version import __version__
from otel_straggler.errors import ConfigError
from otel_straggler.semconv import AttributeValue

GLOBAL: Final = "global"
"""Stands for the provider that is set globally when ``configure()`` is called."""
_WHERE = "configure(tracer_provider=...)"
_EXPECTED = "an opentelemetry.sdk.trace.TracerProvider"


def checked_provider(given: object) -> TracerProvider:
    """The provider that ``given`` names.

    Raises:
        ConfigError: it is not of OpenTelemetry's SDK.
    """
    if isinstance(given, str) and given == GLOBAL:
        return _global_provider()
    if isinstance(given, TracerProvider):
        return given
    raise ConfigError.of(_WHERE, given, _EXPECTED, _remedy_for(given))


def tracer_of(provider: TracerProvider) -> Tracer:
    """The provider's tracer for our spans.

    Raises:
        ConfigError: the provider makes tracers that are not the SDK's.
    """
    tracer = provider.get_tracer(semconv.SCOPE_NAME, __version__, semconv.SCHEMA_URL)
    if isinstance(tracer, Tracer):
        return tracer
    raise ConfigError.of(
        _WHERE,
        provider,
        f"{_EXPECTED} whose tracers are the SDK's; this one gives {tracer!r}",
        "Was it made while OTEL_SDK_DISABLED was set? Make it again without, or leave "
        "tracer_provider out and name an endpoint.",
    )


def _global_provider() -> TracerProvider:
    result = trace.get_tracer_provider()
    if isinstance(result, TracerProvider):
        return result
    raise ConfigError.of(
        _WHERE,
        GLOBAL,
        f"{_EXPECTED} to be set globally; found {type(result).__name__}",
        "Call opentelemetry.trace.set_tracer_provider(...) before configure(), or leave "
        "tracer_provider out and name an endpoint.",
    )


def _remedy_for(given: object) -> str:
    if isinstance(given, trace.ProxyTracerProvider):
        return (
            "It stands for a provider that is not set yet: call "
            "opentelemetry.trace.set_tracer_provider(...) first, then pass what "
            "opentelemetry.trace.get_tracer_provider() gives."
        )
    if isinstance(given, trace.TracerProvider):
        return (
            "Other implementations of the API do not say how to pass on a finished span. Pass a "
            "provider of opentelemetry-sdk, or leave tracer_provider out and name an endpoint."
        )
    return (
        "Pass the provider itself, for example opentelemetry.trace.get_tracer_provider() once the "
        f"application has set it, or {GLOBAL!r}."
    )


Attributes = dict[str, AttributeValue]

_RANDOM = getattr(TraceFlags, "RANDOM_TRACE_ID", 0)  # the API of 2024 does not know it
_NOT_SAMPLED = TraceFlags(_RANDOM)
_SAMPLED = TraceFlags(TraceFlags.SAMPLED | _RANDOM)
_EMPTY = Context()


@dataclass(frozen=True, slots=True, eq=False)
class TraceSampling:
    """The sampling of one trace on this rank.

    Attributes:
        decision: of the application's sampler; DROP if nothing is built.
        added: attributes that the sampler gave.
        links: of the step span.
    """

    decision: Decision
    flags: TraceFlags = _NOT_SAMPLED
    trace_state: TraceState | None = None
    added: Mapping[str, Any] | None = None
    links: tuple[Link, ...] = ()

    @property
    def is_built(self) -> bool:
        return self.decision is not Decision.DROP

    def span_context(self, trace_id: int, span_id: int) -> SpanContext:
        return SpanContext(trace_id, span_id, False, self.flags, self.trace_state)


OVER_RATE = TraceSampling(Decision.DROP)
"""There was no room for the trace."""
FAILED = TraceSampling(Decision.DROP)
"""The sampler raised."""


class SdkSpan(NamedTuple):
    """A span that has ended. Times are Unix time; the attributes are without those of the sampler;
    ``surroundings`` is what else the context around it held (baggage)."""

    name: str
    trace_id: int
    span_id: int
    parent: SpanContext | None
    surroundings: Context
    start_ns: int
    end_ns: int
    attributes: Attributes
    links: tuple[Link, ...]
    is_error: bool
    sampling: TraceSampling


class SpanBuilder:
    """Makes spans of the application's SDK; passes on what its processors or sampler raise.

    Raises:
        ConfigError: the provider's tracers are not the SDK's.
    """

    def __init__(self, provider: TracerProvider, on_error: Callable[[Exception], None]) -> None:
        self._provider = provider
        self._on_error = on_error
        self._original = tracer_of(provider)
        self._ids = _GivenIds()
        self._sampler = _GivenSampler()
        self._tracer = self._own_tracer()

    def resource_has(self, key: str, value: AttributeValue) -> bool:
        return self._original.resource.attributes.get(key) == value

    def decide(
        self, name: str, trace_id: int, attributes: Attributes, links: tuple[Link, ...] = ()
    ) -> TraceSampling:
        """Ask the application's sampler, as for a root span. Any thread may."""
        try:
            result = self._provider.sampler.should_sample(
                _EMPTY, trace_id, name, SpanKind.INTERNAL, dict(attributes), links
            )
            return _sampling_of(result, attributes, links)
        except Exception as error:  # noqa: BLE001  the application's code
            self._on_error(error)
            return FAILED

    def refresh(self) -> None:
        """Follow changes of the provider (after a fork, by a rule)."""
        self._tracer = self._own_tracer()

    def start(self, span: SdkSpan) -> Span | None:
        """None if a processor raised."""
        self._ids.trace_id, self._ids.span_id = span.trace_id, span.span_id
        self._sampler.sampling = span.sampling
        parent = INVALID_SPAN if span.parent is None else NonRecordingSpan(span.parent)
        context = set_span_in_context(parent, span.surroundings)
        added = span.sampling.added
        try:
            return self._tracer.start_span(
                span.name,
                context,
                SpanKind.INTERNAL,
                {**span.attributes, **added} if added else span.attributes,
                span.links,
                span.start_ns,
            )
        except Exception as error:  # noqa: BLE001  the application's code
            self._on_error(error)
            return None

    def end(self, span: SdkSpan, started: Span) -> None:
        try:
            if span.is_error:
                started.set_status(StatusCode.ERROR)
            started.end(span.end_ns)
        except Exception as error:  # noqa: BLE001  the application's code
            self._on_error(error)

    def force_flush(self, timeout_s: float) -> None:
        """Some versions take longer than they may."""
        try:
            self._provider.force_flush(max(1, round(timeout_s * 1000)))
        except Exception as error:  # noqa: BLE001  the application's code
            self._on_error(error)

    def _own_tracer(self) -> Tracer:
        tracer = copy.copy(self._original)
        tracer.id_generator = self._ids
        tracer.sampler = self._sampler
        return tracer


def _sampling_of(
    result: SamplingResult, attributes: Attributes, links: tuple[Link, ...]
) -> TraceSampling:
    given: Mapping[str, Any] = result.attributes or {}
    return TraceSampling(
        decision=result.decision,
        flags=_SAMPLED if result.decision is Decision.RECORD_AND_SAMPLE else _NOT_SAMPLED,
        trace_state=result.trace_state,
        added={k: v for k, v in given.items() if k not in attributes or attributes[k] != v},
        links=links,
    )


class _GivenIds(IdGenerator):
    """The SDK's own draws from the user's ``random``."""

    trace_id = 0
    span_id = 0

    def generate_trace_id(self) -> int:
        return self.trace_id

    def generate_span_id(self) -> int:
        return self.span_id

    def is_trace_id_random(self) -> bool:
        """A hash is as good as random."""
        return True


class _GivenSampler(Sampler):
    """Repeats the decision of the application's sampler."""

    sampling = FAILED

    def should_sample(
        self,
        parent_context: Context | None,  # noqa: ARG002
        trace_id: int,  # noqa: ARG002
        name: str,  # noqa: ARG002
        kind: SpanKind | None = None,  # noqa: ARG002
        attributes: Any = None,
        links: Any = None,  # noqa: ARG002
        trace_state: TraceState | None = None,  # noqa: ARG002
    ) -> SamplingResult:
        return SamplingResult(self.sampling.decision, attributes, self.sampling.trace_state)

    def get_description(self) -> str:
        return "otel_straggler: once per step"

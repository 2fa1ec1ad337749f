"""Which TracerProvider of the application is fit to take our spans, and what to do about others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from otel_straggler import semconv
from otel_straggler._version import __version__
from otel_straggler.errors import ConfigError, describe

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import Tracer, TracerProvider

GLOBAL: Final = "global"
"""Stands for the provider that is set globally when ``configure()`` is called."""
_WHERE = "configure(tracer_provider=...)"
_EXPECTED = "an opentelemetry.sdk.trace.TracerProvider"


def checked_provider(given: object) -> TracerProvider:
    """The provider that ``given`` means.

    Raises:
        ConfigError: it is none of OpenTelemetry's SDK; the message says how to get one.
    """
    from opentelemetry.sdk.trace import TracerProvider

    if isinstance(given, str) and given == GLOBAL:
        return _global_provider()
    if isinstance(given, TracerProvider):
        return given
    message = describe(where=_WHERE, value=given, expected=_EXPECTED, remedy=_remedy_for(given))
    raise ConfigError(message)


def tracer_of(provider: TracerProvider) -> Tracer:
    """The provider's tracer for our spans.

    Raises:
        ConfigError: the provider makes tracers that are not the SDK's.
    """
    from opentelemetry.sdk.trace import Tracer

    tracer = provider.get_tracer(semconv.SCOPE_NAME, __version__, semconv.SCHEMA_URL)
    if isinstance(tracer, Tracer):
        return tracer
    message = describe(
        where=_WHERE,
        value=provider,
        expected=f"{_EXPECTED} whose tracers are the SDK's; this one gives {tracer!r}",
        remedy="Was it made while OTEL_SDK_DISABLED was set? Make it anew without, or leave "
        "tracer_provider out and name an endpoint.",
    )
    raise ConfigError(message)


def _global_provider() -> TracerProvider:
    from opentelemetry import trace
    from opentelemetry.sdk.trace import TracerProvider

    found = trace.get_tracer_provider()
    if isinstance(found, TracerProvider):
        return found
    message = describe(
        where=_WHERE,
        value=GLOBAL,
        expected=f"{_EXPECTED} to be set globally; found {type(found).__name__}",
        remedy="Call opentelemetry.trace.set_tracer_provider(...) before configure(), or leave "
        "tracer_provider out and name an endpoint.",
    )
    raise ConfigError(message)


def _remedy_for(given: object) -> str:
    from opentelemetry import trace

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

"""What cannot be a TracerProvider of ours is refused at once, with the remedy."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider

from otel_straggler import configure, flush, section
from otel_straggler.errors import ConfigError

from .conftest import Application


class Foreign(trace.TracerProvider):
    """Another implementation of the API."""

    def get_tracer(self, *args: Any, **more: Any) -> trace.Tracer:
        return trace.NoOpTracer()


class Odd(TracerProvider):
    """The SDK's, but its tracers are not."""

    def get_tracer(self, *args: Any, **more: Any) -> trace.Tracer:
        return trace.NoOpTracer()


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (trace.ProxyTracerProvider(), "set_tracer_provider(...) first"),
        (trace.NoOpTracerProvider(), "provider of opentelemetry-sdk"),
        (Foreign(), "leave tracer_provider out and name an endpoint"),
        ("otlp", "get_tracer_provider() once the application has set it, or 'global'"),
        (TracerProvider, "Pass the provider itself"),
        (Odd(), "OTEL_SDK_DISABLED"),
    ],
    ids=["proxy", "no-op", "foreign", "text", "class", "odd"],
)
def test_a_provider_that_is_not_the_sdks_is_refused_with_the_remedy(
    given: object, says: str
) -> None:
    """The message names the argument, the value, what was expected and what to do."""
    with pytest.raises(ConfigError) as refused:
        configure(tracer_provider=given)  # type: ignore[arg-type]
    message = str(refused.value)
    assert message.startswith(f"configure(tracer_provider=...): got {given!r}; expected an ")
    assert "opentelemetry.sdk.trace.TracerProvider" in message
    assert says in message


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"propagate_context": True}, "expected a tracer_provider with it"),
        ({"sdk_spans_per_s": 5}, "a tracer_provider with it"),
        ({"tracer_provider": TracerProvider(), "sdk_spans_per_s": 0}, "above 0"),
        ({"tracer_provider": TracerProvider(), "sdk_spans_per_s": True}, "above 0"),
        ({"tracer_provider": TracerProvider(), "propagate_context": 1}, "True or False"),
    ],
)
def test_what_makes_no_sense_without_a_provider_is_refused(more: Any, says: str) -> None:
    """Nothing is ignored silently."""
    with pytest.raises(ConfigError, match="expected") as refused:
        configure(**more)
    assert says in str(refused.value)


GLOBAL = """
import io
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor
import otel_straggler as o
try:
    o.configure(tracer_provider="global")
except o.errors.ConfigError as error:
    assert "set_tracer_provider(...) before configure()" in str(error), error
    assert "found ProxyTracerProvider" in str(error), error
else:
    raise SystemExit("not refused")
provider = TracerProvider()
exporter = ConsoleSpanExporter(formatter=lambda span: span.name + "\\n")
provider.add_span_processor(SimpleSpanProcessor(exporter))
trace.set_tracer_provider(provider)
o.configure(tracer_provider="global")
with o.section("a"):
    pass
o.shutdown("ok")
assert trace.get_tracer_provider() is provider
"""


def test_global_means_the_provider_that_is_set_when_configure_is_called() -> None:
    """Refused while there is none; used once there is."""
    done = subprocess.run(
        [sys.executable, "-c", GLOBAL], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (0, "a\n"), done.stderr


def test_telemetry_that_is_switched_off_leaves_the_provider_alone(
    application: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    """OTEL_SDK_DISABLED is no reason to refuse; there is just nothing to do."""
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    application.configure(propagate_context=True)
    with section("a"):
        assert not trace.get_current_span().get_span_context().is_valid
    assert flush()
    assert application.spans() == []


def test_the_same_provider_again_changes_nothing_and_another_is_refused(
    application: Application,
) -> None:
    """As with every other argument of configure()."""
    application.configure()
    application.configure()
    with pytest.raises(ConfigError, match=r"call shutdown\(\) before it"):
        application.configure(tracer_provider=TracerProvider())


def test_importing_the_package_and_recording_without_a_provider_loads_no_sdk() -> None:
    """Who does not use it does not pay for it."""
    script = (
        "import sys, otel_straggler as o; o.configure(endpoint='http://127.0.0.1:9'); "
        "sys.exit('opentelemetry.sdk.trace' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], timeout=60, check=False)
    assert done.returncode == 0

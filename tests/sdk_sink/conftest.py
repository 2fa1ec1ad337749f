"""An application with an SDK TracerProvider of its own, and a clean process for each test."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import pytest
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import Sampler

from otel_straggler import configure, shutdown
from otel_straggler.client.recording import RECORDER
from otel_straggler.native import VARIABLE
from otel_straggler.testing import CapturedRequests


class Application:
    """A program that traces itself.

    Attributes:
        provider: its own, not set globally.
        exporter: remembers the spans that arrive there.
    """

    def __init__(self, sampler: Sampler | None, processors: tuple[SpanProcessor, ...]) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider(
            sampler=sampler,
            resource=Resource({"service.name": "shop"}),
            shutdown_on_exit=False,
        )
        for processor in processors:
            self.provider.add_span_processor(processor)
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.tracer = self.provider.get_tracer("shop")

    def configure(self, **more: object) -> None:
        """Have our spans go through the application's provider."""
        arguments = {"tracer_provider": self.provider, "run_id": "run", "rank": 3, "world_size": 8}
        configure(**(arguments | more))  # type: ignore[arg-type]

    def spans(self) -> list[ReadableSpan]:
        """All spans that were exported, in order."""
        return list(self.exporter.get_finished_spans())

    def ours(self) -> list[ReadableSpan]:
        """Those that are not the application's own."""
        return [s for s in self.spans() if s.instrumentation_scope.name == "otel_straggler"]

    def by_name(self) -> dict[str, ReadableSpan]:
        return {span.name: span for span in self.spans()}


MakeApplication = Callable[..., Application]


@pytest.fixture(autouse=True)
def _clean_process(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No test sees the environment or the session of another."""
    for name in [n for n in os.environ if n.startswith(("OTEL_", "SLURM_", "TORCHELASTIC_"))]:
        if name != VARIABLE:
            monkeypatch.delenv(name)
    yield
    shutdown()
    RECORDER.disable()
    RECORDER.drain()


@pytest.fixture
def make_application() -> Iterator[MakeApplication]:
    made: list[Application] = []

    def make(sampler: Sampler | None = None, *processors: SpanProcessor) -> Application:
        made.append(Application(sampler, processors))
        return made[-1]

    yield make
    shutdown()
    for application in made:
        application.provider.shutdown()


@pytest.fixture
def application(make_application: MakeApplication) -> Application:
    return make_application()


@pytest.fixture
def sink() -> Iterator[CapturedRequests]:
    with CapturedRequests() as captured:
        yield captured

"""The application's sampler decides once per step; what its code raises hurts nobody."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import pytest
from opentelemetry.context import Context
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor
from opentelemetry.sdk.trace.sampling import (
    ALWAYS_OFF,
    Decision,
    Sampler,
    SamplingResult,
)
from opentelemetry.trace import Link, SpanKind, TraceState
from opentelemetry.util.types import Attributes

from otel_straggler import flush, section, shutdown, step
from otel_straggler.client.sender import SDK_ERROR
from otel_straggler.otlp.ids import step_trace_id
from otel_straggler.testing import CapturedRequests

from .conftest import MakeApplication


class Asked(Sampler):
    """Remembers what it was asked; keeps even steps and marks them."""

    def __init__(self) -> None:
        self.questions: list[tuple[int, str, dict[str, Any]]] = []

    def should_sample(
        self,
        parent_context: Context | None,
        trace_id: int,
        name: str,
        kind: SpanKind | None = None,
        attributes: Attributes = None,
        links: Sequence[Link] | None = None,
        trace_state: TraceState | None = None,
    ) -> SamplingResult:
        given = dict(attributes or {})
        self.questions.append((trace_id, name, given))
        if int(str(given["training.step"])) % 2:
            return SamplingResult(Decision.DROP)
        added = {"sampler": "even", "straggler.time_basis": "changed"}
        return SamplingResult(
            Decision.RECORD_AND_SAMPLE, {**given, **added}, TraceState([("vendor", "x")])
        )

    def get_description(self) -> str:
        return "Asked"


class Remember(SpanProcessor):
    """What a processor is told."""

    def __init__(self) -> None:
        self.started: list[str] = []
        self.ended: list[ReadableSpan] = []

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        self.started.append(span.name)
        span.set_attribute("seen", span.name)

    def on_end(self, span: ReadableSpan) -> None:
        self.ended.append(span)


def test_the_sampler_is_asked_once_per_step_with_the_step_span(
    make_application: MakeApplication,
) -> None:
    """Its decision, attributes and trace state hold for the whole step on this rank."""
    sampler = Asked()
    application = make_application(sampler)
    application.configure()
    for n in range(4):
        with step(n), section("a"), section("b"):
            pass
    assert flush()
    assert [(trace, name) for trace, name, _ in sampler.questions] == [
        (int(step_trace_id("run", 0, "", n).hex(), 16), "step") for n in range(4)
    ]
    assert sampler.questions[0][2]["training.rank"] == 3
    spans = application.ours()
    assert [(s.attributes or {})["training.step"] for s in spans] == [0, 0, 0, 2, 2, 2]
    assert {(s.attributes or {})["sampler"] for s in spans} == {"even"}
    assert {(s.attributes or {})["straggler.time_basis"] for s in spans} == {"changed"}
    assert {s.context.trace_state.to_header() for s in spans} == {"vendor=x"}
    assert all(s.context.trace_flags.sampled for s in spans)


def test_nothing_of_a_dropped_step_reaches_the_processors(
    make_application: MakeApplication,
) -> None:
    """Always off is off."""
    processor = Remember()
    application = make_application(ALWAYS_OFF, processor)
    application.configure()
    with step(1), section("a"):
        pass
    with section("lone"):
        pass
    assert flush()
    assert (processor.started, processor.ended, application.spans()) == ([], [], [])


def test_record_only_reaches_processors_without_the_sampled_flag(
    make_application: MakeApplication,
) -> None:
    """As the SDK has it: processors see the span, exporters do not."""

    class RecordOnly(Asked):
        def should_sample(self, *args: Any, **more: Any) -> SamplingResult:
            return SamplingResult(Decision.RECORD_ONLY)

    processor = Remember()
    application = make_application(RecordOnly(), processor)
    application.configure()
    with section("a"):
        pass
    assert flush()
    assert [s.context.trace_flags.sampled for s in processor.ended] == [False]
    assert application.spans() == []


def test_a_processor_may_change_a_span_when_it_starts(make_application: MakeApplication) -> None:
    """Our spans are the SDK's own kind: what on_start adds is exported."""
    processor = Remember()
    application = make_application(None, processor)
    application.configure()
    with step(1), section("a"):
        pass
    assert flush()
    assert {s.name: (s.attributes or {})["seen"] for s in application.ours()} == {
        "a": "a",
        "step": "step",
    }


class Raises(SpanProcessor):
    """A processor with a defect."""

    def __init__(self, where: str) -> None:
        self._where = where

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        if self._where == "on_start":
            raise KeyError(span.name)

    def on_end(self, span: ReadableSpan) -> None:
        if self._where == "on_end":
            raise KeyError(span.name)

    def force_flush(self, timeout_millis: int = 30000) -> bool:
        if self._where == "force_flush":
            raise KeyError("flush")
        return True


@pytest.mark.parametrize(
    ("where", "losses"),
    # flush() and shutdown() both flush it; the last heartbeat may go out before or after
    [("on_start", {4}), ("on_end", {4}), ("force_flush", {1, 2})],
)
@pytest.mark.parametrize("propagate_context", [False, True])
def test_a_processor_that_raises_is_counted_and_logged_once(
    where: str,
    losses: set[int],
    propagate_context: bool,
    make_application: MakeApplication,
    sink: CapturedRequests,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Neither training nor our own export notices."""
    application = make_application(None, Raises(where))
    application.configure(endpoint=sink.url, propagate_context=propagate_context)
    for n in range(2):
        with step(n), section("a"):
            pass
    assert flush()
    shutdown("ok")
    assert len(sink.spans()) == 4
    counted = [p.value for p in sink.points() if p.attributes.get("reason") == SDK_ERROR]
    assert counted[-1] in losses
    reported = [r for r in caplog.records if r.name == "otel_straggler" and r.exc_info]
    assert len(reported) == 1
    assert reported[0].levelno == logging.WARNING


class Broken(Asked):
    """A sampler with a defect."""

    def should_sample(self, *args: Any, **more: Any) -> SamplingResult:
        raise ZeroDivisionError


@pytest.mark.parametrize("propagate_context", [False, True])
def test_a_sampler_that_raises_stops_nothing(
    propagate_context: bool,
    make_application: MakeApplication,
    sink: CapturedRequests,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The steps are left out of the application's tracing; the collector still gets them."""
    application = make_application(Broken())
    application.configure(endpoint=sink.url, propagate_context=propagate_context)
    for n in range(3):
        with step(n), section("a"):
            pass
    with section("lone"):
        pass
    assert flush()
    assert application.spans() == []
    assert len(sink.spans()) == 7
    assert len([r for r in caplog.records if r.exc_info]) == 1

"""A program with its own TracerProvider sees our spans once, with its resource, parents right."""

from __future__ import annotations

import io
import json
import threading

import pytest
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanLimits, TracerProvider
from opentelemetry.sdk.trace.export import (
    BatchSpanProcessor,
    ConsoleSpanExporter,
    SimpleSpanProcessor,
)
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
from opentelemetry.trace import StatusCode

from otel_straggler import configure, flush, phase, section, shutdown, step
from otel_straggler.client import sdk_feed
from otel_straggler.client.recording import RECORDER
from otel_straggler.client.sender import SDK_RATE
from otel_straggler.otlp.decode_spans import SpanDecoder
from otel_straggler.otlp.ids import step_trace_id
from otel_straggler.testing import CapturedRequests, CapturedSpan

from ..waiting import eventually
from .conftest import Application, MakeApplication

ALL = 1_000_000


def parent_of(span: ReadableSpan, spans: dict[str, ReadableSpan]) -> str | None:
    """The name of a span's parent."""
    if span.parent is None:
        return None
    assert span.parent.trace_id == span.context.trace_id
    return next(n for n, s in spans.items() if s.context.span_id == span.parent.span_id)


def test_a_console_exporter_shows_our_spans_once_with_the_resource_of_the_application() -> None:
    """Whatever the application prints, ours stand in it like its own."""
    out = io.StringIO()
    provider = TracerProvider(
        sampler=ParentBased(TraceIdRatioBased(1.0)), resource=Resource({"service.name": "shop"})
    )
    provider.add_span_processor(SimpleSpanProcessor(ConsoleSpanExporter(out=out)))
    configure(tracer_provider=provider, run_id="run")
    with provider.get_tracer("shop").start_as_current_span("own"), step(7), section("forward"):
        pass
    assert flush()
    provider.shutdown()
    shutdown()
    decoder = json.JSONDecoder()
    text, printed = out.getvalue().strip(), []
    while text:
        span, end = decoder.raw_decode(text)
        printed.append(span)
        text = text[end:].strip()
    assert sorted(span["name"] for span in printed) == ["forward", "own", "step"]
    assert {json.dumps(s["resource"]["attributes"]) for s in printed} == {
        '{"service.name": "shop"}'
    }
    spans = {span["name"]: span for span in printed}
    assert spans["forward"]["parent_id"] == spans["step"]["context"]["span_id"]
    assert spans["step"]["parent_id"] is None
    assert spans["own"]["parent_id"] is None
    assert spans["step"]["context"]["trace_id"] == "0x" + step_trace_id("run", 0, "", 7).hex()


def test_what_a_section_waited_in_collectives_is_in_its_span(application: Application) -> None:
    """As in the spans that go to a collector."""
    application.configure()
    with step(7), section("forward"):
        with section("waits"):
            RECORDER.add_wait(5)
        with section("works"):
            pass
    shutdown()
    reported = {
        name: (
            (span.attributes or {})["straggler.time_basis"],
            (span.attributes or {}).get("straggler.collective.wait_time_ns"),
        )
        for name, span in application.by_name().items()
    }
    waited = ("collective", 5)
    assert reported == {
        "waits": waited, "works": ("host", None), "forward": waited, "step": waited,
    }  # fmt: skip


def test_parents_are_right_for_nested_sections_threads_decorators_and_no_step(
    application: Application,
) -> None:
    """Under the enclosing section of the same thread, else under the step, else a root."""

    @section("decorated")
    def work() -> None:
        with section("inside"):
            pass

    def in_thread() -> None:
        with section("threaded"):
            pass

    application.configure()
    with step(1), section("outer"):
        with section("inner"), section("innermost"):
            pass
        work()
        thread = threading.Thread(target=in_thread)
        thread.start()
        thread.join()
    with section("lone"), section("in lone"):
        pass
    assert flush()
    spans = application.by_name()
    assert {name: parent_of(span, spans) for name, span in spans.items()} == {
        "step": None,
        "outer": "step",
        "inner": "outer",
        "innermost": "inner",
        "decorated": "outer",
        "inside": "decorated",
        "threaded": "step",
        "lone": None,
        "in lone": "lone",
    }
    assert len(application.spans()) == len(spans)


def test_a_span_says_what_it_says_on_the_wire_and_who_sent_it(application: Application) -> None:
    """The resource is the application's, so the rank stands on the span."""
    application.configure(group="critic")
    with step(5), phase("eval"), section("load", kind="data").run(microbatch=1, tokens=2):
        pass
    assert flush()
    span = application.by_name()["load"]
    attributes = dict(span.attributes or {})
    assert len(str(attributes.pop("straggler.session.id"))) == 16
    assert attributes == {
        "straggler.section": "load",
        "straggler.section.kind": "data",
        "straggler.section.parent": "eval",
        "straggler.time_basis": "host",
        "straggler.phase": "eval",
        "straggler.seq": 0,
        "training.step": 5,
        "training.microbatch": 1,
        "training.tokens": 2,
        "training.run.id": "run",
        "training.run.attempt": 0,
        "training.group": "critic",
        "training.rank": 3,
        "training.world_size": 8,
        "training.role": "default",
    }
    assert dict(span.resource.attributes) == {"service.name": "shop"}


def test_identity_that_the_resource_has_is_not_said_again() -> None:
    """An application that names its rank already pays for it once."""
    out = io.StringIO()
    provider = TracerProvider(resource=Resource({"training.rank": 3, "training.run.id": "theirs"}))
    provider.add_span_processor(
        SimpleSpanProcessor(ConsoleSpanExporter(out=out, formatter=lambda span: span.to_json(None)))
    )
    configure(tracer_provider=provider, run_id="run", rank=3, world_size=8)
    with section("a"):
        pass
    assert flush()
    attributes = json.loads(out.getvalue())["attributes"]
    assert "training.rank" not in attributes
    assert attributes["training.run.id"] == "run"


def test_a_section_that_fails_has_the_status_of_an_error(application: Application) -> None:
    """As on the wire; the others have none."""
    application.configure()
    with pytest.raises(OSError), step(1), section("broken"):  # noqa: PT011
        raise OSError
    with section("well"):
        pass
    assert flush()
    statuses = {name: span.status.status_code for name, span in application.by_name().items()}
    assert statuses == {
        "broken": StatusCode.ERROR,
        "step": StatusCode.ERROR,
        "well": StatusCode.UNSET,
    }


def test_a_collector_and_the_provider_get_the_same_ids_parents_and_numbers(
    application: Application, sink: CapturedRequests
) -> None:
    """A row that arrives both ways is one row: same trace, same span, same sequence number."""
    application.configure(endpoint=sink.url, sdk_spans_per_s=ALL)
    for n in range(3):
        with step(n), section("outer"), section("inner"):
            pass
    with section("lone"):
        pass
    assert flush()
    on_wire = {wire_key(span): wire_numbers(span) for span in sink.spans()}
    in_sdk = {sdk_key(span): sdk_numbers(span) for span in application.ours()}
    assert len(on_wire) == 10
    assert in_sdk.keys() == on_wire.keys()
    step_roots = {key for key, numbers in on_wire.items() if numbers[0] == "step"}
    for key in on_wire.keys() - step_roots:
        assert in_sdk[key] == on_wire[key]
    assert sink.points()


def wire_key(span: CapturedSpan) -> tuple[str, str]:
    return span.trace_id.hex(), span.span_id.hex()


def wire_numbers(span: CapturedSpan) -> tuple[object, ...]:
    session = span.resource["straggler.session.id"]
    parent = span.parent_id.hex()
    duration_ns = span.end_ns - span.start_ns
    return span.name, parent, duration_ns, span.attributes.get("straggler.seq"), session


def sdk_key(span: ReadableSpan) -> tuple[str, str]:
    return f"{span.context.trace_id:032x}", f"{span.context.span_id:016x}"


def sdk_numbers(span: ReadableSpan) -> tuple[object, ...]:
    attributes = span.attributes or {}
    parent = f"{span.parent.span_id:016x}" if span.parent else ""
    duration_ns = (span.end_time or 0) - (span.start_time or 0)
    session = attributes["straggler.session.id"]
    return span.name, parent, duration_ns, attributes.get("straggler.seq"), session


def test_a_collector_scores_what_the_applications_exporter_sends(application: Application) -> None:
    """The same rank, run, session, step, section and sequence number as from our own exporter."""
    application.configure()
    with step(4), section("forward"):
        pass
    assert flush()
    session = application.ours()[0].attributes["straggler.session.id"]  # type: ignore[index]
    decoded = SpanDecoder().decode(encode_spans(application.ours()).SerializeToString())
    (source,) = decoded.batch.sources
    assert (source.run_id, source.rank, source.world_size) == ("run", 3, 8)
    assert (source.session_id, source.job) == (session, "shop")
    assert decoded.outcomes == {"row": 1, "step": 1}
    assert (decoded.batch.step.tolist(), decoded.batch.seq.tolist()) == ([4], [0])


def test_without_a_named_collector_no_connection_is_opened(
    application: Application, sink: CapturedRequests, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The application's pipeline sends; where OTEL_* points is its business."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", sink.url)
    application.configure(heartbeat_s=0.01, flush_s=0.01)
    with step(1), section("a"):
        pass
    assert flush()
    shutdown("ok")
    assert [span.name for span in application.spans()] == ["a", "step"]
    assert sink.requests == []


def test_the_variable_of_a_collector_counts_as_naming_it(
    application: Application, sink: CapturedRequests, monkeypatch: pytest.MonkeyPatch
) -> None:
    """OTEL_STRAGGLER_ENDPOINT says that there is a scorer: it gets everything."""
    monkeypatch.setenv("OTEL_STRAGGLER_ENDPOINT", sink.url)
    application.configure()
    with section("a"):
        pass
    assert flush()
    assert [span.name for span in sink.spans()] == [s.name for s in application.spans()] == ["a"]


def test_a_batch_processor_has_sent_when_flush_returns() -> None:
    """flush() waits for what the application's processors hold back as well."""
    out = io.StringIO()
    provider = TracerProvider()
    provider.add_span_processor(
        BatchSpanProcessor(
            ConsoleSpanExporter(out=out, formatter=lambda span: span.name + "\n"),
            schedule_delay_millis=3_600_000,
        )
    )
    configure(tracer_provider=provider, run_id="run")
    with step(1), section("a"):
        pass
    assert flush()
    assert out.getvalue().split() == ["a", "step"]
    provider.shutdown()


def test_span_limits_of_the_application_hold_for_our_spans() -> None:
    """Its provider, its rules."""
    seen: list[ReadableSpan] = []
    provider = TracerProvider(span_limits=SpanLimits(max_span_attributes=2))
    provider.add_span_processor(Remember(seen))
    configure(tracer_provider=provider, run_id="run")
    with section("a"):
        pass
    assert flush()
    assert [(len(span.attributes or {}), span.dropped_attributes > 0) for span in seen] == [
        (2, True)
    ]


class Remember(SimpleSpanProcessor):
    """Keeps what ends."""

    def __init__(self, seen: list[ReadableSpan]) -> None:
        self._seen = seen

    def on_end(self, span: ReadableSpan) -> None:
        self._seen.append(span)

    def shutdown(self) -> None:
        """Nothing to close."""


def test_spans_begin_and_end_for_processors_in_the_order_in_which_they_ran(
    make_application: MakeApplication,
) -> None:
    """A processor that follows traces sees a parent before its children, as the SDK promises."""
    events: list[str] = []

    class Order(SimpleSpanProcessor):
        def __init__(self) -> None:
            pass

        def on_start(self, span: ReadableSpan, parent_context: object = None) -> None:
            events.append(f"+{span.name}")

        def on_end(self, span: ReadableSpan) -> None:
            events.append(f"-{span.name}")

        def shutdown(self) -> None:
            pass

    make_application(None, Order()).configure()
    with step(1):
        with section("a"), section("b"):
            pass
        with section("c"):
            pass
    assert flush()
    assert events == ["+step", "+a", "+b", "-b", "-a", "+c", "-c", "-step"]


def test_sections_of_a_step_that_does_not_end_come_after_a_while(
    application: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step that hangs is no reason to hide what it has done."""
    monkeypatch.setattr(sdk_feed, "HOLD_S", 0.0)
    application.configure(flush_s=0.01)
    with step(1):
        with section("a"):
            pass
        eventually(lambda: "a" in application.by_name())
    assert flush()
    spans = application.by_name()
    assert parent_of(spans["a"], spans) == "step"


def test_above_the_rate_whole_steps_are_left_out_and_counted(
    application: Application, sink: CapturedRequests, caplog: pytest.LogCaptureFixture
) -> None:
    """At most so many spans a second; a trace is there or not, never in part."""
    application.configure(endpoint=sink.url, sdk_spans_per_s=10, span_budget=0)
    for n in range(100):
        with step(n):
            for _ in range(6):
                with section("a"):
                    pass
    assert flush()
    shutdown("ok")
    spans_by_step: dict[object, int] = {}
    for span in application.ours():
        number = (span.attributes or {})["training.step"]
        spans_by_step[number] = spans_by_step.get(number, 0) + 1
    assert set(spans_by_step.values()) == {7}
    assert 2 <= len(spans_by_step) <= 20
    counted = [p.value for p in sink.points() if p.attributes.get("reason") == SDK_RATE]
    assert counted[-1] == 700 - len(application.ours())
    assert len(sink.spans()) == 700
    reported = [r for r in caplog.records if "sdk_spans_per_s" in r.getMessage()]
    assert len(reported) == 1


def test_a_ratio_sampler_keeps_the_same_steps_on_every_rank(
    make_application: MakeApplication,
) -> None:
    """The trace id is a hash of run and step, so the ratio holds and ranks agree."""
    kept = []
    for rank in (0, 1):
        application = make_application(ParentBased(TraceIdRatioBased(0.25)))
        application.configure(rank=rank, sdk_spans_per_s=ALL)
        for n in range(200):
            with step(n), section("a"):
                pass
        assert flush()
        shutdown()
        steps = [(s.attributes or {})["training.step"] for s in application.ours()]
        assert sorted(steps) == sorted(2 * sorted(set(steps)))  # type: ignore[type-var]
        kept.append(set(steps))
    assert kept[0] == kept[1]
    assert 25 < len(kept[0]) < 80

"""The span budget: which sections are folded, when, and what stays as it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from otel_straggler import section, semconv, step
from otel_straggler.client.python_export import Exporter
from otel_straggler.testing import CapturedRequests, FakeClock

MakeExporter = Callable[..., Exporter]


def tick(exporter: Exporter, clock: FakeClock, after_s: float = 1.0) -> None:
    clock.advance(after_s)
    exporter.tick(clock.monotonic_s())


def counts(sink: CapturedRequests, name: str) -> list[Any]:
    return [s.attributes.get(semconv.FOLD_COUNT, 1) for s in sink.spans() if s.name == name]


def test_a_hot_section_arrives_as_one_span_for_each_step(
    make_exporter: MakeExporter, sink: CapturedRequests, clock: FakeClock
) -> None:
    """With all its runs; steps and failures stay spans of their own, and heartbeats count it."""
    exporter = make_exporter(span_budget=50)
    for number in range(3):
        with step(number), section("forward"):
            for _ in range(100):
                with section("attention"):
                    pass
            try:
                with section("attention"):
                    raise ValueError
            except ValueError:
                pass
    tick(exporter, clock)
    tick(exporter, clock, after_s=5.0)
    assert counts(sink, "attention") == [100, 1] * 3
    assert counts(sink, "forward") == [1] * 3
    assert len(counts(sink, "step")) == 3
    spans = {s.attributes.get(semconv.FOLD_COUNT): s for s in sink.spans() if s.name == "attention"}
    steps = {s.attributes[semconv.STEP]: s for s in sink.spans() if s.name == "step"}
    assert spans[100].parent_id == steps[2].span_id
    assert spans[100].attributes[semconv.SECTION_PARENT] == "forward"
    assert sorted(s.attributes[semconv.SEQ] for s in sink.spans() if s.name == "attention") == [
        0,
        100,
        101,
        201,
        202,
        302,
    ]
    reported = {p.attributes[semconv.SECTION]: p.value for p in sink.points(semconv.RECORDS_FOLDED)}
    assert reported == {"attention": 300}


def test_runs_are_counted_when_a_folded_span_is_lost(
    make_exporter: MakeExporter, sink: CapturedRequests, clock: FakeClock
) -> None:
    """Three spans are refused, and with them 302 records."""
    exporter = make_exporter(span_budget=50)
    sink.behaviour.next_statuses = [200, 400]
    with step(1), section("forward"):
        for _ in range(300):
            with section("attention"):
                pass
    tick(exporter, clock)
    tick(exporter, clock, after_s=5.0)
    losses = {p.attributes["reason"]: p.value for p in sink.points(semconv.RECORDS_DROPPED)}
    assert losses == {"rejected": 302}


def test_what_is_in_a_folded_section_hangs_under_the_step(
    make_exporter: MakeExporter, sink: CapturedRequests, clock: FakeClock
) -> None:
    """The run around it has no span that could be its parent; its name is told all the same."""
    exporter = make_exporter(span_budget=50)
    with step(0):
        for number in range(200):
            with section("layer"):
                if number == 100:
                    with section("rare"):
                        pass
    tick(exporter, clock)
    spans = {span.name: span for span in sink.spans()}
    assert spans["rare"].parent_id == spans["layer"].parent_id == spans["step"].span_id
    assert spans["rare"].attributes[semconv.SECTION_PARENT] == "layer"

"""The span budget: which sections are folded, when, and what stays as it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from otel_straggler import section, semconv, step
from otel_straggler.record.exporter_thread import Exporter
from otel_straggler.record.fold_rule import FoldRule
from otel_straggler.testing import CapturedRequests, FakeClock

MakeExporter = Callable[..., Exporter]
SECOND_NS = 10**9


def seconds(rule: FoldRule, count: int, rates: dict[str, int], first_ns: int = 0) -> list[set[str]]:
    """What is folded in each of so many seconds, with ten steps a second."""
    folded = []
    for second in range(count):
        rule.decide(
            (name, second * 10 + tick, first_ns + second * SECOND_NS + tick * SECOND_NS // 10)
            for tick in range(10)
            for name, rate in rates.items()
            for _ in range(rate // 10)
        )
        folded.append(set(rule.folded))
    return folded


def test_under_the_budget_nothing_is_folded() -> None:
    """The usual case: some ten sections in some steps a second."""
    assert seconds(FoldRule(200), 100, {"forward": 100, "backward": 90})[-1] == set()


def test_without_a_budget_nothing_is_ever_folded() -> None:
    """``span_budget=0``."""
    assert not FoldRule(0).is_on


def test_the_section_that_saves_most_is_folded_at_once() -> None:
    """In the first second already, before it is sent; and no more sections than needed."""
    folded = seconds(FoldRule(200), 60, {"attention": 5_000, "norm": 300, "forward": 100})
    assert folded[0] >= {"attention"}
    assert folded[-1] == {"attention", "norm"}
    assert seconds(FoldRule(200), 60, {"attention": 5_000, "forward": 100})[-1] == {"attention"}


def test_a_section_that_runs_once_a_step_is_left_alone() -> None:
    """A span for each step is what folding would make of it."""
    rates = dict.fromkeys(map(str, range(100)), 10)
    assert seconds(FoldRule(200), 10, rates)[-1] == set()


def test_a_rate_around_the_budget_does_not_flap() -> None:
    """Once folded it stays so, until it would have fitted for 30 s in a row."""
    rule = FoldRule(200)
    changes = 0
    before: set[str] = set()
    for minute in range(10):
        for second in range(60):
            rates = {"attention": 240 if second % 2 else 170}
            first_ns = (minute * 60 + second) * SECOND_NS
            [now] = seconds(rule, 1, rates, first_ns)
            changes += now != before
            before = now
    assert changes == 1


def test_a_section_that_has_cooled_down_is_let_go() -> None:
    """After half a minute in which all would have fitted."""
    rule = FoldRule(200)
    seconds(rule, 5, {"attention": 5_000})
    folded = seconds(rule, 60, {"attention": 100}, 5 * SECOND_NS)
    assert folded[20] == {"attention"}
    assert folded[-1] == set()


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 3), st.integers(-(2**63), 2**63))))
def test_any_clock_is_survived(runs: list[tuple[str, int, int]]) -> None:
    """Times that jump are judged somehow, and never raise."""
    rule = FoldRule(3)
    for run in runs:
        rule.decide([run])
    assert rule.folded <= set("abc")


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
    told = {p.attributes[semconv.SECTION]: p.value for p in sink.points(semconv.RECORDS_FOLDED)}
    assert told == {"attention": 300}


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

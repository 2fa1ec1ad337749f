"""The exporter, ticked by hand, against a sink that decodes what arrives."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable

import pytest

from otel_straggler import phase, section, semconv, set_topology, step
from otel_straggler.client.python_export import Exporter
from otel_straggler.client.recording import FORM, RECORDER
from otel_straggler.otlp.ids import root_span_id, step_trace_id
from otel_straggler.testing import CapturedRequests, CapturedSpan, FakeClock

MakeExporter = Callable[..., Exporter]


@pytest.fixture(params=["http/protobuf", "grpc"])
def protocol(request: pytest.FixtureRequest) -> str:
    """Every test here holds for both transports."""
    return str(request.param)


def tick(exporter: Exporter, clock: FakeClock, after_s: float = 1.0) -> None:
    clock.advance(after_s)
    exporter.tick(clock.monotonic_s())


def by_name(spans: list[CapturedSpan]) -> dict[str, CapturedSpan]:
    return {span.name: span for span in spans}


def run_steps(count: int, first: int = 0) -> None:
    for n in range(first, first + count):
        with step(n), section("forward"):
            pass


def test_a_section_arrives_with_all_that_scoring_needs(
    make_exporter: MakeExporter, sink: CapturedRequests, clock: FakeClock
) -> None:
    """Name, kind, step, sequence, basis of time."""
    exporter = make_exporter()
    with step(5), section("load", kind="data").run(microbatch=1, tokens=2):
        pass
    tick(exporter, clock)
    assert by_name(sink.spans())["load"].attributes == {
        "straggler.section": "load",
        "straggler.section.kind": "data",
        "straggler.time_basis": "host",
        "straggler.seq": 0,
        "training.step": 5,
        "training.microbatch": 1,
        "training.tokens": 2,
    }


def test_the_resource_says_which_rank_it_is(
    make_exporter: MakeExporter, sink: CapturedRequests, clock: FakeClock
) -> None:
    """Identity and, once known, topology, on spans as on heartbeats."""
    exporter = make_exporter(resource=(("team", "x"), ("service.name", "theirs")))
    set_topology(role="actor", data=(3, 8))
    run_steps(1)
    tick(exporter, clock)
    resource = sink.spans()[0].resource
    assert resource == sink.points()[0].resource
    assert resource.pop("straggler.session.id") == RECORDER.session.session_id
    assert resource.pop("straggler.recorder") == FORM
    assert resource.pop("process.pid") == os.getpid()
    assert resource == {
        "team": "x",
        "service.name": "job",
        "service.instance.id": "run-1/0//3",
        "host.name": "node-a",
        "training.run.id": "run-1",
        "training.run.attempt": 0,
        "training.group": "",
        "training.rank": 3,
        "training.local_rank": 1,
        "training.world_size": 8,
        "training.role": "actor",
        "training.parallel.data.rank": 3,
        "training.parallel.data.size": 8,
    }


def test_spans_of_a_step_hang_together(
    make_exporter: MakeExporter, sink: CapturedRequests, clock: FakeClock
) -> None:
    """Section under section under step under the root that all ranks share."""
    exporter = make_exporter()
    with step(5), section("outer"), section("inner"):
        pass
    tick(exporter, clock)
    spans = by_name(sink.spans())
    trace_id = step_trace_id("run-1", 0, "", 5)
    assert {s.trace_id for s in spans.values()} == {trace_id}
    assert spans["inner"].parent_id == spans["outer"].span_id
    assert spans["outer"].parent_id == spans["step"].span_id
    assert spans["step"].parent_id == root_span_id(trace_id)


def test_the_step_span_is_no_section(
    make_exporter: MakeExporter, sink: CapturedRequests, clock: FakeClock
) -> None:
    """It covers the step and is not scored."""
    exporter = make_exporter()
    run_steps(1)
    tick(exporter, clock)
    step_span = by_name(sink.spans())["step"]
    assert step_span.attributes == {"training.step": 0, "straggler.time_basis": "host"}


def test_spans_without_a_step_have_no_parent_and_a_trace_by_time(
    make_exporter: MakeExporter, sink: CapturedRequests, clock: FakeClock
) -> None:
    """A job without steps still gets traces of a bounded size."""
    exporter = make_exporter()
    for _ in range(2):
        with section("a"):
            pass
        clock.set_wall(1_700_000_000.0)
        tick(exporter, clock)
    clock.set_wall(1_700_000_100.0)
    with section("a"):
        pass
    tick(exporter, clock)
    spans = sink.spans()
    assert {s.parent_id for s in spans} == {b""}
    assert spans[0].trace_id == spans[1].trace_id != spans[2].trace_id
    assert "training.step" not in spans[0].attributes


def test_sequence_numbers_have_no_gap(
    make_exporter: MakeExporter, sink: CapturedRequests, clock: FakeClock
) -> None:
    """Per section, over phases and drains: a gap would mean a loss."""
    exporter = make_exporter()
    for n in range(3):
        run_steps(2, first=2 * n)
        with phase("eval"), section("forward"):
            pass
        tick(exporter, clock)
    seqs = [s.attributes["straggler.seq"] for s in sink.spans() if s.name == "forward"]
    assert seqs == list(range(9))


def test_a_new_session_counts_from_zero_in_its_own_requests(
    make_exporter: MakeExporter, sink: CapturedRequests, clock: FakeClock
) -> None:
    """After the step counter went back, nothing is taken for a duplicate."""
    exporter = make_exporter()
    run_steps(2)
    run_steps(2)
    tick(exporter, clock)
    forward = [s for s in sink.spans() if s.name == "forward"]
    assert [s.attributes["straggler.seq"] for s in forward] == [0, 1, 0, 1]
    sessions = [s.resource["straggler.session.id"] for s in forward]
    assert sessions[0] == sessions[1] != sessions[2] == sessions[3]


def test_a_failed_section_has_the_status_error(
    make_exporter: MakeExporter, sink: CapturedRequests, clock: FakeClock
) -> None:
    """The collector does not score an aborted run."""
    exporter = make_exporter()
    with pytest.raises(ValueError), section("fails"):  # noqa: PT011
        raise ValueError
    with section("fine"):
        pass
    tick(exporter, clock)
    assert [(s.name, s.is_error) for s in sink.spans()] == [("fails", True), ("fine", False)]


def test_lengths_do_not_depend_on_the_wall_clock(
    make_exporter: MakeExporter, sink: CapturedRequests, clock: FakeClock
) -> None:
    """Stamps follow the wall clock at the drain, lengths the monotonic one."""
    exporter = make_exporter()
    with section("a"):
        pass
    [record] = batch = RECORDER.drain()
    exporter._drain = lambda: [batch]
    clock.set_wall(1.0e9)
    tick(exporter, clock)
    span = sink.spans()[0]
    assert span.end_ns - span.start_ns == record[2] - record[0][2]
    assert span.start_ns == pytest.approx(1.0e18, abs=60e9)


def test_requests_are_small_and_in_order(
    make_exporter: MakeExporter, sink: CapturedRequests, clock: FakeClock
) -> None:
    """At most 512 spans each, by the order of their ends."""
    exporter = make_exporter()
    run_steps(600)
    tick(exporter, clock)
    sizes = [
        len(r.decode().resource_spans[0].scope_spans[0].spans)
        for r in sink.requests
        if r.path == "/v1/traces"
    ]
    assert sizes == [512, 512, 176]
    ends = [s.end_ns for s in sink.spans()]
    assert ends == sorted(ends)


def test_long_names_do_not_make_long_requests(
    make_exporter: MakeExporter, sink: CapturedRequests, clock: FakeClock
) -> None:
    """A request stays below 1 MB, and a name below 1,024 characters."""
    exporter = make_exporter()
    for n in range(600):
        with section(f"{n}" + "ü" * 5_000):
            pass
    tick(exporter, clock)
    traces = [r for r in sink.requests if r.path == "/v1/traces"]
    assert all(len(r.body) < 1_050_000 for r in traces)
    assert len(traces) == 3
    assert {len(s.name) for s in sink.spans()} == {1024}


def test_an_old_run_that_ends_in_a_new_session_is_left_out(
    make_exporter: MakeExporter, sink: CapturedRequests, clock: FakeClock
) -> None:
    """It began under another configuration."""
    make_exporter()
    with section("old"):
        exporter = make_exporter()
    with section("new"):
        pass
    tick(exporter, clock)
    assert [s.name for s in sink.spans()] == ["new"]


def test_a_heartbeat_says_what_the_rank_is_doing(
    make_exporter: MakeExporter, sink: CapturedRequests, clock: FakeClock
) -> None:
    """Step, open section and its age, phase, progress."""
    exporter = make_exporter()
    with step(9), phase("eval"), section("forward"):
        tick(exporter, clock, after_s=20.0)
    points = {p.metric: p for p in sink.points()}
    assert points[semconv.HEARTBEAT.name].value == clock.wall_ns() / 1e9
    assert points[semconv.PROGRESS_STEP.name].value == 9
    assert points[semconv.PROGRESS.name].attributes == {"straggler.phase": "eval"}
    is_open = points[semconv.SECTION_OPEN.name]
    assert is_open.attributes == {"straggler.section": "forward", "straggler.phase": "eval"}
    assert is_open.value == pytest.approx(20.0, abs=5.0)


def test_heartbeats_come_every_five_seconds_and_are_never_kept(
    make_exporter: MakeExporter, sink: CapturedRequests, clock: FakeClock
) -> None:
    """A late heartbeat would make a dead rank look alive."""
    exporter = make_exporter()
    sink.behaviour.status = 503
    for _ in range(10):
        tick(exporter, clock)
    sink.behaviour.status = 200
    for _ in range(5):
        tick(exporter, clock)
    assert [p.value - 1.7e9 for p in sink.points(semconv.HEARTBEAT)] == [11.0]


def test_spans_follow_the_first_heartbeat_that_gets_through(
    make_exporter: MakeExporter, sink: CapturedRequests, clock: FakeClock
) -> None:
    """After a long outage the wait between tries is half a minute; scores need not wait for it."""
    exporter = make_exporter()
    sink.behaviour.drops_connections = True
    run_steps(1)
    for _ in range(120):
        tick(exporter, clock)
    sink.behaviour.drops_connections = False
    for _ in range(5):
        tick(exporter, clock)
    assert [span.name for span in sink.spans()] == ["forward", "step"]


def test_losses_are_told(
    make_exporter: MakeExporter, sink: CapturedRequests, clock: FakeClock
) -> None:
    """By reason, as a running total."""
    exporter = make_exporter()
    sink.behaviour.next_statuses = [200, 400]
    run_steps(2)
    step("x")  # type: ignore[arg-type]
    tick(exporter, clock)
    tick(exporter, clock, after_s=5.0)
    losses = {p.attributes["reason"]: p.value for p in sink.points(semconv.RECORDS_DROPPED)}
    assert losses == {"rejected": 4, "bad_step": 1}


def test_what_cannot_be_sent_before_the_end_is_told(
    make_exporter: MakeExporter,
    sink: CapturedRequests,
    clock: FakeClock,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The last heartbeat counts it, if it gets through, and the log has it in any case."""
    exporter = make_exporter()
    tick(exporter, clock)
    run_steps(2)
    sink.behaviour.next_statuses = [503, 200]
    with caplog.at_level(logging.WARNING, "otel_straggler"):
        exporter.flush(clock.monotonic_s() + 2.0, "ok")
    losses = {p.attributes["reason"]: p.value for p in sink.points(semconv.RECORDS_DROPPED)}
    assert losses == {"process_ended": 4}
    assert "4 records were not sent before the end" in caplog.text
    assert exporter.queued_requests == 0


def test_an_unknown_endpoint_gets_a_sample_and_histograms(
    make_exporter: MakeExporter, sink: CapturedRequests, clock: FakeClock
) -> None:
    """A tracing backend is not flooded; all ranks send the same steps."""
    sink.behaviour.is_scorer = False
    exporter = make_exporter(is_trusted=False, sample_steps=10)
    run_steps(500)
    tick(exporter, clock, after_s=60.0)
    steps = {s.attributes["training.step"] for s in sink.spans()}
    assert 20 < len(steps) < 90
    last = sink.requests[1].decode().resource_metrics[0].scope_metrics[0].metrics[0]
    assert last.name == semconv.SECTION_DURATION.name
    assert [p.count for p in last.histogram.data_points] == [500]


def test_histograms_keep_an_evaluation_apart(
    make_exporter: MakeExporter, sink: CapturedRequests, clock: FakeClock
) -> None:
    """As spans do: its sections have the name and kind under which they are scored."""
    sink.behaviour.is_scorer = False
    exporter = make_exporter(is_trusted=False)
    run_steps(2)
    with phase("eval"), section("forward"):
        pass
    tick(exporter, clock, after_s=60.0)
    last = sink.requests[1].decode().resource_metrics[0].scope_metrics[0].metrics[0]
    reported = {
        tuple(a.value.string_value for a in point.attributes): point.count
        for point in last.histogram.data_points
    }
    assert reported == {
        ("forward", "compute"): 2,
        ("eval/forward", "eval"): 1,
        ("eval", "eval"): 1,
    }


def test_the_sample_has_no_gaps_in_its_sequence(
    make_exporter: MakeExporter, sink: CapturedRequests, clock: FakeClock
) -> None:
    """What was not chosen is not lost."""
    sink.behaviour.is_scorer = False
    exporter = make_exporter(is_trusted=False, sample_steps=10)
    run_steps(500)
    tick(exporter, clock)
    seqs = [s.attributes["straggler.seq"] for s in sink.spans() if s.name == "forward"]
    assert seqs == list(range(len(seqs)))


def test_a_scorer_gets_everything_from_its_first_answer_on(
    make_exporter: MakeExporter, sink: CapturedRequests, clock: FakeClock
) -> None:
    """The first heartbeat is sent before the first spans."""
    exporter = make_exporter(is_trusted=False)
    run_steps(5)
    tick(exporter, clock)
    assert exporter.is_scorer
    assert len(sink.spans()) == 10


def test_the_user_is_told_once_that_only_a_sample_is_sent(
    make_exporter: MakeExporter,
    sink: CapturedRequests,
    clock: FakeClock,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """With what full rate would cost, and how to get it. Rank 0 says it for all."""
    sink.behaviour.is_scorer = False
    exporter = make_exporter(is_trusted=False, rank=0)
    run_steps(150)
    tick(exporter, clock, after_s=15.0)
    assert not caplog.records
    tick(exporter, clock, after_s=15.0)
    tick(exporter, clock, after_s=15.0)
    (reported,) = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
    assert "records 10.0 spans/s; all of them would be about 259.2 MB a day" in reported
    assert "OTEL_STRAGGLER_ENDPOINT" in reported


def test_a_signal_that_is_switched_off_is_not_sent(
    make_exporter: MakeExporter,
    settings: object,
    sink: CapturedRequests,
    clock: FakeClock,
) -> None:
    """``OTEL_TRACES_EXPORTER=none`` leaves the heartbeats, and the other way round."""
    from dataclasses import replace

    off = replace(settings.traces, is_enabled=False)  # type: ignore[attr-defined]
    exporter = make_exporter(traces=off)
    run_steps(1)
    tick(exporter, clock)
    assert sink.points()
    assert not sink.spans()


def test_the_end_is_told_once(
    make_exporter: MakeExporter, sink: CapturedRequests, clock: FakeClock
) -> None:
    """After the spans, with the outcome; no heartbeat follows."""
    exporter = make_exporter()
    run_steps(1)
    exporter.flush(clock.monotonic_s() + 2.0, "failed")
    exporter.flush(clock.monotonic_s() + 2.0, "unknown")
    tick(exporter, clock, after_s=10.0)
    assert [r.path for r in sink.requests] == ["/v1/traces", "/v1/metrics"]
    (finished,) = sink.points(semconv.RANK_FINISHED)
    assert finished.attributes == {"outcome": "failed"}


def test_a_mistake_of_ours_is_counted_and_survived(
    make_exporter: MakeExporter,
    sink: CapturedRequests,
    clock: FakeClock,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The records at hand are lost, the next are not, and the log has it once."""
    exporter = make_exporter()

    def broken(*_: object) -> list[bytes]:
        raise RuntimeError("a bug")

    with monkeypatch.context() as patch:
        patch.setattr(exporter._packer, "pack", broken)
        for _ in range(2):
            run_steps(1, first=0)
            tick(exporter, clock)
    run_steps(1, first=0)
    tick(exporter, clock, after_s=5.0)
    assert len(sink.spans()) == 2
    (losses,) = sink.points(semconv.RECORDS_DROPPED)
    assert (losses.attributes, losses.value) == ({"reason": "encode_error"}, 4)
    assert len(caplog.records) == 1

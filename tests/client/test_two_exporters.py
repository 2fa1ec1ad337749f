"""The exporter in C++ and the one in Python do the same, as the other side sees it."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTracePartialSuccess,
    ExportTraceServiceResponse,
)

from otel_straggler import configure, flush, phase, section, semconv, shutdown, step
from otel_straggler.client import session
from otel_straggler.client.guard import GUARD
from otel_straggler.client.kernels import KERNELS
from otel_straggler.client.recorder import Record
from otel_straggler.client.recording import FORM, RECORDER, RECORDING
from otel_straggler.client.session import Session
from otel_straggler.client.topology import TOPOLOGY, Topology
from otel_straggler.otlp.answers import Code, status
from otel_straggler.otlp.decode_metrics import MetricDecoder
from otel_straggler.testing import CapturedPoint, CapturedRequests

from ..kernels_made import Script
from ..waiting import eventually

Begin = Callable[..., Session]


@pytest.fixture(autouse=True)
def _untrusted_endpoint(sink: CapturedRequests, monkeypatch: pytest.MonkeyPatch) -> None:
    """What counts where no endpoint is given: a tracing backend, perhaps."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", sink.url)


@pytest.fixture(params=["native", "python"])
def begin(
    request: pytest.FixtureRequest, sink: CapturedRequests, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Begin]:
    """configure() with this exporter; what is due comes fast."""
    if request.param == "native" and FORM == "python":
        pytest.skip("without the extension there is one exporter")
    if request.param == "python":
        monkeypatch.setattr(session, "why_python", lambda _: "a test asks for it")

    def begin(**more: Any) -> Session:
        given: dict[str, Any] = {
            "endpoint": sink.url, "run_id": "r", "rank": 3, "strict": True, "span_budget": 0,
            "heartbeat_s": 0.1, "flush_s": 0.05, "handle_sigterm": False,
        }  # fmt: skip
        return configure(**given | more)

    yield begin
    shutdown()


def run_steps(count: int, first: int = 0) -> None:
    for n in range(first, first + count):
        with step(n), section("forward"):
            pass


def names(sink: CapturedRequests) -> list[str]:
    return [span.name for span in sink.spans()]


def test_a_server_whose_limits_are_reached_is_left_alone_and_its_reason_is_logged_once(
    begin: Begin, sink: CapturedRequests, caplog: pytest.LogCaptureFixture
) -> None:
    """Spans are kept, and neither they nor heartbeats come again before the time it says. After
    that everything arrives."""
    sink.behaviour.status, sink.behaviour.headers = 429, {"Retry-After": "300"}
    sink.behaviour.body = status(Code.RESOURCE_EXHAUSTED, "2 runs are watched", is_json=False)

    def posted() -> list[str]:
        return sorted(request.path for request in list(sink.requests))

    with caplog.at_level(logging.WARNING, "otel_straggler"):
        session = begin()
        done = 0
        while session.queued_requests < 10:  # each look of the exporter adds one
            run_steps(1, first=done)
            done += 1
            time.sleep(0.02)
        assert posted() == ["/v1/metrics", "/v1/traces"]
        eventually(lambda: caplog.records)
    (printed,) = [r.message for r in caplog.records if "429" in r.message]
    assert "answered 429 (2 runs are watched): spans are kept" in printed
    sink.behaviour.status = 200
    assert flush()
    assert names(sink).count("forward") == done


def test_steps_without_sections_are_scored_as_one_section(
    begin: Begin, sink: CapturedRequests
) -> None:
    """But not the first of them: a loop may be marked from its second step on."""
    begin()
    for n in range(6):
        with step(n):
            if n == 3:
                with section("forward"):
                    pass
    assert flush()
    steps = [s.attributes for s in sink.spans() if s.name == "step"]
    scored_as = [attributes.get(semconv.SECTION) for attributes in steps]
    assert scored_as == [None, "step", "step", None, None, "step"]


def last(sink: CapturedRequests, metric: semconv.Metric) -> CapturedPoint:
    return sink.points(metric)[-1]


def test_spans_go_out_without_a_flush(begin: Begin, sink: CapturedRequests) -> None:
    """Each once, in order, with their numbers."""
    begin()
    run_steps(3)
    sink.wait_for(lambda s: names(s).count("forward") == 3)
    forward = [s for s in sink.spans() if s.name == "forward"]
    assert [s.attributes[semconv.STEP] for s in forward] == [0, 1, 2]
    assert [s.attributes[semconv.SEQ] for s in forward] == [0, 1, 2]
    assert forward[0].resource[semconv.RANK] == 3


def test_signs_of_life_say_where_the_rank_is(begin: Begin, sink: CapturedRequests) -> None:
    """Step, phase and the section that is open, and for how long."""
    begin()
    with step(7), phase("eval"), section("all_reduce"):
        sink.wait_for(lambda s: len(s.points(semconv.SECTION_OPEN)) > 2)
        open_now = last(sink, semconv.SECTION_OPEN)
    assert open_now.attributes == {semconv.SECTION: "all_reduce", semconv.PHASE: "eval"}
    assert open_now.value > 0.0
    assert last(sink, semconv.PROGRESS_STEP).value == 7
    assert last(sink, semconv.PROGRESS).value <= last(sink, semconv.HEARTBEAT).value
    assert last(sink, semconv.HEARTBEAT).resource[semconv.RUN_ID] == "r"


def test_what_becomes_known_of_the_rank_is_told(begin: Begin, sink: CapturedRequests) -> None:
    """On its description, and on the resource of what comes after."""
    begin()
    run_steps(1)
    flush()
    TOPOLOGY.add(Topology(role="actor", parallel={"data": (1, 2)}))
    run_steps(1, first=1)
    flush()
    sink.wait_for(lambda s: last(s, semconv.RANK_INFO).attributes.get(semconv.ROLE) == "actor")
    assert last(sink, semconv.RANK_INFO).attributes[semconv.PARALLEL_RANK["data"]] == 1
    roles = [s.resource[semconv.ROLE] for s in sink.spans() if s.name == "forward"]
    assert roles == ["default", "actor"]


def test_the_end_is_said(begin: Begin, sink: CapturedRequests) -> None:
    """With what was recorded last, and its outcome."""
    begin()
    run_steps(1)
    shutdown("failed")
    assert names(sink) == ["forward", "step"]
    assert last(sink, semconv.RANK_FINISHED).attributes == {semconv.OUTCOME: "failed"}


def test_a_busy_server_gets_everything_later(begin: Begin, sink: CapturedRequests) -> None:
    """Once, although it was sent more than once."""
    sink.behaviour.next_statuses = [503] * 3
    begin()
    run_steps(5)
    sink.wait_for(lambda s: names(s).count("forward") == 5)
    shutdown()
    assert sorted(names(sink)) == ["forward"] * 5 + ["step"] * 5


def test_a_lost_connection_is_no_loss(begin: Begin, sink: CapturedRequests) -> None:
    """It is opened anew when the server answers again."""
    begin()
    run_steps(1)
    assert flush()
    sink.behaviour.drops_connections = True
    run_steps(1, first=1)
    assert not flush(0.5)
    sink.behaviour.drops_connections = False
    assert flush()
    assert names(sink).count("forward") == 2


def test_refused_spans_are_counted_and_said(
    begin: Begin, sink: CapturedRequests, caplog: pytest.LogCaptureFixture
) -> None:
    """A server that says no for good is not asked again."""
    begin()
    sink.behaviour.status = 400
    with caplog.at_level(logging.WARNING, "otel_straggler"):
        run_steps(2)
        assert flush()
        sink.behaviour.status = 200
        shutdown()
    printed = [r.message for r in caplog.records if "spans are refused for good" in r.message]
    assert last(sink, semconv.RECORDS_DROPPED).value == 4
    assert len(printed) == 1
    assert sink.url in printed[0]
    assert "400" in printed[0]


def test_what_was_not_sent_before_the_end_is_said(
    begin: Begin, sink: CapturedRequests, caplog: pytest.LogCaptureFixture
) -> None:
    """How many records were lost with it."""
    begin(exit_deadline_s=0.5)
    sink.behaviour.status = 503
    with caplog.at_level(logging.WARNING, "otel_straggler"):
        run_steps(3)
        shutdown()
    printed = [r.message for r in caplog.records if "before the end" in r.message]
    assert printed == [
        f"otel-straggler: {sink.url}/v1/traces: 6 records were not sent before the end"
    ]


def test_partly_rejected_spans_are_counted(begin: Begin, sink: CapturedRequests) -> None:
    """In the next sign of life, by reason."""
    partial = ExportTracePartialSuccess(rejected_spans=1, error_message="no")
    sink.behaviour.body = ExportTraceServiceResponse(partial_success=partial).SerializeToString()
    begin()
    run_steps(1)
    sink.wait_for(lambda s: bool(s.points(semconv.RECORDS_DROPPED)))
    lost = last(sink, semconv.RECORDS_DROPPED)
    assert (lost.attributes, lost.value) == ({semconv.REASON: "rejected"}, 1)


def test_losses_to_a_full_ring_are_counted(begin: Begin, sink: CapturedRequests) -> None:
    """While nothing could be taken out of it."""
    begin(flush_s=30.0)
    sink.wait_for(lambda s: bool(s.points(semconv.HEARTBEAT)))
    RECORDER.capacity = 10
    for _ in range(100):
        with section("a"):
            pass
    shutdown()
    RECORDER.capacity = 65_536
    lost = last(sink, semconv.RECORDS_DROPPED)
    assert lost.attributes == {semconv.REASON: "ring_full"}
    assert lost.value + names(sink).count("a") == 100


def test_who_does_not_score_gets_a_sample(begin: Begin, sink: CapturedRequests) -> None:
    """Until an answer says that it does."""
    sink.behaviour.is_scorer = False
    session = begin(endpoint=None, sample_steps=1_000_000_000)
    assert not session.is_scorer
    run_steps(5)
    assert flush()
    assert names(sink) == []
    sink.behaviour.is_scorer = True
    sink.wait_for(lambda _: session.is_scorer)
    run_steps(5, first=5)
    assert flush()
    assert names(sink).count("forward") == 5


def test_another_reader_gets_the_same_runs(begin: Begin, sink: CapturedRequests) -> None:
    """A report in this process misses nothing, nor does the exporter."""
    received: list[Record] = []
    listener = received.extend
    begin()
    run_steps(2)
    RECORDING.listen(listener)
    received.clear()
    run_steps(20, first=2)
    RECORDING.unlisten(listener)
    run_steps(2, first=22)
    assert flush()
    assert names(sink).count("forward") == 24
    assert sum(record[0][0].name == "forward" for record in received) == 20


def test_a_step_counter_that_goes_back_is_a_new_session(
    begin: Begin, sink: CapturedRequests
) -> None:
    """Also where it happens between two drains."""
    begin()
    run_steps(2)
    run_steps(2)
    assert flush()
    forward = [s for s in sink.spans() if s.name == "forward"]
    assert [s.attributes[semconv.SEQ] for s in forward] == [0, 1, 0, 1]
    assert len({s.resource[semconv.SESSION_ID] for s in forward}) == 2


def test_a_new_session_starts_with_nothing_of_the_last(
    begin: Begin, sink: CapturedRequests
) -> None:
    """shutdown() and configure() in one process, several times."""
    for n in range(5):
        begin(run_id=f"r{n}")
        run_steps(1)
        shutdown()
    runs = [s.resource[semconv.RUN_ID] for s in sink.spans() if s.name == "forward"]
    assert runs == [f"r{n}" for n in range(5)]


@pytest.mark.skipif(FORM == "python", reason="the exporter in Python asks for counts as it sends")
def test_who_counted_losses_earlier_has_not_the_last_word(
    sink: CapturedRequests, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The count goes up while a thread of the exporter is about to pass on the one before."""
    from otel_straggler.client import native_export

    reported: list[dict[bytes, int]] = []
    exporter = SimpleNamespace(
        describe=lambda info, losses: reported.append(losses),
        set_resource=lambda session, resource: None,
        take_notes=list,
        state=lambda: {"is_scorer": False, "recorded": 0, "queued_requests": 0},
        start=lambda: None,
        begin_flush=lambda deadline_ns, outcome: 1,
        wait=lambda number, until_ns: True,
        stop=lambda until_ns: True,
    )
    monkeypatch.setattr(native_export, "_exporter", lambda settings, encoder: exporter)
    counted, may_go_on = threading.Event(), threading.Event()
    counts = GUARD.counts

    def slowly() -> dict[str, int]:
        result = counts()
        if threading.current_thread() is not threading.main_thread() and not counted.is_set():
            counted.set()
            may_go_on.wait(10)
        return result

    monkeypatch.setattr(GUARD, "counts", slowly)
    session = configure(endpoint=sink.url, flush_s=30.0, handle_sigterm=False)
    assert counted.wait(10)
    step(-1)
    timer = threading.Timer(0.2, may_go_on.set)
    timer.start()
    assert session.flush(10)
    timer.join()
    assert [sum(losses.values()) for losses in reported] == [0, 0, 1]


@pytest.mark.parametrize("is_scorer", [True, False])
def test_kernel_times_go_to_whoever_gets_metrics(
    begin: Begin, sink: CapturedRequests, monkeypatch: pytest.MonkeyPatch, is_scorer: bool
) -> None:
    """A scorer, and a backend that is none; what was counted last is sent before the end."""
    script = Script()
    monkeypatch.setattr(KERNELS, "timer", lambda: script)
    sink.behaviour.is_scorer = is_scorer
    begin(endpoint=None)
    script.count("gemm", 0, [1_000, 2_000])
    assert flush()
    script.count("gemm", 0, [4_000])
    shutdown()
    decoder = MetricDecoder()
    bodies = [r.body for r in sink.requests if r.path.endswith("/metrics")]
    result = [times for times in (decoder.decode(b).kernel_times for b in bodies) if times]
    assert sum(int(times.count.sum()) for times in result) == 3
    assert sum(float(times.sum_s.sum()) for times in result) == pytest.approx(7e-6)


def test_refused_kernel_times_are_counted(
    begin: Begin, sink: CapturedRequests, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the signs of life that follow."""
    script = Script()
    monkeypatch.setattr(KERNELS, "timer", lambda: script)
    begin()
    sink.behaviour.status = 400
    script.count("gemm", 0, [1_000, 2_000])
    flush()
    sink.behaviour.status = 200

    def lost(captured: CapturedRequests) -> dict[object, float]:
        points = captured.points(semconv.RECORDS_DROPPED)
        return {p.attributes[semconv.REASON]: p.value for p in points}

    sink.wait_for(lambda s: lost(s).get("kernels_lost") == 2)


def test_between_two_sections_the_step_is_what_is_open(
    begin: Begin, sink: CapturedRequests
) -> None:
    """A rank that waits outside of its sections is at work all the same; outside of a step it is
    not, and says nothing."""

    def open_now() -> list[str]:
        return [point.attributes[semconv.SECTION] for point in sink.points(semconv.SECTION_OPEN)]

    begin()
    with step(1):
        with section("data"):
            sink.wait_for(lambda s: "data" in open_now())
        sink.wait_for(lambda s: semconv.STEP_SPAN in open_now())
    flush()
    printed = len(open_now())
    beats = len(sink.points(semconv.HEARTBEAT))
    sink.wait_for(lambda s: len(s.points(semconv.HEARTBEAT)) > beats + 3)
    assert len(open_now()) <= printed + 1  # one may have been on its way

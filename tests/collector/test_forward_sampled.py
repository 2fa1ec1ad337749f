"""Sampled forwarding, from a real collector to a backend."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from otel_straggler import semconv
from otel_straggler.otlp.ids import is_sampled, root_span_id, step_trace_id
from otel_straggler.simulate.writers import as_json_line

from ..publish.sink import Sink
from ..publish.test_sampling import body_of
from ..publish.trace_rules import broken_rules

STEPS = range(40)
EVERY = 4
SLOW = 2


@pytest.fixture
def sink() -> Iterator[Sink]:
    backend = Sink()
    yield backend
    backend.close()


def sampled(start: Callable[..., Any], sink_url: str, **more: Any) -> Any:
    changes = {
        "forward__url": sink_url,
        "forward__mode": "sampled",
        "forward__sample_every": EVERY,
        "scoring__grace_s": 20.0,  # all ranks are waited for
        **more,
    }
    return start(**changes)


def send_all(live: Any, ranks: int = 4, steps: range = STEPS) -> dict[int, list[bytes]]:
    """Every rank sends all steps, a few in a request; rank 2 takes twice as long."""
    sent: dict[int, list[bytes]] = {rank: [] for rank in range(ranks)}
    for first in range(steps.start, steps.stop, 8):
        for rank, bodies in sent.items():
            seconds = 0.8 if rank == SLOW else 0.4
            bodies.append(body_of(rank, range(first, first + 8), seconds=seconds))
            assert live.post(bodies[-1]).status == 200
    return sent


def spans_in(bodies: list[bytes]) -> list[tuple[int | None, Any, bytes]]:
    """(rank, span, its bytes) of requests."""
    result = []
    for body in bodies:
        for resource_spans in ExportTraceServiceRequest.FromString(body).resource_spans:
            values = {a.key: a.value.int_value for a in resource_spans.resource.attributes}
            rank = values.get(semconv.RANK)
            for scope in resource_spans.scope_spans:
                result += [(rank, span, span.SerializeToString()) for span in scope.spans]
    return result


def of_traces(sink: Sink) -> list[bytes]:
    return [body for path, body, _, _ in sink.received if path == "/v1/traces"]


def test_a_flagged_rank_arrives_whole_and_the_others_one_in_n(
    start: Callable[..., Any], sink: Sink
) -> None:
    """The slow rank's spans are those that were sent, byte for byte; of the others one step in N;
    each step that arrives has one root, which covers what was kept."""
    live = sampled(start, sink.url)
    sent = send_all(live)
    live.stop()

    arrived = spans_in(of_traces(sink))
    kept = {step_trace_id("run", 0, "", step) for step in STEPS}
    by_id = {trace for trace in kept if is_sampled(trace, EVERY)}
    assert 0 < len(by_id) < len(STEPS)
    for rank, bodies in sent.items():
        wanted = Counter(
            raw for _, span, raw in spans_in(bodies) if rank == SLOW or span.trace_id in by_id
        )
        assert Counter(raw for r, _, raw in arrived if r == rank) == wanted
    assert broken_rules(of_traces(sink), max_spans=2_000) == []
    roots = [span for _, span, _ in arrived if span.name == semconv.ROOT_SPAN]
    assert Counter(root.span_id for root in roots) == Counter(map(root_span_id, kept))
    for root in roots:
        mine = [span for rank, span, _ in arrived if rank is not None]
        mine = [span for span in mine if span.trace_id == root.trace_id]
        assert root.start_time_unix_nano == min(span.start_time_unix_nano for span in mine)
        assert root.end_time_unix_nano == max(span.end_time_unix_nano for span in mine)


def test_a_request_of_the_flagged_rank_alone_goes_on_as_it_came(
    start: Callable[..., Any], sink: Sink
) -> None:
    """Nothing is left out of it, so nothing in it changes; requests in a row may become one."""
    live = sampled(start, sink.url, forward__sample_every=2**62)
    sent = send_all(live)
    live.stop()
    joined = b"".join(of_traces(sink))
    assert all(body in joined for body in sent[SLOW])
    assert {rank for rank, _, _ in spans_in(of_traces(sink))} == {SLOW, None}


def test_counts_tell_what_was_kept_and_why(start: Callable[..., Any], kit: Any, sink: Sink) -> None:
    """/metrics has spans kept and left out by reason, the bytes held, and the requests sent."""
    live = sampled(start, sink.url, forward__sample_every=2**62)
    send_all(live)
    for rank in range(4):  # all ranks have passed the last window once these are there
        assert live.post(body_of(rank, range(40, 44))).status == 200
    metric = semconv.COLLECTOR_FORWARD_SPANS
    kit.eventually(lambda: live.value(metric, outcome="kept", reason="flagged") == 120)
    assert live.value(metric, outcome="left_out", reason="not_sampled") == 360
    assert live.value(metric, outcome="left_out", reason="no_room") == 0
    kit.eventually(lambda: live.value(semconv.COLLECTOR_FORWARD_HELD) > 0)
    kit.eventually(lambda: live.value(semconv.COLLECTOR_FORWARDED, outcome="sent") >= 1)
    assert of_traces(sink)


def test_metrics_and_logs_pass_untouched(start: Callable[..., Any], kit: Any, sink: Sink) -> None:
    """Only spans are sampled."""
    live = sampled(start, sink.url)
    beat = kit.beat_of(kit.rank(0), sent_at_s=1_790_000_000.0, step=7)
    assert live.post(beat, "metrics").status == 200
    assert live.post(b"anything", "logs").status == 200
    live.stop()
    assert [(path, body) for path, body, _, _ in sink.received] == [
        ("/v1/metrics", beat),
        ("/v1/logs", b"anything"),
    ]


@pytest.mark.parametrize("zipped", [False, True])
def test_compressed_requests_are_cut_as_well(
    start: Callable[..., Any], sink: Sink, zipped: bool
) -> None:
    """What is kept leaves uncompressed, as binary protobuf."""
    live = sampled(start, sink.url, forward__sample_every=1)
    body = body_of(0, range(4))
    assert live.post(body, zipped=zipped).status == 200
    live.stop()
    assert of_traces(sink)[0].startswith(body)
    assert {(kind, coding) for _, _, kind, coding in sink.received} == {
        ("application/x-protobuf", None)
    }


def test_json_becomes_protobuf(start: Callable[..., Any], sink: Sink) -> None:
    """Traces in JSON are sampled by the same rules, and leave as binary protobuf."""
    request = ExportTraceServiceRequest.FromString(body_of(0, range(4)))
    text = as_json_line(request.SerializeToString())
    live = sampled(start, sink.url, forward__sample_every=1)
    assert live.post(text.encode(), content_type="application/json").status == 200
    live.stop()
    wanted = Counter(raw for _, _, raw in spans_in([request.SerializeToString()]))
    assert Counter(raw for rank, _, raw in spans_in(of_traces(sink)) if rank == 0) == wanted


def test_a_backend_that_is_away_costs_bounded_memory_and_gets_the_rest(
    start: Callable[..., Any], kit: Any
) -> None:
    """What is kept waits in the forward queue, the oldest go and are counted; once the backend is
    back it gets what waited."""
    backend = Sink()
    port = backend.server.server_port
    backend.close()
    live = sampled(
        start,
        backend.url,
        forward__sample_every=1,
        forward__max_queue_bytes=1 << 20,
        forward__max_trace_spans=1_000_000,
        scoring__window_steps=1,
        scoring__grace_s=0.3,
    )
    size = 0
    for number in range(40):
        body = body_of(0, [number], sections=600)
        size += len(body)
        assert live.post(body).status == 200
    assert size > 3 << 20
    kit.eventually(lambda: live.value(semconv.COLLECTOR_FORWARDED, outcome="dropped") >= 1)
    assert live.value(semconv.COLLECTOR_FORWARD_QUEUE) <= 1 << 20
    back = Sink(port=port)
    try:
        live.stop()
        assert back.received
    finally:
        back.close()


def test_a_restarted_collector_keeps_the_same_steps(start: Callable[..., Any], sink: Sink) -> None:
    """One in N is by trace id: what the second process keeps fits to what the first has kept, and
    the roots have the same ids."""
    seen = []
    for _ in range(2):
        live = sampled(start, sink.url)
        assert live.post(body_of(0, STEPS)).status == 200
        live.stop()
        seen.append({span.span_id for _, span, _ in spans_in(of_traces(sink))})
        sink.received.clear()
    assert seen[0] == seen[1]
    assert seen[0]


def test_plain_spans_of_others_are_kept_by_the_same_rules(
    start: Callable[..., Any], sink: Sink
) -> None:
    """Spans of any SDK: those of the flagged rank, and one trace in N, user ids or not; they get no
    root, because none of them refers to it."""
    live = sampled(start, sink.url, forward__sample_every=8)
    for rank in range(4):
        for first in range(0, 40, 8):
            request = ExportTraceServiceRequest()
            resource_spans = request.resource_spans.add()
            resource_spans.resource.attributes.add(key="rank").value.int_value = rank
            spans = resource_spans.scope_spans.add().spans
            for step in range(first, first + 8):
                span = spans.add(
                    trace_id=(1000 * rank + step + 1).to_bytes(16, "big"),
                    span_id=(1000 * rank + step + 1).to_bytes(8, "big"),
                    name="work",
                    start_time_unix_nano=10**18 + step * 10**9,
                    end_time_unix_nano=10**18 + step * 10**9 + (9 if rank == SLOW else 4) * 10**8,
                )
                span.attributes.add(key="step").value.int_value = step
            assert live.post(request.SerializeToString()).status == 200
    live.stop()
    result: dict[int, list[int]] = {}
    for body in of_traces(sink):
        for part in ExportTraceServiceRequest.FromString(body).resource_spans:
            rank = part.resource.attributes[0].value.int_value
            numbers = [int.from_bytes(s.trace_id, "big") for c in part.scope_spans for s in c.spans]
            result.setdefault(rank, []).extend(numbers)
    for rank in range(4):
        mine = [1000 * rank + step + 1 for step in range(40)]
        assert sorted(result[rank]) == (mine if rank == SLOW else [n for n in mine if n % 8 == 0])

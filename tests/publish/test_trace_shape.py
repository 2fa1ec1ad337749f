"""The shape of forwarded traces, by the rules of the backends that they go to."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from itertools import pairwise

import numpy as np
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from otel_straggler import semconv
from otel_straggler.otlp.encode_spans import SpanGroup, encode_request, encode_resource, encode_rows
from otel_straggler.otlp.identity import read_attributes
from otel_straggler.otlp.ids import root_span_id, step_trace_id

from .test_sampling import RUN, Bench, body_of, verdict
from .trace_rules import broken_rules, traces_in

SECTIONS = 18
SLOW = 700


def bodies_of(
    ranks: int,
    steps: range,
    seconds: Callable[[int], Mapping[str, float]],
    run_id: str = RUN,
) -> list[bytes]:
    """What each rank sends of some steps: sections one after the other, in the step around them."""
    traces = [step_trace_id(run_id, 0, "", step) for step in steps]
    shape = (ranks, len(steps))
    numbers = np.broadcast_to(np.array(steps), shape)
    ids = (numbers * 10_000 + np.arange(1, ranks + 1)[:, None]).astype(np.uint64) * np.uint64(100)
    roots = np.frombuffer(b"".join(map(root_span_id, traces)), "<u8").astype(np.uint64)
    trace_ids = np.frombuffer(b"".join(traces), np.uint8).reshape(-1, 16)
    lengths = (1e9 * np.array([list(seconds(rank).values()) for rank in range(ranks)])).astype(int)
    ends = lengths.cumsum(axis=1)
    begin = 10**18 + 2 * 10**9 * numbers
    names = [*seconds(0), semconv.STEP_SPAN]
    rows: list[list[bytes]] = [[] for _ in range(ranks)]
    for at, name in enumerate(names):
        is_step = name == semconv.STEP_SPAN
        own = at if not is_step else ends.shape[1] - 1
        before = ends[:, own] - lengths[:, own] if not is_step else np.zeros(ranks, int)
        group = SpanGroup(
            name=name,
            labels=() if is_step else ((str(semconv.SECTION), name),),
            numbers={semconv.STEP: numbers.ravel(), semconv.SEQ: numbers.ravel()},
            trace_ids=np.tile(trace_ids, (ranks, 1)),
            span_ids=(ids if is_step else ids + np.uint64(at + 1)).ravel(),
            parent_ids=np.tile(roots, ranks) if is_step else ids.ravel(),
            start_ns=(begin + before[:, None]).ravel(),
            end_ns=(begin + ends[:, own][:, None]).ravel(),
        )
        pieces = encode_rows(group)
        for rank in range(ranks):
            rows[rank] += pieces[rank * len(steps) : (rank + 1) * len(steps)]
    resource = {str(semconv.RUN_ID): run_id, str(semconv.WORLD_SIZE): ranks}
    return [
        encode_request(encode_resource({**resource, str(semconv.RANK): rank}), spans)
        for rank, spans in enumerate(rows)
    ]


def slow_in_forward(slow: int) -> Callable[[int], dict[str, float]]:
    """Waiting is inside backward: who computes longer waits less."""

    def seconds(rank: int) -> dict[str, float]:
        ahead = {f"part {n}": 0.01 for n in range(SECTIONS - 2)}
        forward = 0.6 if rank == slow else 0.2
        return {**ahead, "forward": forward, "backward": 0.8 - forward}

    return seconds


def roots_of(bench: Bench) -> list[dict[str, object]]:
    spans = [span for each in traces_in(bench.sent).values() for _, span in each]
    return [read_attributes(s.attributes) for s in spans if s.name == semconv.ROOT_SPAN]


@pytest.mark.parametrize("mode", ["all", "sampled"])
def test_a_thousand_ranks_fit_into_the_bound_of_a_trace(mode: str) -> None:
    """19,000 spans a step: the slow rank is in every trace with all its spans, with about a hundred
    others, always the same; the rest are one span with their number; every trace has one root and
    no orphan."""
    bench = Bench(mode=mode, sample_every=1)
    ranks = 1_000
    for steps in (range(3), range(3, 6)):
        for body in bodies_of(ranks, steps, slow_in_forward(SLOW)):
            bench.take(body)
        if mode == "all":
            bench.sampler.tick()  # by now it is known that the run is large
    bench.close(verdict(SLOW))
    bench.settle()
    assert broken_rules(bench.sent, 2_000) == []
    traces = traces_in(bench.sent)
    assert len(traces) == 6
    in_full = [
        {rank for rank, _ in traces[step_trace_id(RUN, 0, "", step)] if rank is not None}
        for step in range(6)
    ]
    assert all(SLOW in each and len(each) > 90 for each in in_full[3:])
    assert len({frozenset(each) for each in in_full[3:]}) == 1
    for spans in traces.values():
        (others,) = [s for _, s in spans if s.name == semconv.SIMILAR_RANKS_SPAN]
        kept = {rank for rank, _ in spans if rank is not None}
        attributes = read_attributes(others.attributes)
        assert attributes[semconv.TRACE_RANKS] == ranks - len(kept)
        assert attributes[semconv.TRACE_STEP_TIME] == 960_000_000
    for root in roots_of(bench):
        assert root[semconv.TRACE_RANKS] == ranks
        assert root[semconv.TRACE_SPANS_LEFT_OUT] == 19 * (ranks - len(in_full[-1]))
    assert roots_of(bench)[-1][semconv.TRACE_FLAGGED_RANKS] == str(SLOW)


def test_mode_all_sends_a_small_run_as_it_came_and_at_once_with_a_root_per_step() -> None:
    """Nothing waits for scores; each request goes on byte for byte; 240 step spans are no orphans
    any more."""
    bench = Bench(mode="all")
    bodies = bodies_of(8, range(30), slow_in_forward(3))
    for body in bodies:
        bench.take(body)
    bench.sampler.tick()
    assert bench.sent == bodies
    bench.close()
    bench.settle()
    assert broken_rules(bench.sent, 2_000) == []
    assert bench.sampler.counts().kept["root"] == 30
    assert bench.sampler.counts().left_out == {}


def test_a_root_waits_for_the_ranks_that_send_late() -> None:
    """In mode all: a step is closed once it has been scored, however long that takes; a minute at
    most."""
    bench = Bench(mode="all", hold_seconds=60.0)
    bench.take(body_of(0, [1]))
    bench.settle()
    bench.settle()
    assert bench.sampler.counts().kept == {"all": 3}
    bench.take(body_of(1, [1], seconds=0.9))
    bench.sampler.tick()
    for _ in range(6):
        bench.settle()
    assert broken_rules(bench.sent, 2_000) == []
    assert bench.sampler.counts().kept == {"all": 6, "root": 1}


def test_where_waiting_is_inside_backward_only_the_slow_rank_is_kept() -> None:
    """All others take longer there, which makes them victims, not stragglers."""
    bench = Bench()
    for body in bodies_of(8, range(20), slow_in_forward(3)):
        bench.take(body)
    bench.close()
    bench.settle()
    assert bench.ranks() == {3, None}
    assert bench.sampler.counts().left_out == {"not_sampled": 7 * 20 * 19}
    assert broken_rules(bench.sent, 2_000) == []
    (others,) = [
        span
        for _, span in traces_in(bench.sent)[step_trace_id(RUN, 0, "", 4)]
        if span.name == semconv.SIMILAR_RANKS_SPAN
    ]
    assert read_attributes(others.attributes)[semconv.TRACE_RANK_LIST] == "0-2,4-7"


@pytest.mark.parametrize("mode", ["all", "sampled"])
def test_the_spans_of_a_rank_that_was_killed_are_no_orphans(mode: str) -> None:
    """Its step never ended: one span stands for it, and says so."""
    bench = Bench(mode=mode, sample_every=1)
    request = ExportTraceServiceRequest.FromString(body_of(0, [7]))
    spans = request.resource_spans[0].scope_spans[0].spans
    step_id = spans[0].span_id
    del spans[0]
    bench.take(request.SerializeToString())
    bench.take(body_of(1, [7]))
    bench.close()
    for _ in range(8):
        bench.settle()
    assert broken_rules(bench.sent, 2_000) == []
    (trace,) = traces_in(bench.sent).values()
    (made,) = [span for _, span in trace if span.span_id == step_id]
    assert read_attributes(made.attributes)[semconv.TRACE_STAND_IN] is True
    assert bench.sampler.counts().kept["stand_in"] == 1
    bench.take(body_of(0, [7]))  # it comes after all: what stood for it was sent
    bench.settle()
    sent = [span for _, span in traces_in(bench.sent)[trace[0][1].trace_id]]
    assert sum(span.span_id == step_id for span in sent) == 1


def test_a_step_of_one_rank_that_is_too_large_alone_keeps_its_outer_spans() -> None:
    """3,000 sections in a step: the longest are kept, so that none lacks its parent."""
    bench = Bench(mode="all", max_trace_spans=1_000)
    bench.take(body_of(0, [1], sections=3_000))
    bench.sampler.tick()
    for _ in range(8):
        bench.settle()
    assert broken_rules(bench.sent, 1_000) == []
    assert bench.sampler.counts().left_out["trace_full"] > 2_000


def test_ranks_whose_steps_took_differently_long_are_summarised_apart() -> None:
    """Two hosts at half the speed are a span of their own in the trace."""
    bench = Bench(sample_every=1, max_trace_spans=500)

    def seconds(rank: int) -> dict[str, float]:
        slow = 2.0 if rank in (50, 51, 52, 53) else 1.0
        return {"forward": 0.1 * slow, "backward": 0.1 * slow}

    for body in bodies_of(300, range(3), seconds):
        bench.take(body)
    bench.sampler.finish(1e9)
    assert broken_rules(bench.sent, 500) == []
    spans = [s for _, s in next(iter(traces_in(bench.sent).values()))]
    made = [s for s in spans if s.name == semconv.SIMILAR_RANKS_SPAN]
    numbers = [read_attributes(s.attributes)[semconv.TRACE_STEP_TIME] for s in made]
    assert numbers == [200_000_000, 400_000_000]


@pytest.mark.parametrize("ticks", [True, False])
def test_a_rank_whose_step_comes_in_parts_is_whole_although_others_fill_the_trace(
    ticks: bool,
) -> None:
    """A rank sends every second, also in the middle of a step: its step span comes last."""
    bench = Bench(mode="all", max_trace_spans=17)
    first, *others = bodies_of(12, range(7, 8), lambda _: {"forward": 0.1, "backward": 0.2})
    request = ExportTraceServiceRequest.FromString(first)
    spans = request.resource_spans[0].scope_spans[0].spans
    sections, step = list(spans[:2]), spans[2]
    parts = []
    for part in (sections, [step]):
        only = ExportTraceServiceRequest.FromString(first)
        del only.resource_spans[0].scope_spans[0].spans[:]
        only.resource_spans[0].scope_spans[0].spans.extend(part)
        parts.append(only.SerializeToString())
    for body in (parts[0], *others, parts[1]):
        bench.take(body)
        if ticks:
            bench.sampler.tick()
    bench.sampler.finish(1e9)
    assert broken_rules(bench.sent, 17) == []
    (trace,) = traces_in(bench.sent).values()
    assert len(trace) == 17
    assert sum(rank == 0 for rank, _ in trace) == 3
    assert "stand_in" not in bench.sampler.counts().kept


def parts_of(body: bytes, draw: random.Random, *, is_killed: bool) -> list[bytes]:
    """The spans of a rank in the order in which they end, in one to three requests; of one that is
    killed without the last ones."""
    request = ExportTraceServiceRequest.FromString(body)
    spans = request.resource_spans[0].scope_spans[0].spans
    in_order = sorted(spans, key=lambda s: (s.end_time_unix_nano, s.name == semconv.STEP_SPAN))
    if is_killed:
        in_order = in_order[: draw.randrange(1, len(in_order))]
    cuts = sorted(draw.randrange(len(in_order) + 1) for _ in range(draw.randrange(3)))
    parts = []
    for begin, end in pairwise([0, *cuts, len(in_order)]):
        del spans[:]
        spans.extend(in_order[begin:end])
        parts.append(request.SerializeToString())
    if draw.random() < 0.2:
        draw.shuffle(parts)  # retried after newer ones
    return parts


@pytest.mark.parametrize("seed", range(20))
def test_no_order_and_no_loss_makes_a_trace_that_a_backend_complains_of(seed: int) -> None:
    """Any number of ranks and sections, any bound, parts of ranks mixed, ranks killed."""
    draw = random.Random(seed)
    max_spans = draw.choice([10, 30, 100, 400])
    bench = Bench(
        mode=draw.choice(["all", "sampled"]), sample_every=draw.choice([1, 2]),
        max_trace_spans=max_spans,
    )  # fmt: skip
    names = [f"part {n}" for n in range(draw.randrange(1, 8))]
    bodies = bodies_of(
        draw.randrange(1, 60), range(draw.randrange(1, 4)),
        lambda rank: dict.fromkeys(names, 0.1 if rank else 0.2),
    )  # fmt: skip
    waiting = [parts_of(body, draw, is_killed=draw.random() < 0.1) for body in bodies]
    while waiting:
        parts = draw.choice(waiting)
        bench.take(parts.pop(0))
        waiting = [each for each in waiting if each]
        if draw.random() < 0.1:
            bench.sampler.tick()
    bench.close(verdict(0))
    bench.sampler.finish(1e9)
    assert broken_rules(bench.sent, max_spans) == []

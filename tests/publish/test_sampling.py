"""Which spans sampled forwarding keeps."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from otel_straggler import semconv
from otel_straggler.collector.forwarding.sampling import Sampler
from otel_straggler.collector.ingest.intake import PROTOBUF, Request
from otel_straggler.collector.settings import ForwardSettings
from otel_straggler.detect.scores.scorer import Scorer, ScoreSettings
from otel_straggler.model.rank import Source
from otel_straggler.model.step_table import StepTimes
from otel_straggler.model.verdict import RunVerdicts, Verdict
from otel_straggler.otlp.decode_spans import SpanDecoder
from otel_straggler.otlp.encode_spans import SpanGroup, encode_request, encode_resource, encode_rows
from otel_straggler.otlp.ids import is_sampled, root_span_id, step_trace_id
from otel_straggler.testing import FakeClock

RUN = "run"
NEVER = 2**62
"""As ``sample_every``: no trace of the tests is among one in so many."""


def body_of(
    rank: int,
    steps: Iterable[int],
    *,
    sections: int = 2,
    seconds: float = 0.5,
    start_ns: int = 10**18,
) -> bytes:
    """What a rank sends of some steps: a step span and sections below it."""
    rows: list[bytes] = []
    for step in steps:
        trace = step_trace_id(RUN, 0, "", step)
        ids = np.arange(1, sections + 2, dtype=np.uint64) + np.uint64((step * 64 + rank) * 1_000)
        begin = start_ns + step * 10**9
        columns = {"trace": np.frombuffer(trace, np.uint8)[None, :]}
        for number, span_id in enumerate(ids):
            is_step = number == 0
            parent = np.frombuffer(root_span_id(trace), "<u8") if is_step else ids[:1]
            labels = () if is_step else ((str(semconv.SECTION), f"part {number}"),)
            group = SpanGroup(
                name=semconv.STEP_SPAN if is_step else f"part {number}",
                labels=labels,
                numbers={semconv.STEP: np.array([step]), semconv.SEQ: np.array([step])},
                trace_ids=columns["trace"],
                span_ids=np.array([span_id], np.uint64),
                parent_ids=parent.astype(np.uint64),
                start_ns=np.array([begin]),
                end_ns=np.array([begin + int(seconds * 1e9)]),
            )
            rows += encode_rows(group)
    resource = {semconv.RUN_ID: RUN, semconv.RANK: rank, semconv.WORLD_SIZE: 4}
    resource |= {semconv.HOST_NAME: f"node-{rank}"}
    return encode_request(encode_resource({str(k): v for k, v in resource.items()}), rows)


class Bench:
    """A sampler, the scorer that tells it, and what it has sent."""

    def __init__(self, **rules: float | str) -> None:
        self.clock = FakeClock()
        self.now_s = 0.0
        self.sent: list[bytes] = []
        given = {"url": "http://backend", "mode": "sampled", "sample_every": NEVER, **rules}
        settings = ForwardSettings(**given)  # type: ignore[arg-type]
        self.sampler = Sampler(
            settings,
            lambda request: self.sent.append(request.raw_body),
            monotonic_s=lambda: self.now_s,
        )
        self.scorer = Scorer(ScoreSettings(window_steps=10))
        self.decoder = SpanDecoder()

    def take(self, body: bytes) -> None:
        spans = self.decoder.decode(body)
        self.sampler.hold(
            Request(
                signal="traces",
                content_type=PROTOBUF,
                body=body,
                raw_body=body,
                content_encoding="",
            ),
            spans,
        )
        self.scorer.observe(spans.batch, int(self.now_s * 1e9))

    def close(self, *verdicts: Verdict) -> None:
        """Close all windows and tell; then let the sampler decide."""
        windows = self.scorer.close_all()
        self.sampler.observe_steps(self.scorer.drain_step_times())
        self.sampler.observe_windows(windows, RunVerdicts(changes=verdicts))
        self.sampler.tick()

    def settle(self) -> None:
        self.now_s += 10.0
        self.sampler.tick()

    def spans(self) -> list[tuple[int | None, bytes, bytes]]:
        """(rank, trace id, bytes) of all spans sent."""
        result = []
        for body in self.sent:
            for resource_spans in ExportTraceServiceRequest.FromString(body).resource_spans:
                values = {a.key: a.value.int_value for a in resource_spans.resource.attributes}
                for scope in resource_spans.scope_spans:
                    result += [
                        (values.get(semconv.RANK), s.trace_id, s.SerializeToString())
                        for s in scope.spans
                    ]
        return result

    def ranks(self) -> set[int | None]:
        return {rank for rank, _, _ in self.spans()}


def verdict(rank: int | None = None, state: str = "confirmed", **more: str) -> Verdict:
    values = {"scope": "rank", **more}
    return Verdict(run_id=RUN, subject_id="s", rank=rank, state=state, **values)  # type: ignore[arg-type]


def test_nothing_is_decided_before_the_steps_are_scored() -> None:
    """Requests wait for the windows of their steps, all of them."""
    bench = Bench(sample_every=1)
    bench.take(body_of(0, range(5)))
    bench.sampler.tick()
    assert bench.sent == []
    assert bench.sampler.counts().held_bytes > 0
    bench.close()
    assert len(bench.spans()) == 15
    assert bench.sampler.counts().held_bytes == 0


@pytest.mark.parametrize("state", ["suspect", "confirmed", "flapping"])
def test_a_flagged_rank_keeps_all_its_spans(state: str) -> None:
    """Of a rank that a verdict stands against every span goes on as it came; of others none."""
    bench = Bench()
    for rank in range(4):
        bench.take(body_of(rank, range(10)))
    bench.close(verdict(2, state))
    assert bench.ranks() == {2}
    assert bench.sent == [body_of(2, range(10))]
    assert bench.sampler.counts().kept == {"flagged": 30}
    assert bench.sampler.counts().left_out == {"not_sampled": 90}


@pytest.mark.parametrize("state", ["ok", "recovered"])
def test_a_rank_that_is_fine_again_is_not_flagged(state: str) -> None:
    """Only verdicts that stand count."""
    bench = Bench()
    for rank in range(4):
        bench.take(body_of(rank, range(10)))
    bench.close(verdict(2, state))
    assert bench.sent == []


def test_a_flagged_host_flags_its_ranks() -> None:
    """A verdict on a host keeps the spans of what runs there."""
    bench = Bench()
    for rank in range(4):
        bench.take(body_of(rank, range(10)))
    bench.close(verdict(scope="host", node="node-3"))
    assert bench.ranks() == {3}


def test_a_rank_that_the_newest_window_lists_is_flagged() -> None:
    """Layer 1 is enough: listed in the window just closed, kept in that very window."""
    bench = Bench()
    for rank in range(4):
        bench.take(body_of(rank, range(10), seconds=0.9 if rank == 1 else 0.3))
    bench.close()
    assert bench.ranks() == {1}


def test_a_slow_step_is_kept_of_all_ranks() -> None:
    """A step whose slowest rank took 1.5 times the typical step is kept whole."""
    bench = Bench()
    for rank in range(4):
        slow_s = 0.9 if rank == 3 else 0.5
        bench.take(body_of(rank, range(14)))
        bench.take(body_of(rank, [14], seconds=slow_s))
    bench.close()
    assert {trace for _, trace, _ in bench.spans()} == {step_trace_id(RUN, 0, "", 14)}
    assert bench.ranks() == {0, 1, 2, 3}


def test_one_trace_in_n_is_kept_by_its_id() -> None:
    """All ranks, and all collectors, keep the same steps: the trace id decides."""
    bench = Bench(sample_every=4)
    for rank in range(3):
        bench.take(body_of(rank, range(40)))
    bench.close()
    kept = {step_trace_id(RUN, 0, "", step) for step in range(40)}
    kept = {trace for trace in kept if is_sampled(trace, 4)}
    assert 0 < len(kept) < 40
    assert {trace for _, trace, _ in bench.spans()} == kept
    assert bench.ranks() == {0, 1, 2}


def test_a_trace_has_room_for_so_many_spans_and_flagged_ranks_come_first() -> None:
    """With its root and the summary of the ranks that are left out; whole ranks, and the flagged
    one is never left out."""
    bench = Bench(sample_every=1, max_trace_spans=5)
    for rank in range(4):
        bench.take(body_of(rank, range(10)))
    bench.close(verdict(3))
    bench.settle()
    by_trace: dict[bytes, int] = {}
    for _, trace, _ in bench.spans():
        by_trace[trace] = by_trace.get(trace, 0) + 1
    assert set(by_trace.values()) == {5}
    assert len(by_trace) == 10
    assert bench.ranks() == {3, None}
    assert bench.sampler.counts().kept == {"flagged": 30, "root": 10, "summary": 10}
    assert bench.sampler.counts().left_out == {"trace_full": 90}


def test_the_root_of_a_steps_trace_is_made_once() -> None:
    """From the first start to the last end of what was kept, with the id that all ranks know; what
    comes late makes no second one."""
    bench = Bench(sample_every=1)
    bench.take(body_of(0, [7], seconds=0.3))
    bench.take(body_of(1, [7], seconds=0.6))
    bench.close()
    bench.settle()
    bench.take(body_of(2, [7]))
    bench.settle()
    bench.settle()
    trace = step_trace_id(RUN, 0, "", 7)
    result = [s for b in bench.sent for s in all_spans(b) if s.span_id == root_span_id(trace)]
    assert len(result) == 1
    (root,) = result
    assert (root.trace_id, root.name, root.parent_span_id) == (trace, semconv.ROOT_SPAN, b"")
    begin = 10**18 + 7 * 10**9
    assert (root.start_time_unix_nano, root.end_time_unix_nano) == (begin, begin + 600_000_000)
    assert bench.sampler.counts().kept == {"flagged": 3, "sampled": 6, "root": 1}
    children = [s for b in bench.sent for s in all_spans(b) if s.parent_span_id == root.span_id]
    assert len(children) == 3


def all_spans(body: bytes) -> list:  # type: ignore[type-arg]
    request = ExportTraceServiceRequest.FromString(body)
    return [s for r in request.resource_spans for scope in r.scope_spans for s in scope.spans]


def test_spans_of_nobody_are_kept_by_their_trace_alone() -> None:
    """Without a rank there is nothing to wait for."""
    body = body_of(0, range(40)).replace(b"training.rank", b"training.rink")
    bench = Bench(sample_every=4)
    bench.take(body)
    bench.sampler.tick()
    assert {trace for _, trace, _ in bench.spans()} == {
        trace
        for trace in (step_trace_id(RUN, 0, "", step) for step in range(40))
        if is_sampled(trace, 4)
    }


def test_what_waits_too_long_is_decided_with_what_is_known() -> None:
    """A window that does not close holds spans for hold_seconds at most."""
    bench = Bench(sample_every=1, hold_seconds=30.0)
    bench.take(body_of(0, [1]))
    bench.now_s = 29.0
    bench.sampler.tick()
    assert bench.sent == []
    bench.now_s = 30.0
    bench.sampler.tick()
    assert len(bench.spans()) == 3


def test_what_is_held_stays_within_its_budget() -> None:
    """Without a decision the oldest go first, uncounted never; close to the budget they are decided
    early, so that one in N survives."""
    bench = Bench(sample_every=2, max_held_bytes=20_000)
    size = len(body_of(0, range(10)))
    for number in range(40):
        bench.take(body_of(0, range(10 * number, 10 * number + 10)))
        assert bench.sampler.counts().held_bytes <= 20_000
    lost = bench.sampler.counts().left_out["no_room"]
    assert lost >= 1200 - 30 * (20_000 // size + 1)
    bench.sampler.tick()
    assert bench.sampler.counts().held_bytes <= 15_000
    assert bench.spans()
    assert set(bench.sampler.counts().left_out) == {"no_room"}
    bench.sampler.finish(until_s=1e9)
    counts = bench.sampler.counts()
    assert sum(counts.kept.values()) - counts.kept["root"] + sum(counts.left_out.values()) == 1200


def test_a_request_that_came_twice_makes_no_second_root() -> None:
    """OTLP may deliver twice: the copy goes on too, the root does not."""
    bench = Bench(sample_every=1)
    bench.take(body_of(0, [3]))
    bench.take(body_of(0, [3]))
    bench.close()
    bench.settle()
    assert bench.sampler.counts().kept == {"sampled": 6, "root": 1}


def test_flags_are_of_the_group() -> None:
    """A rank of another group with the same number is another rank."""
    bench = Bench()
    bench.take(body_of(0, range(10)))
    windows = bench.scorer.close_all()
    other = verdict(0)
    bench.sampler.observe_windows(windows, RunVerdicts(changes=(other,)))
    known = bench.sampler._known
    assert known.is_flagged(Source(run_id=RUN, rank=0))
    assert not known.is_flagged(Source(run_id=RUN, rank=0, group="critic"))


def test_steps_of_time_make_no_slow_step() -> None:
    """Intervals of ten seconds are no steps."""
    bench = Bench()
    times = StepTimes(
        run_id=RUN, group="", attempt=0, steps=tuple(range(20)),
        slowest_s=(1.0,) * 19 + (9.0,), is_timed=True,
    )  # fmt: skip
    bench.sampler.observe_steps([times])
    assert not bench.sampler._known.slow_traces()

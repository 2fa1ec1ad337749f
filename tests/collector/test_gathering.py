"""Requests that wait are scored together, and it comes to the same as one after the other."""

from __future__ import annotations

from dataclasses import replace

from otel_straggler.collector.runs.observer import MAX_ROWS, BatchCoalescer
from otel_straggler.detect.scores.scorer import Scorer
from otel_straggler.model.observation import BatchBuilder, ObservationBatch
from otel_straggler.model.rank import Source
from otel_straggler.otlp.decode_spans import SpanDecoder
from otel_straggler.simulate.scenarios import Plan, simulate
from otel_straggler.simulate.writers import encode_requests

RANK = Source(run_id="run", rank=0, session_id="a")


def rows(source: Source, count: int = 1) -> ObservationBatch:
    builder = BatchBuilder()
    section = builder.section_code(simulate("healthy").batch.sections[0])
    for step in range(count):
        builder.add(source, section, start_ns=1 + step, duration_s=1.0, step=step, seq=step)
    return builder.build()


def coalesced(*batches: ObservationBatch) -> BatchCoalescer:
    coalescer = BatchCoalescer()
    for at, batch in enumerate(batches):
        coalescer.add(batch, 1, at)
    return coalescer


def test_requests_of_many_ranks_stand_together_in_their_order() -> None:
    """Rows of two ranks, one request each."""
    other = replace(RANK, rank=1, session_id="b")
    coalescer = coalesced(rows(RANK, 2))
    assert coalescer.has_room_for(rows(other))
    coalescer.add(rows(other), 1, 1)
    batch = coalescer.drain()
    assert [batch.sources[code].rank for code in batch.source] == [0, 0, 1]
    assert batch.step.tolist() == [0, 1, 0]


def test_two_sessions_of_one_rank_are_scored_one_after_the_other() -> None:
    """Who came later decides which is the restart, so they are never mixed."""
    restarted = replace(RANK, session_id="b")
    assert not coalesced(rows(RANK)).has_room_for(rows(restarted))


def test_a_changed_description_is_taken_after_the_old_one() -> None:
    """The last word of a session about its role counts."""
    assert not coalesced(rows(RANK)).has_room_for(rows(replace(RANK, role="critic")))


def test_a_coalescer_is_bounded_and_one_large_request_still_fits() -> None:
    """Memory for a copy of the rows is bounded."""
    large = rows(RANK, 8)
    large = large.take([0] * (MAX_ROWS + 1))  # type: ignore[arg-type]
    assert BatchCoalescer().has_room_for(large)
    assert not coalesced(rows(RANK)).has_room_for(large)


def test_scores_and_verdicts_are_those_of_request_by_request() -> None:
    """A run with a slow rank, every request alone and eleven at once."""
    plan = Plan(ranks=8, steps=120, slow_rank=3, slowdown=1.6)
    batches = [SpanDecoder().decode(body).batch for body in encode_requests(
        simulate("one_slow_rank", plan).batch, 64)]  # fmt: skip
    alone, together = Scorer(), Scorer()
    windows = [list[object](), list[object]()]
    for at in range(0, len(batches), 11):
        for batch in batches[at : at + 11]:
            alone.observe(batch, at)
        together.observe(coalesced(*batches[at : at + 11]).drain(), at)
        for scorer, closed in zip((alone, together), windows, strict=True):
            closed += [repr(window) for window in scorer.close_due(at)]
    for scorer, closed in zip((alone, together), windows, strict=True):
        closed += [repr(window) for window in scorer.close_all()]
    assert len(windows[0]) == 6
    assert windows[0] == windows[1]
    assert alone.verdicts("simulated").changes
    assert repr(alone.verdicts("simulated")) == repr(together.verdicts("simulated"))

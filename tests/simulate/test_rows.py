"""Rows of a generated run are the same run as its tables, also written and read back."""

from __future__ import annotations

import io

import numpy as np
import pytest

from otel_straggler.detect.scores.step_tables import build_step_table
from otel_straggler.model.observation import ObservationBatch, merge_batches
from otel_straggler.model.step_table import StepTable
from otel_straggler.otlp.decode_spans import SpanDecoder
from otel_straggler.recordings.files import read_recording
from otel_straggler.simulate.runs import SimulatedRun
from otel_straggler.simulate.writers import (
    as_json_line,
    encode_requests_of,
    frame,
    write_csv,
)

from .generated import make

LAYOUTS = ["dp4", "tp2,pp2,ep2,dp4"]
BUSY = {
    "steps": 20, "sequence_cv": 0.2, "gc_every_steps": 7, "checkpoint_every": 8,
    "missing_reports": 0.05,
}  # fmt: skip


def busy(layout: str, **plan: object) -> SimulatedRun:
    return make(layout, "late:0.3@rank2:step5", "compute:1.3@rank3:step8", **{**BUSY, **plan})


def assert_same(one: StepTable, other: StepTable, *, with_cv: bool = True) -> None:
    """Up to the nanosecond to which rows are rounded."""
    assert [_identity(s) for s in one.sources] == [_identity(s) for s in other.sources]
    order = [other.sections.index(section) for section in one.sections]
    regular = [code for code in order if other.sections[code].name not in ("gc", "checkpoint")]
    assert regular == sorted(regular)
    assert np.array_equal(one.steps, other.steps)
    assert np.allclose(one.seconds, other.seconds[:, :, order], rtol=0, atol=2e-8, equal_nan=True)
    assert np.array_equal(one.runs, other.runs[:, :, order])
    if with_cv:
        assert np.allclose(one.run_cv, other.run_cv[:, order], atol=1e-6, equal_nan=True)
    assert np.abs(one.start_ns - other.start_ns).max() <= 1
    assert np.abs(one.end_ns - other.end_ns).max() <= 5


def _identity(source) -> tuple:
    return source.run_id, source.rank, source.node, source.local_rank, dict(source.parallel)


@pytest.mark.parametrize("timing", ["local", "synchronised", "asynchronous"])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("counts_microbatches", [False, True])
def test_rows_add_up_to_the_tables(layout, timing, counts_microbatches):
    """Sums, counts, spread of single runs, tokens, starts and ends."""
    run = busy(layout, timing=timing, report_tokens=True)
    batches = run.batches(10, counts_microbatches=counts_microbatches)
    for table, batch in zip(run.tables(10), batches, strict=True):
        built = build_step_table(batch, world_size=run.plan.layout.ranks)
        assert_same(built, table, with_cv=not counts_microbatches)
        assert np.array_equal(built.tokens, table.tokens, equal_nan=True)
        assert (np.diff(batch.start_ns) >= 0).all()


def test_sections_of_a_rank_never_overlap():
    """But for the nanosecond to which steps are rounded; a node has one clock."""
    batch = merge_batches(list(busy("tp2,pp2,dp4", missing_reports=0.0).batches()))
    ends = batch.start_ns + np.rint(batch.duration_s * 1e9).astype(np.int64)
    for code in range(len(batch.sources)):
        rows = batch.source == code
        assert (batch.start_ns[rows][1:] >= ends[rows][:-1] - 2).all()


def test_every_row_has_a_number_of_its_own():
    """So that what is delivered twice can be told from what ran twice."""
    batch = merge_batches(list(busy("dp4").batches()))
    keys = np.stack([batch.source, batch.section, batch.seq], axis=1)
    assert len(np.unique(keys, axis=0)) == len(batch)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("form", ["csv", "otlp-json", "otlp-proto"])
def test_what_is_written_is_read_back_as_the_same_table(layout, form):
    """With the place in the layout and on the node, in all three formats."""
    run = busy(layout)
    recording = read_recording(io.BytesIO(_written(run.batches(7), form)), "generated")
    assert recording.form == form
    assert not recording.clashes
    (table,) = run.tables(20)
    assert_same(build_step_table(recording.batch), table)


def _written(batches, form: str) -> bytes:
    if form == "csv":
        return "".join(write_csv(batches)).encode()
    if form == "otlp-json":
        return "".join(map(as_json_line, encode_requests_of(batches))).encode()
    return b"".join(map(frame, encode_requests_of(batches)))


def test_a_csv_of_counted_microbatches_says_how_many():
    """In the column that readers know."""
    text = "".join(write_csv(make("dp2", steps=2).batches(counts_microbatches=True)))
    rows = [line.split(",") for line in text.splitlines()]
    at, name = rows[0].index("microbatch"), rows[0].index("section")
    assert {(row[name], row[at]) for row in rows[1:]} >= {("forward", "8"), ("optimizer", "1")}


def test_requests_carry_attempt_place_and_tokens():
    """Sources are equal to the simulated ones; no two spans share an id."""
    run = busy("tp2,pp2,ep2,dp4", report_tokens=True, restart_at_step=12)
    decoder = SpanDecoder()
    decoded = [decoder.decode(request) for request in encode_requests_of(run.batches(5))]
    assert not any(d.rejected for d in decoded)
    batches = list(run.batches(5))
    sources = {source for batch in batches for source in batch.sources}
    assert {d.batch.sources[0] for d in decoded} == sources
    assert {source.attempt for source in sources} == {0, 1}
    assert sum(len(d.batch) for d in decoded) == sum(map(len, batches))


def test_requests_carry_the_tokens_of_forward():
    """As the attribute that says so."""
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
        ExportTraceServiceRequest,
    )

    run = make("dp2", steps=3, report_tokens=True, sequence_cv=0.2)
    reported: dict[int, float] = {}
    ids = set()
    for request in encode_requests_of(run.batches(1)):
        for resource in ExportTraceServiceRequest.FromString(request).resource_spans:
            for span in resource.scope_spans[0].spans:
                ids.add(span.span_id)
                numbers = {a.key: a.value.int_value for a in span.attributes}
                assert ("training.tokens" in numbers) == (span.name == "forward")
                step = numbers["training.step"]
                reported[step] = reported.get(step, 0.0) + numbers.get("training.tokens", 0)
    (table,) = run.tables(3)
    assert [reported[step] for step in range(3)] == table.tokens.sum(axis=1).tolist()
    assert len(ids) == 2 * 3 * (3 + 2 * 8)


def test_an_empty_batch_is_nothing():
    """Nobody reported."""
    batch: ObservationBatch = next(make("dp2", steps=1).batches()).take(np.zeros(0, np.intp))
    assert list(encode_requests_of([batch])) == []

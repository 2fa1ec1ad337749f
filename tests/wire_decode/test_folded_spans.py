"""Folded spans: what a collector knows of runs that came as one span."""

from __future__ import annotations

import json
import random
from base64 import b64decode
from typing import Any

import numpy as np
import pytest
from google.protobuf.json_format import MessageToDict
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from otel_straggler import semconv
from otel_straggler.client.packing import NativeSpanPacker, Request
from otel_straggler.client.python_recorder import PythonTimer
from otel_straggler.client.recorder import RecordingSession
from otel_straggler.config import ClientSettings, Endpoint
from otel_straggler.detect.scores.references import ReferenceSet
from otel_straggler.detect.scores.step_tables import build_step_table, without_duplicates
from otel_straggler.detect.scores.window_scores import score_window
from otel_straggler.model.observation import NO_STEP, Section, merge_batches
from otel_straggler.otlp.decode_spans import SpanDecoder
from otel_straggler.otlp.folded_spans import (
    MAX_FOLDED,
    MAX_LENGTH_NS,
    MAX_ROWS,
    read_sketches,
)
from otel_straggler.otlp.identity import read_attributes
from otel_straggler.otlp.span_rules import BAD_FOLD, DecodedSpans

from ..native.made_records import Made, MadeTables

native = pytest.importorskip(
    "otel_straggler._native",
    reason="the extension was not built: it would show that what it folds is read",
)
OFFSET_NS = 1_790_000_000_000_000_000
NOWHERE = Endpoint(url="http://127.0.0.1:1", is_enabled=False)
END_NS = MAX_LENGTH_NS
TABLES = MadeTables(
    [("step", "other"), ("attention", "compute")], [""], [RecordingSession("0" * 16, 1)]
)
TIMERS = [PythonTimer(*name) for name in TABLES.sections]
LENGTHS = st.integers(1, MAX_LENGTH_NS - 1) | st.integers(1, 2_000) | st.integers(10**6, 11 * 10**5)


def records(lengths_ns: list[int], step: int | None = 3, tokens: int = -1) -> bytes:
    """Runs of one section that all end at once, as the native recorder has them."""
    made = Made(TABLES)
    for span, length in enumerate(lengths_ns, 1):
        made.add(
            TIMERS,
            section=1,
            span=span,
            start_ns=END_NS - length,
            end_ns=END_NS,
            step=step,
            step_span=0 if step is None else 10**9,
            tokens=tokens,
        )
    return made.block


def packed(runs: bytes, span_budget: int = 1) -> list[Request]:
    settings = ClientSettings(
        run_id="run", traces=NOWHERE, metrics=NOWHERE, span_budget=span_budget
    )
    identity = {"training.rank": 0, "training.run.id": "run"}
    return NativeSpanPacker(settings, lambda _: identity, 1).pack_block(runs, TABLES, OFFSET_NS)


def sent(lengths_ns: list[int], **reported: Any) -> DecodedSpans:
    """Folded, encoded, decoded."""
    [request] = packed(records(lengths_ns, **reported))
    return SpanDecoder().decode(request.body)


def nanoseconds(decoded: DecodedSpans) -> list[int]:
    return [int(n) for n in np.rint(decoded.batch.duration_s * 1e9)]


@given(st.lists(LENGTHS, min_size=2, max_size=300))
def test_count_sum_and_extremes_are_exact_and_the_median_nearly(lengths_ns: list[int]) -> None:
    """Of any lengths; the issue asks for 0.5 % of the median."""
    decoded = sent(lengths_ns)
    result = nanoseconds(decoded)
    assert decoded.outcomes == {"row": 1}
    assert len(result) == len(lengths_ns)
    assert sum(result) == pytest.approx(sum(lengths_ns), rel=1e-14)
    assert min(result) == pytest.approx(min(lengths_ns), rel=1e-14)
    assert max(result) == pytest.approx(max(lengths_ns), rel=1e-14)
    assert np.median(result) == pytest.approx(np.median(lengths_ns), rel=0.004)
    for one, other in zip(sorted(result), sorted(lengths_ns), strict=True):
        assert one == pytest.approx(other, rel=0.004)


@given(st.lists(LENGTHS, min_size=2, max_size=50))
def test_the_numbers_on_the_wire_are_exact(lengths_ns: list[int]) -> None:
    """As 64-bit integers."""
    [request] = packed(records(lengths_ns))
    message = ExportTraceServiceRequest.FromString(request.body)
    [span] = message.resource_spans[0].scope_spans[0].spans
    reported = {a.key: a.value.int_value for a in span.attributes}
    assert reported[semconv.FOLD_COUNT] == len(lengths_ns)
    assert reported[semconv.FOLD_SUM] == sum(lengths_ns)
    assert reported[semconv.FOLD_MIN] == min(lengths_ns)
    assert reported[semconv.FOLD_MAX] == max(lengths_ns)
    assert span.end_time_unix_nano - span.start_time_unix_nano == max(lengths_ns)


@given(st.lists(LENGTHS, min_size=1, max_size=200))
def test_a_sketch_is_read_as_it_was_written(lengths_ns: list[int]) -> None:
    """Every length lies in a bucket, and buckets are narrow."""
    sketch = read_sketches([native.sketch(lengths_ns)])
    dropped_bits = [max(length.bit_length() - 9, 0) for length in lengths_ns]
    buckets = [(n << 8) + (ns >> n) for n, ns in zip(dropped_bits, lengths_ns, strict=True)]
    assert sketch.counts.tolist() == np.unique(buckets, return_counts=True)[1].tolist()
    ordered = np.sort(np.array(lengths_ns))
    low, high = (np.repeat(e, sketch.counts) for e in (sketch.lowest_ns, sketch.highest_ns))
    assert (low <= ordered).all()
    assert (ordered <= high).all()
    assert ((high - low) <= 0.004 * low).all()


@given(st.lists(st.binary(max_size=40) | st.lists(LENGTHS, min_size=1).map(native.sketch)))
def test_any_bytes_are_a_sketch_or_none(sketches: list[bytes]) -> None:
    """What a stranger sends is bounded before it is used, and spoils no other."""
    result = read_sketches(sketches)
    assert (result.counts > 0).all()
    assert (result.lowest_ns <= result.highest_ns).all()
    assert (result.highest_ns < 2 * MAX_LENGTH_NS).all()
    for number, sketch in enumerate(sketches):
        alone, mine = read_sketches([sketch]), result.owner == number
        assert result.counts[mine].tolist() == alone.counts.tolist()
        assert result.lowest_ns[mine].tolist() == alone.lowest_ns.tolist()
        assert (np.diff(alone.lowest_ns) > 0).all()


def test_rows_of_a_folded_span_are_runs_of_its_section_and_step() -> None:
    """With numbers of their own, so that a second delivery is noticed."""
    lengths = [10**6 + n for n in range(100)]
    batch = sent(lengths).batch
    assert batch.sections == (Section("attention"),)
    assert set(batch.step.tolist()) == {3}
    assert batch.seq.tolist() == list(range(100))
    assert batch.runs is None
    starts = batch.start_ns - OFFSET_NS
    assert starts.min() >= END_NS - max(lengths)
    ends = starts + np.rint(batch.duration_s * 1e9).astype(int)
    assert ends.max() <= END_NS
    assert set(sent(lengths, step=None).batch.step.tolist()) == {NO_STEP}
    twice = [request.body for request in packed(records(lengths))] * 2
    joined = SpanDecoder().decode(b"".join(twice)).batch
    assert len(joined) == 200
    assert len(without_duplicates(joined)) == 100


def test_tokens_of_folded_runs_keep_their_sum() -> None:
    """Each row has its share."""
    tokens = sent([5, 6, 7, 8], tokens=3).batch.tokens
    assert tokens is not None
    assert tokens.tolist() == [3.0] * 4


def test_json_means_the_same() -> None:
    """The sketch is base64 there."""
    [request] = packed(records([5, 600, 7_000]))
    message = MessageToDict(
        ExportTraceServiceRequest.FromString(request.body), use_integers_for_enums=True
    )
    [span] = message["resourceSpans"][0]["scopeSpans"][0]["spans"]
    for key in ("traceId", "spanId", "parentSpanId"):
        span[key] = b64decode(span[key]).hex()
    decoder = SpanDecoder()
    in_json, in_binary = (
        decoder.decode_json(json.dumps(message).encode()),
        decoder.decode(request.body),
    )
    assert nanoseconds(in_json) == nanoseconds(in_binary) == [5, 600, 7_000]


def tampered(change: dict[str, Any]) -> ExportTraceServiceRequest:
    [request] = packed(records([1_000] * 10))
    message = ExportTraceServiceRequest.FromString(request.body)
    [span] = message.resource_spans[0].scope_spans[0].spans
    for attribute in span.attributes:
        if attribute.key in change:
            value = change[attribute.key]
            attribute.value.Clear()
            if isinstance(value, bytes):
                attribute.value.bytes_value = value
            elif value is not None:
                attribute.value.int_value = value
    return message


@pytest.mark.parametrize(
    "change",
    [
        {semconv.FOLD_COUNT: 11},
        {semconv.FOLD_COUNT: 0},
        {semconv.FOLD_COUNT: None},
        {semconv.FOLD_COUNT: 2**62, semconv.FOLD_SKETCH: native.sketch([1_000]) + b"\xff" * 4},
        {semconv.FOLD_SUM: 9_000},
        {semconv.FOLD_SUM: 2**62},
        {semconv.FOLD_MIN: 0},
        {semconv.FOLD_MIN: 1_010},
        {semconv.FOLD_MAX: 2_000},
        {semconv.FOLD_MAX: 2**60},
        {semconv.FOLD_SKETCH: b""},
        {semconv.FOLD_SKETCH: b"\x80"},
        {semconv.FOLD_SKETCH: None},
    ],
)
def test_a_fold_that_contradicts_itself_is_counted_and_no_row(change: dict[str, Any]) -> None:
    """Wrong numbers would move a median."""
    decoded = SpanDecoder().decode(tampered(change).SerializeToString())
    assert decoded.outcomes == {BAD_FOLD: 1}
    assert decoded.rejected == {BAD_FOLD: 1}
    assert len(decoded.batch) == 0


def test_a_request_of_folds_has_an_end() -> None:
    """A few bytes stand for many rows: a hostile sender gets no further than this."""
    [request] = packed(records([1_000] * MAX_FOLDED))
    copies = MAX_ROWS // MAX_FOLDED + 3
    decoded = SpanDecoder().decode(request.body * copies)
    assert decoded.outcomes == {"row": copies - 3, BAD_FOLD: 3}
    assert len(decoded.batch) == MAX_ROWS


def test_scores_of_folded_runs_are_those_of_the_runs() -> None:
    """Medians within the sketch's error; sums of every step and counts as if nothing was folded."""
    rng = random.Random(5)
    made = b""
    for step in range(20):
        lengths = [rng.randrange(10**5, 2 * 10**5) for _ in range(rng.randrange(1, 200))]
        made += records(lengths, step)
    tables, scores, spans = [], [], []
    for budget in (0, 50):
        requests = packed(made, budget)
        spans.append(sum(request.spans for request in requests))
        batches = [SpanDecoder().decode(request.body).batch for request in requests]
        batch = merge_batches(batches)
        table = build_step_table(batch, world_size=1)
        assert table is not None
        tables.append(table)
        scores.append(
            score_window(
                batch,
                ReferenceSet.empty(86_400.0),
                world_size=1,
                threshold=0.75,
                min_reference_samples=5,
                closed_by="end",
            )
        )
    assert spans[1] <= 20 < 50 * 20 < spans[0]
    np.testing.assert_allclose(tables[1].seconds, tables[0].seconds, rtol=1e-12)
    np.testing.assert_array_equal(tables[1].runs, tables[0].runs)
    np.testing.assert_allclose(tables[1].run_cv, tables[0].run_cv, rtol=0.01)
    np.testing.assert_array_equal(scores[1].section_count, scores[0].section_count)
    np.testing.assert_allclose(scores[1].section_median_s, scores[0].section_median_s, rtol=0.004)
    assert (scores[1].section_median_s != scores[0].section_median_s).any()


def test_folds_among_other_spans_keep_their_place() -> None:
    """Rows of a fold stand where its span stood, and every row has its own number."""
    rng = random.Random(4)
    lengths = [rng.randrange(1, 10**7) for _ in range(400)]
    made = b""
    for step in range(40):
        made += records(lengths[step * 10 : step * 10 + 1 + step % 10], step)
    [request, *_] = packed(made, 40)
    decoded = SpanDecoder().decode(request.body)
    message = ExportTraceServiceRequest.FromString(request.body)
    steps: list[Any] = []
    for span in message.resource_spans[0].scope_spans[0].spans:
        attributes = read_attributes(span.attributes)
        folds = attributes.get(semconv.FOLD_COUNT, 1)
        assert isinstance(folds, int)
        steps += [attributes[semconv.STEP]] * folds
    assert decoded.batch.step.tolist() == steps
    assert len(set(zip(steps, decoded.batch.seq.tolist(), strict=True))) == len(steps)
    assert len(decoded.batch) > decoded.outcomes["row"]

"""GPU times and waiting in collectives on spans: what becomes a column, and what is refused."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import pytest
from google.protobuf.json_format import MessageToDict
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from otel_straggler import semconv
from otel_straggler.detect.scores.step_tables import build_step_table
from otel_straggler.model.observation import (
    COLLECTIVE,
    CUPTI,
    EVENTS,
    HOST,
    GpuTimes,
    ObservationBatch,
    merge_batches,
)
from otel_straggler.native import NATIVE
from otel_straggler.otlp.decode_spans import SpanDecoder
from otel_straggler.otlp.span_rules import DecodedSpans

NAN = float("nan")
START_NS = 1_790_000_000_000_000_000
MS = 10**6
BUSY, NCCL, KERNEL = semconv.GPU_BUSY_TIME, semconv.GPU_NCCL_TIME, semconv.GPU_KERNEL_TIME
WAITED = semconv.COLLECTIVE_WAIT_TIME
TIMED = {BUSY: 9 * MS, NCCL: 2 * MS, KERNEL: 9 * MS}
FOLD = {
    semconv.FOLD_COUNT: 3, semconv.FOLD_SUM: 12 * MS, semconv.FOLD_MIN: 3 * MS,
    semconv.FOLD_MAX: 5 * MS, semconv.FOLD_SKETCH: bytes.fromhex("ee1c017a014901"),
}  # fmt: skip
ways = pytest.mark.parametrize(
    "extension",
    [
        None,
        pytest.param(
            NATIVE,
            marks=pytest.mark.skipif(
                NATIVE is None,
                reason="without the extension module; it would show that C++ reads the same",
            ),
        ),
    ],
    ids=["python", "native"],
)


def request_of(*spans: dict[str, Any]) -> ExportTraceServiceRequest:
    """Spans of 10 ms of one rank, step after step; integers, doubles and texts as attributes."""
    message = ExportTraceServiceRequest()
    resource_spans = message.resource_spans.add()
    resource_spans.resource.attributes.add(key=semconv.RANK).value.int_value = 3
    for number, attributes in enumerate(spans):
        span = resource_spans.scope_spans.add().spans.add(name="forward")
        span.trace_id, span.span_id = b"t" * 16, (number + 1).to_bytes(8, "big")
        span.start_time_unix_nano = START_NS + number * 20 * MS
        span.end_time_unix_nano = span.start_time_unix_nano + 10 * MS
        for key, reported in {semconv.STEP: number, **attributes}.items():
            value = span.attributes.add(key=key).value
            kind = {int: "int_value", float: "double_value", str: "string_value"}.get(
                type(reported)
            )
            if kind is None:
                value.bytes_value = reported
            else:
                setattr(value, kind, reported)
    return message


def cupti(**changes: Any) -> dict[str, Any]:
    return {semconv.TIME_BASIS: semconv.CUPTI_BASIS, **TIMED, **changes}


def collective(**changes: Any) -> dict[str, Any]:
    return {semconv.TIME_BASIS: semconv.COLLECTIVE_BASIS, WAITED: 4 * MS, **changes}


def decode(extension: ModuleType | None, *spans: dict[str, Any]) -> DecodedSpans:
    body = request_of(*spans).SerializeToString()
    return SpanDecoder(extension=extension).decode(body)


def reported(batch: ObservationBatch) -> list[tuple[float, ...]]:
    """Rows of basis, busy, nccl and kernel ms."""
    assert batch.gpu is not None
    gpu = batch.gpu
    columns = gpu.basis, gpu.busy_s * 1e3, gpu.nccl_s * 1e3, gpu.kernel_s * 1e3
    return [tuple(row) for row in np.array(columns).T.round(9)]


@ways
def test_what_a_span_tells_of_the_gpu_stands_in_columns(extension: ModuleType | None) -> None:
    """Of both ways to measure it; of a span without, nothing."""
    events = {semconv.TIME_BASIS: "events", BUSY: 12 * MS}
    result = decode(extension, {}, cupti(), events, {semconv.TIME_BASIS: "host"})
    rows = reported(result.batch)
    np.testing.assert_array_equal(
        rows,
        [(HOST, NAN, NAN, NAN), (CUPTI, 9, 2, 9), (EVENTS, 12, NAN, NAN), (HOST, NAN, NAN, NAN)],
    )
    assert result.refused_gpu_times == 0


@ways
def test_a_request_without_gpu_times_has_no_columns_for_them(extension: ModuleType | None) -> None:
    """Nor one in which the host's clock is said to be the basis, whatever else it tells."""
    odd = {semconv.TIME_BASIS: "sundial", **TIMED}
    result = decode(extension, {}, {semconv.TIME_BASIS: "host", **TIMED}, dict(TIMED), odd)
    assert len(result.batch) == 4
    assert result.batch.gpu is None


@ways
@pytest.mark.parametrize("wrong", [-1, 2**62, 60 * 10**9 + 100 * MS + 1, 0.5, float("nan"), "9"])
@pytest.mark.parametrize("key", [BUSY, NCCL])
def test_a_time_that_makes_no_sense_is_not_known_and_counted(
    key: str, wrong: Any, extension: ModuleType | None
) -> None:
    """The row is scored by the host's clock: half of a truth would pass for a fast rank."""
    result = decode(extension, cupti(), cupti(**{key: wrong}))
    assert result.outcomes == {"row": 2}
    assert result.refused_gpu_times == 1
    assert result.batch.gpu is not None
    assert result.batch.gpu.basis.tolist() == [CUPTI, HOST]
    assert np.isnan(result.batch.gpu.busy_s[1])


@ways
def test_the_largest_time_that_is_believed(extension: ModuleType | None) -> None:
    """Ten times the run and a minute; a whole number as a double, too; and 0."""
    maximum = 60 * 10**9 + 100 * MS
    result = decode(extension, cupti(**{BUSY: maximum}), cupti(**{BUSY: 5e6, NCCL: 0}))
    assert [row[:3] for row in reported(result.batch)] == [(CUPTI, maximum / MS, 2), (CUPTI, 5, 0)]
    assert result.refused_gpu_times == 0


@ways
def test_a_missing_time_is_not_known_and_no_mistake(extension: ModuleType | None) -> None:
    """Without the sum of all kernels busy and communication time say enough."""
    no_sum = {k: v for k, v in cupti().items() if k != KERNEL}
    no_nccl = {k: v for k, v in cupti().items() if k != NCCL}
    result = decode(extension, no_sum, no_nccl)
    assert result.refused_gpu_times == 0
    np.testing.assert_array_equal(
        reported(result.batch), [(CUPTI, 9, 2, NAN), (HOST, NAN, NAN, NAN)]
    )


@ways
def test_waiting_in_collectives_is_taken_off_the_duration(extension: ModuleType | None) -> None:
    """The row's busy time is its duration, so own time = duration - waiting; 0 to all of it."""
    waits = [collective(**{WAITED: waited}) for waited in (0, 4 * MS, 10 * MS, 2e6)]
    result = decode(extension, {}, *waits)
    np.testing.assert_array_equal(
        reported(result.batch),
        [
            (HOST, NAN, NAN, NAN),
            *((COLLECTIVE, 10, waited, NAN) for waited in (0, 4, 10, 2)),
        ],
    )
    assert result.batch.gpu is not None
    assert (1e3 * result.batch.gpu.own_s()[1:]).round(9).tolist() == [10, 6, 0, 8]
    assert result.refused_gpu_times == 0


@ways
@pytest.mark.parametrize("wrong", [-1, 10 * MS + 1, 2**63 - 1, 0.5, float("nan"), "4", b"\4"])
def test_waiting_that_makes_no_sense_is_not_known_and_counted(
    wrong: Any, extension: ModuleType | None
) -> None:
    """Nobody waits for longer than the span takes; the row is scored by the host's clock."""
    result = decode(extension, collective(), collective(**{WAITED: wrong}))
    assert result.outcomes == {"row": 2}
    assert result.refused_gpu_times == 1
    assert result.batch.gpu is not None
    assert result.batch.gpu.basis.tolist() == [COLLECTIVE, HOST]
    assert np.isnan(result.batch.gpu.busy_s[1])


@ways
def test_a_run_that_has_waited_goes_by_that_and_not_by_events(extension: ModuleType | None) -> None:
    """The time between events has the waiting in it, so all ranks would be as slow as the
    slowest."""
    events = {semconv.TIME_BASIS: "events", BUSY: 9 * MS}
    spans = [events, {**events, WAITED: 4 * MS}, {**events, WAITED: 11 * MS}]
    result = decode(extension, *spans)
    np.testing.assert_array_equal(
        reported(result.batch),
        [(EVENTS, 9, NAN, NAN), (COLLECTIVE, 10, 4, NAN), (HOST, NAN, NAN, NAN)],
    )
    assert result.batch.gpu is not None
    assert (1e3 * result.batch.gpu.own_s()[:2]).round(9).tolist() == [9, 6]
    assert result.refused_gpu_times == 1


@ways
def test_waiting_counts_only_where_it_is_the_basis(extension: ModuleType | None) -> None:
    """Kernels that were timed win; a basis without its number, or a number alone, says nothing."""
    rows = cupti(**{WAITED: 2**62}), {WAITED: 4 * MS}, {semconv.TIME_BASIS: "collective"}
    result = decode(extension, *rows, {semconv.TIME_BASIS: "collective", **TIMED})
    assert result.batch.gpu is not None
    assert result.batch.gpu.basis.tolist() == [CUPTI, HOST, HOST, HOST]
    assert result.refused_gpu_times == 0


def test_json_means_the_same() -> None:
    """With integers as texts, as OTLP writes them."""
    message = request_of(
        {}, cupti(), cupti(**{NCCL: -4}), collective(), collective(**{WAITED: 11 * MS})
    )
    document = MessageToDict(message, use_integers_for_enums=True)
    for scope in document["resourceSpans"][0]["scopeSpans"]:
        for span in scope["spans"]:
            span["traceId"], span["spanId"] = "11" * 16, "22" * 8
    import json

    result = SpanDecoder().decode_json(json.dumps(document).encode())
    assert result.batch.gpu is not None
    assert result.batch.gpu.basis.tolist() == [HOST, CUPTI, HOST, COLLECTIVE, HOST]
    assert result.refused_gpu_times == 2


@ways
def test_a_folded_span_gives_its_sums_to_its_rows(extension: ModuleType | None) -> None:
    """In equal parts, so that the step has the sums again."""
    result = decode(extension, cupti(**FOLD), {})
    assert reported(result.batch)[:3] == [(CUPTI, 3, round(2 / 3, 9), 3)] * 3
    table = build_step_table(result.batch)
    assert table is not None
    assert table.gpu is not None
    assert table.gpu.basis[:, 0, 0].tolist() == [CUPTI, HOST]
    assert table.gpu.own_s[0, 0, 0] == pytest.approx(0.007)
    assert table.gpu.nccl_s[0, 0, 0] == pytest.approx(0.002)


@ways
def test_a_folded_span_gives_its_waiting_to_its_rows(extension: ModuleType | None) -> None:
    """In equal parts; it may be all of the sum of the executions, and no more."""
    result = decode(extension, collective(**FOLD, **{WAITED: 9 * MS}))
    assert reported(result.batch)[0][:3] == (COLLECTIVE, 4, 3)
    table = build_step_table(result.batch)
    assert table is not None
    assert table.gpu is not None
    assert table.gpu.own_s[0, 0, 0] == pytest.approx(0.003)
    assert table.gpu.nccl_s[0, 0, 0] == pytest.approx(0.009)
    whole, more = (collective(**FOLD, **{WAITED: 12 * MS + beyond}) for beyond in (0, 1))
    result = decode(extension, whole, more)
    assert result.batch.gpu is not None
    assert result.batch.gpu.basis.tolist() == [COLLECTIVE] * 3 + [HOST] * 3
    assert result.refused_gpu_times == 1


def test_columns_go_along_with_their_rows() -> None:
    """Taken apart and put together; a part in which nobody tells has none."""
    one, other = decode(None, {}, cupti(), cupti(**{BUSY: MS})).batch, decode(None, {}).batch
    assert one.take(slice(0, 1)).gpu is None
    part = one.take(np.array([2, 0]))
    assert reported(part)[0][:2] == (CUPTI, 1)
    both = merge_batches([other, one])
    assert [row[0] for row in reported(both)] == [HOST, HOST, CUPTI, CUPTI]
    assert merge_batches([other, other]).gpu is None
    assert GpuTimes.join([None, None], [1, 2]) is None

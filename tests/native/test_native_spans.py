"""Blocks of records to OTLP in C++: the same spans as from tuples in Python."""

from __future__ import annotations

import hashlib
import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from otel_straggler import semconv
from otel_straggler.client.packing import Request
from otel_straggler.client.python_packing import SpanPacker
from otel_straggler.client.python_recorder import PythonTimer
from otel_straggler.client.recorder import RecordingSession
from otel_straggler.config import ClientSettings, Endpoint
from otel_straggler.otlp.ids import SpanIds, root_span_id, step_trace_id, window_trace_id

from .made_records import (
    NAMES,
    PHASES,
    TIMED,
    TIMED_BY_EVENTS,
    WAITED,
    Gpu,
    Made,
    MadeTables,
    random_runs,
)

native = pytest.importorskip(
    "otel_straggler._native",
    reason="the extension was not built: it would show that C++ encodes as Python does",
)
OFFSET_NS = 1_790_000_000_000_000_000
NOWHERE = Endpoint(url="http://127.0.0.1:1", is_enabled=False)


def settings(span_budget: int = 0) -> ClientSettings:
    return ClientSettings(
        run_id="rün", attempt=2, group="g", rank=5, traces=NOWHERE, metrics=NOWHERE,
        span_budget=span_budget,
    )  # fmt: skip


def resource(session: RecordingSession) -> dict[str, Any]:
    return {"straggler.session.id": session.session_id, "training.rank": 5}


def packers(span_budget: int = 0) -> tuple[SpanPacker, Any]:
    """One of each form, with the same seed."""
    from otel_straggler.client.packing import NativeSpanPacker

    given = settings(span_budget)
    return (
        SpanPacker(given, resource, 1, SpanIds(3)),
        NativeSpanPacker(given, resource, 1, SpanIds(3)),
    )


def decoded(requests: list[Request]) -> list[ExportTraceServiceRequest]:
    messages = []
    for request in requests:
        message = ExportTraceServiceRequest.FromString(request.body)
        [of_resource] = message.resource_spans
        [of_scope] = of_resource.scope_spans
        assert len(of_scope.spans) == request.spans
        assert sum(map(runs_of, of_scope.spans)) == request.runs
        messages.append(message)
    return messages


def runs_of(span: Any) -> int:
    """A folded span tells of several."""
    reported = {one.key: one.value.int_value for one in span.attributes}
    return reported.get(semconv.FOLD_COUNT, 1)


def spans_of(requests: list[Request]) -> list[Any]:
    return [s for m in decoded(requests) for s in m.resource_spans[0].scope_spans[0].spans]


@given(st.integers(0, 2**32), st.sampled_from([1, 1, 3]), st.integers(1, 60))
def test_a_block_means_what_the_tuples_mean(seed: int, one_in: int, runs: int) -> None:
    """Every field of every span, the requests they are in, and what they say of the sender."""
    rng = random.Random(seed)
    in_python, in_cpp = packers()
    for _ in range(2):
        made = random_runs(rng, rng.randrange(1, 30), runs)
        expected = in_python.pack(made.records, OFFSET_NS, one_in)
        result = in_cpp.pack_block(made.block, made.tables, OFFSET_NS, one_in)
        assert decoded(result) == decoded(expected)
    assert in_cpp.counts["bad_records"] == in_cpp.counts["other_epochs"] == 0


def test_a_request_holds_512_spans_at_most_and_a_megabyte() -> None:
    """In order; the last one holds the rest."""
    rng = random.Random(1)
    in_python, in_cpp = packers()
    made = random_runs(rng, 40, 60)
    result = in_cpp.pack_block(made.block, made.tables, OFFSET_NS)
    assert [r.spans for r in result] == [r.spans for r in in_python.pack(made.records, OFFSET_NS)]
    long = Made(MadeTables([("n" * 60_000, "compute")], PHASES, [RecordingSession("0" * 16, 1)]))
    for span in range(1, 40):
        long.add([PythonTimer("n" * 60_000, "compute")], section=0, span=span, start_ns=1, end_ns=2)
    in_python, in_cpp = packers()
    result = in_cpp.pack_block(long.block, long.tables, OFFSET_NS)
    expected = in_python.pack(long.records, OFFSET_NS)
    assert decoded(result) == decoded(expected)
    assert len(result) > 1
    assert max(len(r.body) for r in result) < 1_001_000


class _Growing(list[tuple[str, str]]):
    """Names to which another thread adds one while the last is read."""

    def __getitem__(self, at: Any) -> Any:
        if at == len(NAMES) - 1 and len(self) == len(NAMES):
            self.append(("late", "compute"))
        return super().__getitem__(at)


def test_a_name_that_is_added_while_names_are_told_is_told_too() -> None:
    """The tables are the recorder's own, and the training goes on."""
    _, in_cpp = packers()
    made = Made(MadeTables(_Growing(NAMES), PHASES, [RecordingSession("0" * 16, 1)]))
    timers = [PythonTimer(*name) for name in [*NAMES, ("late", "compute")]]
    made.add(timers, section=1, span=1, start_ns=1, end_ns=2)
    in_cpp.pack_block(made.block, made.tables, OFFSET_NS)
    made.add(timers, section=len(NAMES), span=2, start_ns=1, end_ns=2)
    names = [span.name for span in spans_of(in_cpp.pack_block(made.block, made.tables, OFFSET_NS))]
    assert names == [NAMES[1][0], "late"]
    assert in_cpp.counts["bad_records"] == 0


def test_what_a_gpu_took_is_told_with_its_basis() -> None:
    """Only of a run that was timed; what is not known of it is left out."""
    _, in_cpp = packers()
    made = Made(MadeTables(NAMES, PHASES, [RecordingSession("0" * 16, 1)]))
    timers = [PythonTimer(*name) for name in NAMES]
    by_events = Gpu(-1, 6, -1, 8, TIMED_BY_EVENTS)
    slots = [Gpu(5, 6, 7, 8, TIMED), Gpu(5, -1, -1, 8, TIMED), by_events, Gpu(5, 6, 7, 8, 3), None]
    slots.append(Gpu(5, 6, 7, 8, 6))  # of a later version
    for span, gpu in enumerate(slots, 1):
        made.add(timers, section=1, span=span, start_ns=1, end_ns=9, gpu=gpu)
    result = [
        {a.key: a.value.int_value or a.value.string_value for a in span.attributes}
        for span in spans_of(in_cpp.pack_block(made.block, made.tables, OFFSET_NS))
    ]
    reported = [{k: v for k, v in f.items() if k.startswith("straggler.gpu")} for f in result]
    name = "straggler.gpu."
    assert reported == [
        {
            f"{name}kernel_time_ns": 5,
            f"{name}busy_time_ns": 6,
            f"{name}nccl_time_ns": 7,
            f"{name}kernel_count": 8,
        },
        {f"{name}kernel_time_ns": 5, f"{name}kernel_count": 8},
        {f"{name}busy_time_ns": 6},
        {},
        {},
        {},
    ]
    assert [f["straggler.time_basis"] for f in result] == [
        "cupti",
        "cupti",
        "events",
        *["host"] * 3,
    ]


def test_what_a_run_waited_is_told_with_its_basis() -> None:
    """Of a section and of a step; no wait is a number only if it is above 0."""
    _, in_cpp = packers()
    made = Made(MadeTables(NAMES, PHASES, [RecordingSession("0" * 16, 1)]))
    timers = [PythonTimer(*name) for name in NAMES]
    for span, waited_ns in enumerate([3, 0], 1):
        made.add(timers, section=1, span=span, start_ns=1, end_ns=9, waited_ns=waited_ns)
    made.add(timers, section=1, span=3, start_ns=1, end_ns=9, gpu=Gpu(0, 0, -3, 0, WAITED))
    made.add(timers, section=0, span=9, start_ns=1, end_ns=9, step=1, step_span=9, is_step=True,
             waited_ns=4)  # fmt: skip
    result = [
        {a.key: a.value.int_value or a.value.string_value for a in span.attributes}
        for span in spans_of(in_cpp.pack_block(made.block, made.tables, OFFSET_NS))
    ]
    told = [(f["straggler.time_basis"], f.get("straggler.collective.wait_time_ns")) for f in result]
    assert told == [("collective", 3), ("host", None), ("host", None), ("collective", 4)]


def test_records_that_name_nothing_are_counted_and_left_out() -> None:
    """A section or phase out of range, and an epoch of a session that was shut down."""
    _, in_cpp = packers()
    sessions = [RecordingSession("0" * 16, 1), RecordingSession("1" * 16, 9)]
    tables = MadeTables([*NAMES, ("late", "compute")], [*PHASES, "late"], sessions)
    made = Made(tables)
    timers = [PythonTimer(*name) for name in tables.sections]
    for run in ({}, {"section": 6}, {"phase": 3}, {"around": (6, 1)}, {"session": 1}):
        made.add(timers, span=1, start_ns=1, end_ns=2, **{"section": 1, **run})
    known = MadeTables(NAMES, PHASES, sessions)
    assert len(spans_of(in_cpp.pack_block(made.block, known, OFFSET_NS))) == 1
    assert in_cpp.counts == {"spans": 1, "folded_runs": 0, "bad_records": 3, "other_epochs": 1}
    assert len(spans_of(in_cpp.pack_block(made.block, tables, OFFSET_NS))) == 4


def test_a_block_that_is_cut_is_refused() -> None:
    """Nothing is read beyond its end."""
    _, in_cpp = packers()
    with pytest.raises(ValueError, match="block of 127 bytes: expected a multiple of 128"):
        in_cpp.pack_block(bytes(127), MadeTables(NAMES, PHASES, []), 0)


def test_a_resource_that_changes_is_told_from_then_on() -> None:
    """Topology is known only once the model is set up."""
    from otel_straggler.client.packing import NativeSpanPacker

    role = ["default"]
    packer = NativeSpanPacker(settings(), lambda _: {"training.role": role[0]}, 1)
    made = random_runs(random.Random(2), 1, 3)
    for name in ("default", "actor"):
        role[0] = name
        [message] = decoded(packer.pack_block(made.block, made.tables, OFFSET_NS))
        [attribute] = message.resource_spans[0].resource.attributes
        assert attribute.value.string_value == name


@given(st.binary(max_size=400), st.integers(1, 64), st.sampled_from([b"", b"root", b"p" * 16]))
def test_blake2b_is_that_of_hashlib(text: bytes, size: int, person: bytes) -> None:
    """RFC 7693, also across blocks of 128 bytes."""
    expected = hashlib.blake2b(text, digest_size=size, person=person).digest()
    assert native.blake2b(text, size, person) == expected


INT64 = st.integers(-(2**63), 2**63 - 1)


@given(st.text(), INT64, st.text(), INT64, INT64, INT64)
def test_ids_are_those_of_python(
    run_id: str, attempt: int, group: str, rank: int, step: int, unix_ns: int
) -> None:
    """All ranks of a step share a trace, whatever form of the package they run."""
    result = native.trace_ids(run_id.encode(), attempt, group.encode(), rank, step, unix_ns)
    of_step = step_trace_id(run_id, attempt, group, step)
    of_window = window_trace_id(run_id, attempt, group, rank, unix_ns)
    assert result == (of_step, of_window, root_span_id(of_step))


@given(st.integers(0, 2**64 - 1), st.integers(0, 2**32))
def test_any_bytes_are_records(seed: int, size: int) -> None:
    """Damaged memory is encoded or counted, never a crash; what comes out is a request."""
    from otel_straggler.client.packing import NativeSpanPacker

    rng = np.random.default_rng(seed)
    text = rng.integers(0, 2**64, (size % 40, 16), np.uint64)
    text[:, 8:11] &= rng.choice(np.array([2**64 - 1, 0x0000_0003_0000_0003], np.uint64), (1, 3))
    text[:, 9] &= np.uint64(0x0000_0001_0000_0003)
    packer = NativeSpanPacker(settings(10), resource, 1)
    sessions = [RecordingSession("0" * 16, 1), RecordingSession("1" * 16, 1)]
    requests = packer.pack_block(text.tobytes(), MadeTables(NAMES, PHASES, sessions), OFFSET_NS)
    counts = packer.counts
    assert len(spans_of(requests)) == counts["spans"]

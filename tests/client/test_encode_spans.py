"""The span encoder against the reference decoder, field by field."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from otel_straggler import semconv
from otel_straggler.otlp.encode_spans import SpanGroup, encode_request, encode_resource, encode_rows
from otel_straggler.otlp.ids import SpanIds, is_sampled, root_span_id, step_trace_id

INT64 = st.integers(-(2**63), 2**63 - 1)
TIME = st.integers(0, 2**63 - 1)
TEXT = st.text(max_size=300)


@st.composite
def groups(draw: st.DrawFn) -> SpanGroup:
    """Any spans that share a shape."""
    count = draw(st.integers(1, 20))
    columns = st.lists(INT64, min_size=count, max_size=count)
    times = st.lists(TIME, min_size=count, max_size=count)
    ids = st.lists(st.integers(1, 2**64 - 1), min_size=count, max_size=count)
    return SpanGroup(
        name=draw(TEXT),
        labels=tuple(draw(st.dictionaries(TEXT, TEXT, max_size=4)).items()),
        numbers={k: np.array(draw(columns)) for k in draw(st.sets(TEXT, max_size=4))},
        trace_ids=np.frombuffer(
            draw(st.binary(min_size=16 * count, max_size=16 * count)), np.uint8
        ).reshape(count, 16),
        span_ids=np.array(draw(ids), np.uint64),
        parent_ids=np.array(draw(ids), np.uint64) if draw(st.booleans()) else None,
        start_ns=np.array(draw(times)),
        end_ns=np.array(draw(times)),
        is_error=draw(st.booleans()),
    )


def decoded(rows: list[bytes], resource: bytes = b"") -> Any:
    return ExportTraceServiceRequest.FromString(encode_request(resource, rows))


def spans_of(group: SpanGroup) -> Any:
    return decoded(encode_rows(group)).resource_spans[0].scope_spans[0].spans


def valid(text: str) -> str:
    return text.encode("utf-8", "replace").decode()


@given(groups())
def test_every_field_is_read_back_as_it_was(group: SpanGroup) -> None:
    """Unicode names, negative and 64-bit numbers, padded varints: the decoder sees the same."""
    spans = spans_of(group)
    assert [s.name for s in spans] == [valid(group.name)] * len(group.span_ids)
    assert [s.trace_id for s in spans] == [row.tobytes() for row in group.trace_ids]
    assert [s.span_id for s in spans] == [i.tobytes() for i in group.span_ids]
    parents = group.parent_ids
    expected = [b""] * len(spans) if parents is None else [i.tobytes() for i in parents]
    assert [s.parent_span_id for s in spans] == expected
    assert [s.start_time_unix_nano for s in spans] == group.start_ns.tolist()
    assert [s.end_time_unix_nano for s in spans] == group.end_ns.tolist()
    assert {s.status.code for s in spans} == {2 if group.is_error else 0}
    assert {s.kind for s in spans} == {1}


@given(groups())
def test_every_attribute_is_read_back_as_it_was(group: SpanGroup) -> None:
    """Texts are the same on all spans, numbers are each span's own."""
    for at, span in enumerate(spans_of(group)):
        pairs = [(a.key, a.value) for a in span.attributes]
        labels = [(k, v.string_value) for k, v in pairs if v.HasField("string_value")]
        numbers = [(k, v.int_value) for k, v in pairs if v.HasField("int_value")]
        assert labels == [(valid(k), valid(v)) for k, v in group.labels]
        assert numbers == [(valid(k), int(c[at])) for k, c in group.numbers.items()]


@given(st.dictionaries(TEXT, INT64 | TEXT | st.booleans() | st.floats(allow_nan=False)))
def test_resource_attributes_are_read_back_as_they_were(attributes: dict[str, Any]) -> None:
    """A bool stays a bool and an int an int."""
    request = decoded([], encode_resource(attributes))
    read = {
        a.key: getattr(a.value, a.value.WhichOneof("value"))
        for a in request.resource_spans[0].resource.attributes
    }
    assert {k: (type(v), v) for k, v in read.items()} == {
        valid(k): (type(v), valid(v) if isinstance(v, str) else v) for k, v in attributes.items()
    }


def test_a_request_names_its_schema_and_scope() -> None:
    """Receivers find out what the names mean."""
    of_resource = decoded([], encode_resource({"a": 1})).resource_spans[0]
    of_scope = of_resource.scope_spans[0]
    assert of_resource.schema_url == of_scope.schema_url == semconv.SCHEMA_URL
    assert of_scope.scope.name == semconv.SCOPE_NAME


def test_all_ranks_compute_the_same_trace_for_a_step() -> None:
    """No message is needed, and the pinned value keeps two releases in one trace."""
    trace_id = step_trace_id("run", 0, "", 7)
    assert trace_id.hex() == "36831d6b1fd441ed7d6953fd987d0307"
    assert step_trace_id("run", 1, "", 7) != trace_id
    assert step_trace_id("run", 0, "critic", 7) != trace_id
    assert root_span_id(trace_id) == root_span_id(bytes(trace_id))


def test_span_ids_do_not_repeat_and_leave_random_alone() -> None:
    """A fixed seed of the user's generator neither changes nor is changed."""
    import random

    random.seed(1)
    state = random.getstate()
    ids = SpanIds().of(np.arange(1, 100_001, dtype=np.uint64))
    other = SpanIds().of(np.arange(1, 11, dtype=np.uint64))
    assert len(np.unique(ids)) == 100_000
    assert not np.isin(other, ids).any()
    assert (ids != 0).all()
    assert random.getstate() == state


def test_one_step_in_n_is_sampled() -> None:
    """The share is right, and 1 in 1 is all."""
    ids = [step_trace_id("run", 0, "", step) for step in range(20_000)]
    assert sum(is_sampled(i, 100) for i in ids) == pytest.approx(200, abs=60)
    assert all(is_sampled(i, 1) for i in ids)

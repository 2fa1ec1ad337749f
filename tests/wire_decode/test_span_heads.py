"""Ids and times read from the bytes of spans are those that protobuf reads."""

from __future__ import annotations

import random

import numpy as np
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from otel_straggler.otlp.slices import slices_of
from otel_straggler.otlp.span_heads import heads_of


def spans_of_all_kinds(draw: random.Random) -> list[Span]:
    """With and without a parent, a kind, times, a state, a long name, and what no sender should
    send."""
    spans = []
    for _ in range(300):
        span = Span(trace_id=draw.randbytes(16), span_id=draw.randbytes(8))
        span.name = "n" * draw.choice([0, 1, 40, 127, 128, 300])
        if draw.random() < 0.7:
            span.parent_span_id = draw.randbytes(draw.choice([8, 8, 8, 3]))
        if draw.random() < 0.8:
            span.kind = draw.choice([Span.SPAN_KIND_INTERNAL, Span.SPAN_KIND_SERVER])
        if draw.random() < 0.8:
            span.start_time_unix_nano = draw.getrandbits(60)
        if draw.random() < 0.8:
            span.end_time_unix_nano = draw.choice([draw.getrandbits(60), 2**64 - 1])
        if draw.random() < 0.2:
            span.trace_state = "a=b"
        if draw.random() < 0.1:
            span.ClearField("span_id")
        if draw.random() < 0.5:
            span.attributes.add(key="training.step").value.int_value = 9
        spans.append(span)
    return spans


def number(span_id: bytes) -> int:
    return int.from_bytes(span_id, "little") if len(span_id) == 8 else 0


def test_they_are_what_protobuf_reads() -> None:
    """Of spans of any shape, in one request."""
    spans = spans_of_all_kinds(random.Random(7))
    request = ExportTraceServiceRequest()
    request.resource_spans.add().scope_spans.add().spans.extend(spans)
    body = request.SerializeToString()
    (scope,) = slices_of(body).scopes
    heads = heads_of(body, scope.contents, scope.ends)
    assert heads.span_ids.tolist() == [number(s.span_id) for s in spans]
    assert heads.parent_ids.tolist() == [number(s.parent_span_id) for s in spans]
    latest = 2**63 - 1
    assert heads.start_ns.tolist() == [min(s.start_time_unix_nano, latest) for s in spans]
    assert heads.end_ns.tolist() == [min(s.end_time_unix_nano, latest) for s in spans]


def test_what_is_no_span_has_no_ids() -> None:
    """Bytes that protobuf refuses are all zeros; short ones are not read beyond their end."""
    body = b"\x0a\x10" + bytes(16) + b"\x12\x08\xff"
    heads = heads_of(body, np.array([0, 18]), np.array([len(body), len(body)]))
    assert not heads.span_ids.any()
    assert not heads.end_ns.any()
    assert len(heads_of(b"", np.zeros(0, np.int64), np.zeros(0, np.int64)).span_ids) == 0

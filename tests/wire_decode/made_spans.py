"""Requests with spans of few shapes and some strange ones, and how results are compared."""

from __future__ import annotations

import dataclasses
import random
from typing import Any

import numpy as np
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from otel_straggler import semconv
from otel_straggler.errors import InputError
from otel_straggler.otlp.decode_spans import SpanDecoder
from otel_straggler.otlp.span_rules import TIME_KEYS, DecodedSpans

BASE_NS = 1_790_000_000_000_000_000


def same(a: DecodedSpans, b: DecodedSpans) -> bool:
    """Equal in every column, table and count."""
    assert a.outcomes == b.outcomes
    assert a.progress == b.progress
    assert a.refused_gpu_times == b.refused_gpu_times
    _same_columns(a.batch, b.batch)
    return True


def _same_columns(a: Any, b: Any) -> None:
    for field in dataclasses.fields(a):
        left, right = getattr(a, field.name), getattr(b, field.name)
        if isinstance(left, np.ndarray):
            np.testing.assert_array_equal(left, right, field.name)
            assert left.dtype == right.dtype
        elif field.name == "gpu" and left is not None and right is not None:
            _same_columns(left, right)
        else:
            assert left == right, field.name


def one_by_one(body: bytes) -> DecodedSpans | None:
    """Decoded without the extension module; None if it is no request."""
    try:
        return SpanDecoder(extension=None).decode(body)
    except InputError:
        return None


def request(rng: random.Random, spans: int) -> ExportTraceServiceRequest:
    """A request with spans of few shapes, and some strange ones among them."""
    message = ExportTraceServiceRequest()
    for number in range(rng.choice([1, 1, 2])):
        resource_spans = message.resource_spans.add(schema_url="https://example")
        attributes = resource_spans.resource.attributes
        attributes.add(key="service.name").value.string_value = "job"
        if rng.random() < 0.8:
            attributes.add(key="training.rank").value.int_value = number
            attributes.add(key="training.world_size").value.int_value = 4
        for _ in range(rng.choice([1, 1, 2])):
            scope_spans = resource_spans.scope_spans.add()
            if rng.random() < 0.9:
                scope_spans.scope.name = rng.choice([semconv.SCOPE_NAME, "other"])
            for _ in range(spans):
                add_span(rng, scope_spans.spans.add())
    return message


def add_span(rng: random.Random, span: Any) -> None:
    span.trace_id = rng.choice([rng.randbytes(16)] * 30 + [bytes(16), b"short", b""])
    span.span_id = rng.choice([rng.randbytes(8)] * 30 + [bytes(8), b"x"])
    if rng.random() < 0.5:
        span.parent_span_id = rng.randbytes(8)
    names = ["forward", "backward", "step", "größe", "pytorch.barrier", "pytorch.rank"]
    span.name = rng.choice(names * 4 + [""])
    span.kind = rng.choice([1, 1, 3])
    start = BASE_NS + rng.randrange(10**12)
    span.start_time_unix_nano = rng.choice([start] * 30 + [0, 2**63])
    span.end_time_unix_nano = start + rng.choice([rng.randrange(1, 10**9)] * 30 + [0, -5])
    put = span.attributes.add
    if rng.random() < 0.8:
        put(key=semconv.SECTION).value.string_value = span.name
        put(key=semconv.SEQ).value.int_value = rng.choice([rng.randrange(300)] * 20 + [-1, 2**62])
    step = rng.random()
    if step < 0.8:
        put(key=semconv.STEP).value.int_value = rng.choice([rng.randrange(300)] * 20 + [-1])
    elif step < 0.85:
        put(key=semconv.STEP).value.string_value = str(rng.randrange(100))
    elif step < 0.9:
        put(key="iteration").value.int_value = rng.randrange(100)
        put(key="dl.iteration").value.int_value = rng.randrange(100)
    for key, chance in (("tokens", 0.5), ("loss", 0.3), ("flag", 0.2), ("list", 0.1)):
        if rng.random() < chance:
            value = put(key=key).value
            if key == "tokens":
                value.int_value = rng.choice([5, 7, -3, rng.randrange(10**6)])
            elif key == "loss":
                value.double_value = rng.random()
            elif key == "flag":
                value.bool_value = rng.random() < 0.5
            else:
                value.array_value.values.add().int_value = rng.randrange(9)
    if rng.random() < 0.4:
        value = put(key=semconv.TOKENS).value
        kind = rng.random()
        if kind < 0.8:
            value.int_value = rng.choice([0, 512, 4096, rng.randrange(10**6), -1, 2**63 - 1])
        elif kind < 0.9:
            value.double_value = rng.choice([512.0, 0.5, -1.0, float("nan"), float("inf")])
        else:
            value.string_value = rng.choice(["512", "1e3", "many", ""])
    add_gpu_times(rng, put)
    if rng.random() < 0.2:
        put(key=semconv.SECTION_PARENT).value.string_value = rng.choice(["train", ""])
    odd = rng.random()
    if odd < 0.03:
        span.status.code = 2
    elif odd < 0.06:
        put(key="rank").value.int_value = rng.randrange(-1, 5)
    elif odd < 0.08:
        span.events.add(name="e")
    elif odd < 0.1:
        put(key=semconv.PHASE).value.string_value = "eval"
        put(key=semconv.SECTION_KIND).value.string_value = rng.choice(["data", "nonsense"])
    elif odd < 0.12:
        put(key=semconv.SEQ).value.string_value = rng.choice(["7", "x"])
    elif odd < 0.14:
        span.trace_state = "a=b"
    elif odd < 0.16:
        put(key=semconv.SPAN_TRUNCATED).value.bool_value = rng.random() < 0.5
    elif odd < 0.18:
        put(key="rank").value.double_value = rng.choice([2.0, 2.5])
    elif odd < 0.2:
        put(key="global_step").value.double_value = float(rng.randrange(100))


def add_gpu_times(rng: random.Random, put: Any) -> None:
    """Of all bases, whole or with holes, sometimes absurd."""
    bases = ["", "", "host", "events", "cupti", "cupti", "collective", "collective", "magic"]
    basis = rng.choice(bases)
    if basis:
        put(key=semconv.TIME_BASIS).value.string_value = basis
    for key in TIME_KEYS:
        if not basis or rng.random() < 0.1:
            continue
        value, kind = put(key=key).value, rng.random()
        if kind < 0.9:
            strange = [0, -1, 60 * 10**9, 2**62, 2**63 - 1, -(2**63)]
            value.int_value = rng.choice([rng.randrange(10**9)] * 30 + strange)
        elif kind < 0.95:
            value.double_value = rng.choice([5.0, 0.5, -1.0, 1e300, float("nan"), float("inf")])
        elif kind < 0.98:
            value.string_value = rng.choice(["512", "many", ""])
        else:
            value.bool_value = True

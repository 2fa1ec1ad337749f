"""Whatever the OpenTelemetry SDK sends, C++ reads as protobuf's parser does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import Link, SpanKind, Status, StatusCode

from otel_straggler import semconv
from otel_straggler.native import NATIVE
from otel_straggler.otlp.decode_spans import SpanDecoder

from .test_native_scan import agree

pytestmark = pytest.mark.skipif(
    NATIVE is None, reason="without the extension module; it would show that C++ reads the SDK"
)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
INT64 = st.integers(-(2**63), 2**63 - 1)
VALUES = st.one_of(
    TEXT, INT64, st.booleans(), st.floats(allow_nan=False), st.lists(TEXT, max_size=3),
    st.lists(INT64, max_size=3), st.lists(st.booleans(), max_size=3),
)  # fmt: skip
KEYS = st.one_of(
    TEXT.filter(bool),
    st.sampled_from([semconv.SECTION, semconv.STEP, semconv.TOKENS, "rank", "step", "world_size"]),
)
ATTRIBUTES = st.dictionaries(KEYS, VALUES, max_size=5)
SPANS = st.lists(
    st.fixed_dictionaries(
        {
            "name": TEXT,
            "kind": st.sampled_from(list(SpanKind)),
            "attributes": ATTRIBUTES,
            "length": st.integers(-1, 10**9),
            "events": st.lists(ATTRIBUTES, max_size=2),
            "links": st.lists(ATTRIBUTES, max_size=1),
            "status": st.sampled_from(list(StatusCode)),
        }
    ),
    max_size=8,
)


def encoded(spans: Sequence[ReadableSpan]) -> bytes:
    """As the SDK's own exporter does it."""
    from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans

    body: bytes = encode_spans(spans).SerializeToString()
    return body


def finished(spans: list[dict[str, Any]], resource: Resource, scopes: int) -> list[ReadableSpan]:
    """What a provider hands to its exporter; each span is the child of the one before."""
    kept = InMemorySpanExporter()
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(kept))
    around = None
    for number, reported in enumerate(spans):
        name = semconv.SCOPE_NAME if number % scopes == 0 else f"scope {number % scopes}"
        links = [Link(around.get_span_context(), a) for a in reported["links"]] if around else []
        start_ns = 1_790_000_000_000_000_000 + number
        span = provider.get_tracer(name, "1.0").start_span(
            reported["name"], None, reported["kind"], reported["attributes"], links, start_ns
        )
        for event in reported["events"]:
            span.add_event("event", event, start_ns)
        span.set_status(Status(reported["status"]))
        span.end(start_ns + reported["length"])
        around = span
    provider.shutdown()
    return list(kept.get_finished_spans())


@given(SPANS, ATTRIBUTES, st.integers(1, 3))
def test_any_spans_of_the_sdk_are_read_alike(
    spans: list[dict[str, Any]], resource: dict[str, Any], scopes: int
) -> None:
    """Attributes of all types, events, links, kinds and states; a rank anywhere, or nowhere."""
    decoder = SpanDecoder()
    done = finished(spans, Resource({"rank": 2, **resource}), scopes)
    assert agree(decoder, encoded(done))
    assert agree(decoder, encoded(done[::-1]))  # with cases that are known by now


def test_a_span_of_the_sdk_is_a_row() -> None:
    """Else the other test would show that nothing is nothing."""
    reported = {
        "name": "forward", "kind": SpanKind.INTERNAL, "attributes": {"step": 3}, "length": 5,
        "events": [], "links": [], "status": StatusCode.UNSET,
    }  # fmt: skip
    decoded = SpanDecoder().decode(encoded(finished([reported], Resource({"rank": 2}), 1)))
    assert (decoded.batch.sources[0].rank, decoded.batch.step.tolist()) == (2, [3])

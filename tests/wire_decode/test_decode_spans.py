"""OTLP requests to rows: what is scored, what is counted and why."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from google.protobuf.json_format import MessageToDict
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, InstrumentationScope, KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    Gauge,
    Metric,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
)
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Span, Status

from otel_straggler.errors import InputError
from otel_straggler.model.observation import NO_STEP, Section
from otel_straggler.native import NATIVE
from otel_straggler.otlp import decode_json
from otel_straggler.otlp.decode_metrics import MetricDecoder
from otel_straggler.otlp.decode_spans import SpanDecoder
from otel_straggler.otlp.span_rules import DecodedSpans
from otel_straggler.simulate.scenarios import Plan, simulate
from otel_straggler.simulate.writers import encode_requests

EXTENSION: ModuleType | None = NATIVE
"""Given to decoders; see :func:`way`."""

OURS = {
    "service.name": "job",
    "host.name": "node-3",
    "straggler.session.id": "00112233445566ff",
    "training.run.id": "run",
    "training.run.attempt": 2,
    "training.rank": 3,
    "training.local_rank": 1,
    "training.world_size": 8,
    "training.role": "actor",
    "training.parallel.data.rank": 5,
}


def key_values(attributes: dict[str, Any]) -> list[KeyValue]:
    def value(v: Any) -> AnyValue:
        if isinstance(v, bool):
            return AnyValue(bool_value=v)
        if isinstance(v, int):
            return AnyValue(int_value=v)
        if isinstance(v, float):
            return AnyValue(double_value=v)
        return AnyValue(string_value=v)

    return [KeyValue(key=k, value=value(v)) for k, v in attributes.items()]


def span(attributes: dict[str, Any] | None = None, **changes: Any) -> Span:
    fields = {
        "name": "forward",
        "trace_id": bytes(range(1, 17)),
        "span_id": bytes(range(1, 9)),
        "start_time_unix_nano": 1_000_000_000,
        "end_time_unix_nano": 3_000_000_000,
        "attributes": key_values(attributes or {}),
    }
    return Span(**{**fields, **changes})


def request(
    *spans: Span, resource: dict[str, Any] = OURS, scope: str = "x"
) -> ExportTraceServiceRequest:
    return ExportTraceServiceRequest(
        resource_spans=[
            ResourceSpans(
                resource=Resource(attributes=key_values(resource)),
                scope_spans=[ScopeSpans(scope=InstrumentationScope(name=scope), spans=spans)],
            )
        ]
    )


def as_otlp_json(message: ExportTraceServiceRequest) -> str:
    """The dialect of OTLP: hex ids where protobuf's own JSON has base64."""
    document = MessageToDict(message, use_integers_for_enums=True)
    for rs, resource_spans in enumerate(message.resource_spans):
        for ss, scope_spans in enumerate(resource_spans.scope_spans):
            for i, one in enumerate(scope_spans.spans):
                node = document["resourceSpans"][rs]["scopeSpans"][ss]["spans"][i]
                node["traceId"] = one.trace_id.hex().upper()
                node["spanId"] = one.span_id.hex()
    return json.dumps(document)


@pytest.fixture(autouse=True, scope="module", params=["native", "python"])
def way(request: pytest.FixtureRequest) -> Iterator[None]:
    """All of it twice: read by the extension module, and without it."""
    global EXTENSION
    EXTENSION = NATIVE if request.param == "native" else None
    if request.param == "native" and EXTENSION is None:
        pytest.skip("without the extension module; it would show that C++ reads the same")
    yield
    EXTENSION = NATIVE


def decode(message: ExportTraceServiceRequest, *, how: str = "protobuf") -> DecodedSpans:
    decoder = SpanDecoder(extension=EXTENSION)
    if how == "json":
        return decoder.decode_json(as_otlp_json(message).encode())
    return decoder.decode(message.SerializeToString())


both_encodings = pytest.mark.parametrize("how", ["protobuf", "json"])


@both_encodings
def test_a_section_span_of_ours_becomes_a_row_with_its_whole_identity(how: str) -> None:
    """Every attribute of the wire contract arrives."""
    own = {
        "straggler.section": "fwd",
        "straggler.section.kind": "data",
        "training.step": 7,
        "straggler.seq": 41,
    }
    decoded = decode(request(span(own), scope="otel_straggler"), how=how)
    batch = decoded.batch
    (source,) = batch.sources
    assert decoded.outcomes == {"row": 1}
    assert (source.run_id, source.attempt, source.rank, source.world_size) == ("run", 2, 3, 8)
    assert (source.job, source.node, source.local_rank) == ("job", "node-3", 1)
    assert (source.role, source.parallel) == ("actor", (("data", 5),))
    assert source.session_id == "00112233445566ff"
    assert batch.sections == (Section("fwd", "data"),)
    assert (batch.step.item(), batch.seq.item()) == (7, 41)
    assert (batch.start_ns.item(), batch.duration_s.item()) == (1_000_000_000, 2.0)
    assert decoded.progress[source].step == 7


@both_encodings
@pytest.mark.parametrize(
    ("reported", "expected"),
    [(4096, 4096.0), ("4096", 4096.0), (0.5, 0.5), (0, 0.0)],
)
def test_a_work_size_is_read_as_a_number(reported: Any, expected: float, how: str) -> None:
    """Also as text or as a double, which is all that some senders know."""
    spans = [span({"training.tokens": reported}), span({"straggler.section": "other"})]
    tokens = decode(request(*spans), how=how).batch.tokens
    assert tokens is not None
    assert tokens[0] == expected
    assert np.isnan(tokens[1])


@pytest.mark.parametrize("reported", [-1, -0.5, "many", "nan", "inf", True])
def test_what_is_no_work_size_counts_as_not_told(reported: Any) -> None:
    """The time is scored all the same; where no row tells, there is no column."""
    batch = decode(request(span({"training.tokens": reported}))).batch
    assert len(batch) == 1
    assert batch.tokens is None


@both_encodings
def test_a_section_knows_the_section_around_it(how: str) -> None:
    """Spans of other senders, who do not say, count as top-level."""
    inner = {"straggler.section": "layer", "straggler.section.parent": "forward"}
    decoded = decode(request(span(inner), span()), how=how)
    assert decoded.batch.sections == (Section("layer", parent="forward"), Section("forward"))


@both_encodings
def test_the_span_of_a_step_is_progress_and_is_not_scored(how: str) -> None:
    """It covers all sections."""
    decoded = decode(
        request(span({"training.step": 9}, name="step"), scope="otel_straggler"), how=how
    )
    assert decoded.outcomes == {"step": 1}
    assert [p.step for p in decoded.progress.values()] == [9]


@both_encodings
@pytest.mark.parametrize("key", ["training.rank", "nv.dl.rank", "dl.rank", "rank"])
@pytest.mark.parametrize("value", [3, "3", 3.0])
def test_a_span_of_any_sdk_is_scored_under_its_name_if_it_names_a_rank(
    how: str, key: str, value: float | str
) -> None:
    """By the alias list, on the resource or on the span; the run is the service."""
    on_resource = decode(request(span(), resource={"service.name": "s", key: value}), how=how)
    on_span = decode(request(span({key: value}), resource={"service.name": "s"}), how=how)
    for decoded in (on_resource, on_span):
        (source,) = decoded.batch.sources
        assert (source.run_id, source.rank) == ("s", 3)
        assert decoded.batch.sections == (Section("forward"),)
        assert decoded.batch.step.item() == NO_STEP


@both_encodings
def test_without_a_rank_a_span_is_counted_and_accepted(how: str) -> None:
    """It may be forwarded; the sender did nothing wrong."""
    decoded = decode(request(span(), resource={"service.name": "web"}), how=how)
    assert decoded.outcomes == {"no_rank": 1}
    assert decoded.rejected == {}


@both_encodings
def test_sections_inside_a_phase_are_scored_apart(how: str) -> None:
    """forward during evaluation is not forward; the span of the phase keeps its name."""
    inside = {"straggler.section": "forward", "straggler.phase": "eval"}
    itself = {
        "straggler.section": "eval",
        "straggler.phase": "eval",
        "straggler.section.kind": "eval",
    }
    sections = decode(request(span(inside), span(itself)), how=how).batch.sections
    assert sections == (Section("eval/forward", "eval"), Section("eval", "eval"))


BAD = [
    ("bad_id", {"trace_id": b""}),
    ("bad_id", {"trace_id": bytes(16)}),
    ("bad_id", {"span_id": b"123"}),
    ("bad_time", {"start_time_unix_nano": 0}),
    ("bad_time", {"end_time_unix_nano": 2**63}),
    ("duration_not_positive", {"end_time_unix_nano": 1_000_000_000}),
    ("duration_not_positive", {"end_time_unix_nano": 1}),
    ("no_name", {"name": ""}),
]


@both_encodings
@pytest.mark.parametrize(("reason", "changes"), BAD)
def test_a_malformed_span_is_rejected_by_reason_and_the_rest_is_taken(
    how: str, reason: str, changes: dict[str, Any]
) -> None:
    """One bad span spoils nothing."""
    decoded = decode(request(span(), span(**changes)), how=how)
    assert decoded.outcomes == {"row": 1, reason: 1}
    assert decoded.rejected == {reason: 1}
    assert len(decoded.batch) == 1


@pytest.mark.parametrize("rank", [-1, 8, "x", 1.5, True])
def test_a_rank_that_cannot_be_one_is_rejected(rank: Any) -> None:
    """Negative, outside the world, or no integer."""
    decoded = decode(request(span(), resource={**OURS, "training.rank": rank}))
    assert decoded.rejected == {"bad_rank": 1}


def test_a_section_that_failed_is_counted_and_not_scored() -> None:
    """Its time says nothing about speed."""
    failed = span(status=Status(code=Status.STATUS_CODE_ERROR))
    assert decode(request(failed)).outcomes == {"error_status": 1}


def test_a_span_without_a_session_has_the_same_seq_in_every_delivery() -> None:
    """And two spans have different ones."""
    plain = {"service.name": "s", "rank": 0}
    twice = [decode(request(span(), resource=plain)).batch.seq.item() for _ in range(2)]
    other = decode(request(span(span_id=b"12345678"), resource=plain)).batch.seq.item()
    assert twice[0] == twice[1] != other


def test_protobuf_and_json_give_the_same_rows() -> None:
    """One path behind both."""
    message = request(span({"training.step": 3}), span({"rank": 1}, name="other"))
    a, b = decode(message).batch, decode(message, how="json").batch
    assert a.sources == b.sources
    assert a.sections == b.sections
    for column in ("source", "section", "step", "start_ns", "duration_s", "seq"):
        assert getattr(a, column).tolist() == getattr(b, column).tolist()


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b"[]",
        b"null",
        b'{"resourceSpans": 3}',
        b'{"resourceSpans": [{"scopeSpans": [{"spans": [3]}]}]}',
        b'{"resourceSpans": [{"resource": []}]}',
        b'{"resourceSpans": [{"scopeSpans": [{"spans": [{"startTimeUnixNano": "x"}]}]}]}',
        b"\xff\xfe",
        b"[" * 100_000,
    ],
)
def test_json_that_is_no_request_is_malformed(body: bytes) -> None:
    """One error type, whatever is wrong."""
    with pytest.raises(InputError):
        SpanDecoder().decode_json(body)


def test_unknown_fields_of_json_are_ignored() -> None:
    """A newer sender is welcome."""
    body = json.loads(as_otlp_json(request(span())))
    body["new"] = 1
    body["resourceSpans"][0]["scopeSpans"][0]["spans"][0]["alsoNew"] = {"x": []}
    assert SpanDecoder().decode_json(json.dumps(body).encode()).outcomes == {"row": 1}


@both_encodings
@given(data=st.data())
def test_a_mutated_request_is_decoded_or_malformed_never_anything_else(
    how: str, data: st.DataObject
) -> None:
    """Flipped, cut and repeated bytes."""
    message = request(span({"training.step": 1}), span())
    body = bytearray(
        as_otlp_json(message).encode() if how == "json" else message.SerializeToString()
    )
    for _ in range(data.draw(st.integers(1, 8))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(body)))
    decoder = SpanDecoder(extension=EXTENSION)
    decode_one = decoder.decode_json if how == "json" else decoder.decode
    for damaged in (bytes(body), bytes(body[:cut])):
        try:
            decoded = decode_one(damaged)
        except InputError:
            continue
        assert sum(decoded.outcomes.values()) >= len(decoded.batch)


@pytest.mark.parametrize("cut", [1, 50, 3000, 6000])
def test_a_truncated_request_is_refused_as_a_whole(cut: int) -> None:
    """Nothing of it is taken."""
    [body, *_] = encode_requests(simulate("healthy", Plan(ranks=2, slow_rank=1, steps=50)).batch)
    with pytest.raises(InputError, match="ExportTraceServiceRequest"):
        SpanDecoder(extension=EXTENSION).decode(body[:-cut])


def heartbeat_request(resource: dict[str, Any], **values: float) -> bytes:
    metrics = [
        Metric(
            name=f"straggler.{name.replace('__', '.')}",
            gauge=Gauge(data_points=[NumberDataPoint(as_double=value)]),
        )
        for name, value in values.items()
    ]
    return ExportMetricsServiceRequest(
        resource_metrics=[
            ResourceMetrics(
                resource=Resource(attributes=key_values(resource)),
                scope_metrics=[ScopeMetrics(metrics=metrics)],
            )
        ]
    ).SerializeToString()


def test_a_heartbeat_says_when_it_was_sent_and_how_far_the_rank_is() -> None:
    """Gauges of one request make one heartbeat."""
    body = heartbeat_request(OURS, heartbeat__timestamp=10.5, progress__step=4.0)
    decoded = MetricDecoder().decode(body)
    (beat,) = decoded.heartbeats
    assert (beat.sent_at_s, beat.step, beat.source.rank) == (10.5, 4, 3)
    assert {use: n for use, n in decoded.points.items() if n} == {"used": 2}


def test_metrics_of_others_and_of_no_rank_are_counted() -> None:
    """And NaN is no time."""
    decoder = MetricDecoder()
    assert decoder.decode(heartbeat_request(OURS, else_=1.0)).points["unknown"] == 1
    body = heartbeat_request({"service.name": "x"}, heartbeat__timestamp=1.0)
    assert decoder.decode(body).points["no_rank"] == 1
    body = heartbeat_request(OURS, heartbeat__timestamp=float("nan"))
    assert decoder.decode(body).heartbeats == ()


def test_other_threads_have_their_turn_while_large_json_is_parsed() -> None:
    """The parser itself never lets go of the interpreter; between calls of ours others run."""
    parts: list[dict[str, object]] = [{"scopeSpans": [{"scope": {"name": "x" * 99}}]}] * 12_000
    body = json.dumps({"resourceSpans": parts}).encode()
    seen = 0

    def count(_: object, event: str, __: object) -> None:
        nonlocal seen
        seen += event == "call"

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        value = decode_json._loads(body)
    finally:
        sys.setprofile(before)
    assert value == json.loads(body)
    assert seen > 3 * len(parts)

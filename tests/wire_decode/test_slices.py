"""Trace requests cut at their spans, and put together again."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from otel_straggler.errors import InputError
from otel_straggler.otlp.slices import Slices, SpanOwners, slices_of


def made(shape: list[list[int]], seed: int = 0) -> ExportTraceServiceRequest:
    """Resources of scopes of so many spans, of sizes that differ."""
    draw = random.Random(seed)
    request = ExportTraceServiceRequest()
    for rank, scopes in enumerate(shape):
        resource_spans = request.resource_spans.add(schema_url="https://resource")
        resource_spans.resource.attributes.add(key="training.rank").value.int_value = rank
        for number, count in enumerate(scopes):
            scope_spans = resource_spans.scope_spans.add(schema_url="https://scope")
            scope_spans.scope.name = f"scope {number}"
            for _ in range(count):
                scope_spans.spans.add(
                    trace_id=draw.randbytes(16),
                    span_id=draw.randbytes(8),
                    name="n" * draw.choice([1, 50, 200]),
                    start_time_unix_nano=draw.getrandbits(40),
                )
    return request


def everything(slices: Slices) -> list[np.ndarray]:
    return [np.ones(len(scope), bool) for scope in slices.scopes]


@given(
    shape=st.lists(st.lists(st.integers(1, 4), min_size=1, max_size=3), min_size=1, max_size=3),
    data=st.data(),
)
def test_what_is_kept_is_what_protobuf_would_have_kept(
    shape: list[list[int]], data: st.DataObject
) -> None:
    """The rebuilt request has the kept spans below their own resources and scopes, no other."""
    request = made(shape)
    slices = slices_of(request.SerializeToString())
    masks = [
        np.array(data.draw(st.lists(st.booleans(), min_size=len(s), max_size=len(s))), bool)
        for s in slices.scopes
    ]
    rebuilt = ExportTraceServiceRequest.FromString(slices.rebuild(masks))

    wanted = ExportTraceServiceRequest()
    left = iter(masks)
    for resource_spans in request.resource_spans:
        copy = type(resource_spans)()
        copy.CopyFrom(resource_spans)
        del copy.scope_spans[:]
        for scope_spans in resource_spans.scope_spans:
            mask = next(left)
            if mask.any():
                kept = copy.scope_spans.add()
                kept.CopyFrom(scope_spans)
                del kept.spans[:]
                spans = [s for s, k in zip(scope_spans.spans, mask, strict=True) if k]
                kept.spans.extend(spans)
        if copy.scope_spans:
            wanted.resource_spans.append(copy)
    assert rebuilt == wanted


def test_everything_kept_is_every_byte_kept() -> None:
    """A request of the usual order is rebuilt to the same bytes, unknown fields included."""
    request = made([[3, 2], [1]])
    body = request.SerializeToString()
    unknown = b"\xfa\x3f\x03new"  # field 1023, text
    scope = request.resource_spans[0].scope_spans[0].SerializeToString() + unknown
    resource = request.resource_spans[0].resource.SerializeToString()
    content = b"\x0a" + bytes([len(resource)]) + resource + b"\x12" + varint(len(scope)) + scope
    for sent in (body, b"\x0a" + varint(len(content)) + content):
        slices = slices_of(sent)
        assert slices.rebuild(everything(slices)) == sent


def varint(number: int) -> bytes:
    low, high = number & 0x7F, number >> 7
    return bytes([low | 0x80, high]) if high else bytes([low])


def test_many_spans_are_cut_at_the_same_places_as_few() -> None:
    """Long scopes are cut with arrays: to the very slices that a walk from span to span finds."""
    for seed in range(20):
        body = made([[40, 25], [60]], seed).SerializeToString()
        slices = slices_of(body)
        assert [len(scope) for scope in slices.scopes] == [40, 25, 60]
        for scope in slices.scopes:
            for begin, content, end in zip(scope.begins, scope.contents, scope.ends, strict=True):
                span = body[content:end]
                assert body[begin] == 0x12
                assert Span.FromString(span).SerializeToString() == span
        assert slices.rebuild(everything(slices)) == body


@pytest.mark.parametrize("at", range(0, 60, 7))
@pytest.mark.parametrize("trap", [b"\x12\x14\x0a\x10", b"\x12\x80\x01\x0a\x10"])
def test_bytes_that_look_like_a_span_are_none(at: int, trap: bytes) -> None:
    """A name, or the last span's, may hold what a span begins with."""
    request = made([[60]])
    spans = request.resource_spans[0].scope_spans[0].spans
    spans[at].name = (trap[:-1] + b"\x10" if 0x80 not in trap else b"").decode() + "x"
    spans[at].attributes.add(key="a").value.bytes_value = trap + bytes(40)
    body = request.SerializeToString()
    slices = slices_of(body)
    assert len(slices) == 60
    assert slices.rebuild(everything(slices)) == body
    ids = b"".join(span.trace_id for span in spans)
    assert slices.traces_of(slices.scopes[0]).astype(">u8").tobytes() == ids


def test_a_span_in_another_order_among_many_is_not_lost() -> None:
    """Before, between and after spans of the usual order."""
    request = made([[60]])
    whole = request.SerializeToString()
    begin = slices_of(whole).scopes[0].begins
    odd = b"\x12\x08" + bytes(range(8)) + b"\x0a\x10" + bytes(range(16))
    odd = b"\x12" + bytes([len(odd)]) + odd
    for index in (int(begin[0]), int(begin[30]), int(slices_of(whole).scopes[0].ends[-1])):
        scope = _scope_of(whole, index, odd)
        content = b"\x12" + varint(len(scope)) + scope
        slices = slices_of(b"\x0a" + varint(len(content)) + content)
        assert len(slices) == 61
        text = slices.traces_of(slices.scopes[0]).astype(">u8").tobytes()
        assert bytes(range(16)) in text


def _scope_of(whole: bytes, index: int, more: bytes) -> bytes:
    """The spans of a request with something more among them."""
    scope = slices_of(whole).scopes[0]
    first, last = int(scope.begins[0]), int(scope.ends[-1])
    return whole[first:index] + more + whole[index:last]


def test_trace_ids_are_read_wherever_they_stand() -> None:
    """A span whose sender wrote its fields in another order is found by its trace as well."""
    span = b"\x12\x08" + bytes(range(8)) + b"\x0a\x10" + bytes(range(16))
    scope = b"\x12" + bytes([len(span)]) + span
    content = b"\x12" + bytes([len(scope)]) + scope
    slices = slices_of(b"\x0a" + bytes([len(content)]) + content)
    text = slices.traces_of(slices.scopes[0])
    assert text.astype(">u8").tobytes() == bytes(range(16))


def test_a_group_among_the_fields_is_no_obstacle() -> None:
    """Fields of the retired kind "group" are cut out, the spans stay."""
    request = made([[2]])
    body = request.SerializeToString() + b"\x9b\x06\x08\x01\x9c\x06"  # group 99 with a field 1
    slices = slices_of(body)
    assert ExportTraceServiceRequest.FromString(slices.rebuild(everything(slices))) == request


@pytest.mark.parametrize("body", [b"\xff\xff", b"\x0a\x05\x12", b"\x0a\x04\x12\x02\x12\x7f"])
def test_what_is_no_request_is_an_error(body: bytes) -> None:
    """Truncated or foreign bytes are refused."""
    with pytest.raises(InputError, match="not an ExportTraceServiceRequest"):
        slices_of(body)


def test_spans_that_say_themselves_who_sent_them_are_told_apart() -> None:
    """A rank on the span wins over the one of the resource; without one the resource counts."""
    request = made([[4], [2]])
    spans = request.resource_spans[0].scope_spans[0].spans
    spans[1].attributes.add(key="training.rank").value.int_value = 1
    slices = slices_of(request.SerializeToString())
    owners = SpanOwners()
    masks = [owners.of(slices, scope, lambda s: s.rank == 1).tolist() for scope in slices.scopes]
    assert masks == [[False, True, False, False], [True, True]]

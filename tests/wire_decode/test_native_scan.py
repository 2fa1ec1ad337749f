"""What C++ reads means exactly what protobuf's parser reads, and what that refuses is refused."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult

from otel_straggler import semconv
from otel_straggler.errors import InputError
from otel_straggler.model.observation import merge_batches
from otel_straggler.native import NATIVE
from otel_straggler.otlp.decode_spans import SpanDecoder, can_scan
from otel_straggler.otlp.identity import Aliases
from otel_straggler.otlp.span_rules import DecodedSpans, Keys, SpanNames
from otel_straggler.simulate.scenarios import Plan, simulate
from otel_straggler.simulate.writers import encode_requests

from . import protobuf_by_hand as by_hand
from .agreement import has_taken, scanned
from .made_spans import one_by_one, request, same
from .protobuf_by_hand import Node

pytestmark = pytest.mark.skipif(
    NATIVE is None, reason="without the extension module; it would show that C++ reads the same"
)


def agree(decoder: SpanDecoder, body: bytes) -> bool:
    """Whether C++ took the body. It and the decoder as a whole must say what protobuf says."""
    return has_taken(decoder, body, one_by_one(body), same)


# --- valid requests ------------------------------------------------------------------------------


@given(st.integers(0, 2**32), st.integers(0, 60))
def test_a_scan_means_what_the_parser_says(seed: int, spans: int) -> None:
    """Rows, order, tables, counts, progress; with cases learnt from other requests."""
    rng = random.Random(seed)
    decoder = SpanDecoder()
    for _ in range(3):
        assert agree(decoder, request(rng, spans).SerializeToString())


@given(st.integers(0, 2**32), st.integers(0, 12))
def test_an_unusual_encoding_means_the_same(seed: int, spans: int) -> None:
    """Unknown fields, groups, another order, padded varints, a message in two parts, empty ones,
    single fields that come twice."""
    rng = random.Random(seed)
    decoder = SpanDecoder()
    for _ in range(3):
        message = request(rng, spans)
        node = by_hand.tree_of(message)
        by_hand.disturb(node, rng)
        body = node.encode(rng)
        assert one_by_one(body) is not None
        assert agree(decoder, body)


def test_a_request_of_our_own_encoder_comes_back_as_it_was() -> None:
    """scan(encode(rows)) is rows."""
    batch = simulate("one_slow_rank", Plan(ranks=4, slow_rank=1, steps=200)).batch
    decoder = SpanDecoder()
    result = []
    for body in encode_requests(batch):
        decoded = scanned(decoder, body)
        assert isinstance(decoded, DecodedSpans)
        result.append(decoded.batch)
    back = merge_batches(result)
    assert len(back) == len(batch)
    assert _rows(back) == _rows(batch)


def _rows(batch: Any) -> list[tuple[Any, ...]]:
    return sorted(
        zip(
            [batch.sources[code].rank for code in batch.source],
            [batch.sections[code].name for code in batch.section],
            batch.step.tolist(),
            batch.start_ns.tolist(),
            np.round(batch.duration_s * 1e9).astype(int).tolist(),
            strict=True,
        )
    )


class _Kept(SpanExporter):
    """Keeps requests as the SDK's own exporter encodes them."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []

    def export(self, spans: Any) -> SpanExportResult:
        from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans

        self.bodies.append(encode_spans(spans).SerializeToString())
        return SpanExportResult.SUCCESS


def test_what_the_sdk_sends_is_read_by_cpp() -> None:
    """Events, links, status, attributes of all types, nested spans; of two scopes."""
    kept = _Kept()
    provider = TracerProvider(resource=Resource({"service.name": "job", "rank": "2"}))
    provider.add_span_processor(SimpleSpanProcessor(kept))
    for scope in ("mine", semconv.SCOPE_NAME):
        tracer = provider.get_tracer(scope, "1.0")
        with tracer.start_as_current_span("train", attributes={"list": ["a", "b"], "x": 0.5}):
            with tracer.start_as_current_span("fwd", attributes={"step": 3, "ok": True}) as span:
                span.add_event("möglich", {"loss": 1.5})
            with pytest.raises(ValueError, match="no"), tracer.start_as_current_span("bwd"):
                raise ValueError("no")
    provider.shutdown()
    decoder = SpanDecoder()
    assert all(agree(decoder, body) for body in kept.bodies)
    assert len(kept.bodies) == 6


@pytest.mark.parametrize("resources", [1, 40])
@pytest.mark.parametrize("scopes", [1, 7])
def test_many_resources_and_scopes_in_one_request(resources: int, scopes: int) -> None:
    """As a gateway in between sends them; a rank without spans is no error."""
    message = ExportTraceServiceRequest()
    rng = random.Random(resources * 100 + scopes)
    for _ in range(resources):
        message.MergeFrom(request(rng, 3))
        for _ in range(scopes - 1):
            scope_spans = message.resource_spans[-1].scope_spans.add()
            scope_spans.scope.name = rng.choice(["a", "b", semconv.SCOPE_NAME])
    assert agree(SpanDecoder(), message.SerializeToString())


def test_an_empty_request_has_no_rows() -> None:
    """And is no error."""
    assert agree(SpanDecoder(), b"")
    assert agree(SpanDecoder(), ExportTraceServiceRequest(resource_spans=[{}]).SerializeToString())


# --- requests that are none ----------------------------------------------------------------------


@given(st.integers(0, 2**32), st.integers(1, 12))
def test_a_mangled_request_is_judged_as_the_parser_judges(seed: int, changes: int) -> None:
    """Rows or refusal, the same."""
    rng = random.Random(seed)
    decoder = SpanDecoder()
    body = bytearray(request(rng, 12).SerializeToString())
    agree(decoder, bytes(body))
    for _ in range(changes):
        by_hand.mangle(body, rng)
        agree(decoder, bytes(body))


@given(st.integers(0, 2**32))
def test_every_truncation_is_judged_as_the_parser_judges(seed: int) -> None:
    """Cut anywhere."""
    rng = random.Random(seed)
    decoder = SpanDecoder()
    body = request(rng, 2).SerializeToString()
    for cut in range(0, len(body), 7):
        agree(decoder, body[:cut])


@pytest.mark.parametrize(
    "wrong",
    [b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xe2\x82", b"a" * 9 + b"\x80"],
    ids=lambda text: text.hex(),
)
@pytest.mark.parametrize("where", ["name", "state", "key", "value", "event", "link", "status",
                                   "deep", "scope", "resource", "schema"])  # fmt: skip
def test_text_that_is_no_utf8_is_refused_wherever_it_stands(wrong: bytes, where: str) -> None:
    """As protobuf demands."""
    text, pair = Node(1, wrong), Node(1, b"key")
    indexes: dict[str, list[Node]] = {
        "name": [Node(5, wrong)],
        "state": [Node(3, wrong)],
        "key": [Node(9, [text])],
        "value": [Node(9, [pair, Node(2, [text])])],
        "event": [Node(11, [Node(2, wrong)])],
        "link": [Node(13, [Node(3, wrong)])],
        "status": [Node(15, [Node(2, wrong)])],
        "deep": [Node(9, [pair, Node(2, [Node(5, [Node(1, [Node(6, [Node(1, [text])])])])])])],
    }
    scope = [Node(1, [text])] if where == "scope" else []
    schema = [Node(3, wrong)] if where == "schema" else []
    resource = [Node(1, [Node(1, [text])])] if where == "resource" else []
    scope_spans = Node(2, [*scope, Node(2, indexes.get(where, [])), *schema])
    body = Node(0, [Node(1, [*resource, scope_spans])]).content(random.Random(0))
    assert one_by_one(body) is None
    with pytest.raises(InputError, match="ExportTraceServiceRequest"):
        SpanDecoder().decode(body)


@pytest.mark.parametrize("number", [1, 2])
def test_a_resource_or_scope_in_two_parts_is_judged_part_by_part(number: int) -> None:
    """Each must be a message by itself, whatever they are together."""
    name, version = Node(1, [Node(1, b"rank"), Node(2, [Node(1, b"3")])]), Node(2, b"1.0")
    content = Node(0, [name] if number == 1 else [Node(1, b"otel_straggler"), version]).content(
        random.Random(0)
    )
    for cut in range(len(content) + 1):
        parts = [Node(1, content[:cut]), Node(1, content[cut:])]
        inner = parts if number == 1 else [Node(2, parts)]
        agree(SpanDecoder(), Node(0, [Node(1, inner)]).content(random.Random(0)))


def test_values_in_values_without_end_are_left_to_the_parser() -> None:
    """C++ follows 32 levels, the parser says what is too much."""
    decoder = SpanDecoder()
    taken = []
    for levels in (10, 31, 40, 60):
        value = Node(2, [Node(3, 7)])
        for _ in range(levels):
            value = Node(2, [Node(5, [Node(1, value.inner)])])
        span = Node(2, [Node(9, [Node(1, b"key"), value])])
        body = Node(0, [Node(1, [Node(2, [span])])]).content(random.Random(0))
        taken.append(agree(decoder, body))
    assert taken == [True, True, False, False]


def test_a_kind_of_value_that_is_not_known_is_left_to_the_parser() -> None:
    """It may come from a newer schema, in which it replaces the value before it."""
    span = Node(2, [Node(9, [Node(1, b"key"), Node(2, [Node(3, 7), Node(8, 1)])])])
    body = Node(0, [Node(1, [Node(2, [span])])]).content(random.Random(0))
    assert not agree(SpanDecoder(), body)


# --- state ---------------------------------------------------------------------------------------


def test_keys_of_the_user_are_read_too() -> None:
    """And one that means two things is left to the other way."""
    aliases = Aliases().extended(step=("my.step",), rank=("my.rank",))
    body = _one_span({"my.step": 12, "my.rank": 3})
    result = scanned(SpanDecoder(aliases), body)
    assert isinstance(result, DecodedSpans)
    assert (result.batch.sources[0].rank, result.batch.step.tolist()) == (3, [12])
    twice = Aliases().extended(step=("both",), rank=("both",))
    assert not can_scan(Keys.of(twice, SpanNames()))
    decoded = SpanDecoder(twice).decode(_one_span({"both": 3}))
    assert (decoded.batch.sources[0].rank, decoded.batch.step.tolist()) == (3, [3])


def _one_span(attributes: dict[str, int], name: str = "forward") -> bytes:
    message = ExportTraceServiceRequest()
    resource_spans = message.resource_spans.add()
    span = resource_spans.scope_spans.add().spans.add(name=name)
    span.trace_id, span.span_id = b"t" * 16, b"s" * 8
    span.start_time_unix_nano, span.end_time_unix_nano = 1, 2
    for key, value in attributes.items():
        span.attributes.add(key=key).value.int_value = value
    return message.SerializeToString()


def test_more_names_than_there_is_room_for_are_all_read() -> None:
    """Memory is bounded: the scan begins anew and goes on."""
    decoder = SpanDecoder()
    seen = 0
    for part in range(5):
        message = ExportTraceServiceRequest()
        for number in range(5_000):
            name = f"name {part} {number}"
            message.MergeFrom(ExportTraceServiceRequest.FromString(_one_span({"rank": 1}, name)))
        decoded = scanned(decoder, message.SerializeToString())
        assert isinstance(decoded, DecodedSpans)
        seen += len(decoded.batch.sections)
        assert len(decoded.batch) == 5_000
    assert seen == 25_000


def test_one_request_with_too_many_names_is_left_to_the_parser() -> None:
    """Rather than held in memory."""
    span = ExportTraceServiceRequest.FromString(_one_span({"rank": 1}))
    message = ExportTraceServiceRequest()
    spans = message.resource_spans.add().scope_spans.add().spans
    for number in range(20_000):
        spans.add().CopyFrom(span.resource_spans[0].scope_spans[0].spans[0])
        spans[-1].name = str(number)
    body = message.SerializeToString()
    decoder = SpanDecoder()
    assert scanned(decoder, body) == "unfamiliar"
    assert decoder.decode(body).outcomes == {"row": 20_000}


def test_threads_share_what_was_learnt() -> None:
    """The same rows, whoever asked first."""
    rng = random.Random(5)
    bodies = [request(rng, 30).SerializeToString() for _ in range(40)]
    expected = [one_by_one(body) for body in bodies]
    decoder = SpanDecoder()
    begin = threading.Barrier(4)

    def decode_all() -> list[DecodedSpans]:
        begin.wait()
        return [decoder.decode(body) for body in bodies]

    with ThreadPoolExecutor(4) as pool:
        for each in [pool.submit(decode_all) for _ in range(4)]:
            for result, wanted in zip(each.result(), expected, strict=True):
                assert wanted is not None
                same(result, wanted)


@pytest.mark.parametrize(
    "misuse",
    [
        lambda module: module.Scanner([("a", 9, 0)], (0, 1, 2, 3)),
        lambda module: module.Scanner([("a", 0, 64)], (0, 1, 2, 3)),
        lambda module: module.Scanner([], (0, 1, 2, 16)),
        lambda module: module.Scanner([("a", 0, 0)] * 5_000, (0, 1, 2, 3)),
        lambda module: module.Scanner((), (0, 1, 2, 3)),
    ],
)
def test_a_scanner_cannot_be_made_wrong(misuse: Callable[[Any], Any]) -> None:
    """Slots and outcomes are places in memory."""
    with pytest.raises((ValueError, SystemError)):
        misuse(NATIVE)


def test_a_basis_that_does_not_exist_is_refused() -> None:
    """It decides which numbers are read."""
    assert NATIVE is not None
    scanner = NATIVE.Scanner([], (0, 1, 2, 3))
    with pytest.raises(ValueError, match="basis 4"):
        scanner.learn_shape(0, 0, 0, (-1, 0), (0, 0, 0), (-1, 0.0), (4, -1, -1, -1))


def test_answers_that_nobody_asked_for_are_ignored() -> None:
    """Numbers beyond the tables as well as codes beyond theirs."""
    assert NATIVE is not None
    scanner = NATIVE.Scanner([], (0, 1, 2, 3))
    scanner.learn_scope(7, True)
    scanner.learn_sender(2**32 - 1, 5, 0)
    scanner.learn_shape(0, 2**31 - 1, 0, (99, 0), (2, 99, 0), (99, 0.0), (2, 99, 64, -3))
    assert scanner.scan(b"")[0] == bytearray()
    with pytest.raises(TypeError):
        scanner.scan(bytearray(b""))

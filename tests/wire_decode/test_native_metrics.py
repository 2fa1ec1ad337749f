"""Metrics that C++ reads mean exactly what protobuf's parser reads, and what that refuses is
refused."""

from __future__ import annotations

import dataclasses
import inspect
import random
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)

from otel_straggler import semconv
from otel_straggler.errors import InputError
from otel_straggler.model.kernels import KernelTimes
from otel_straggler.model.names import clean_name
from otel_straggler.model.rank import Source
from otel_straggler.model.rank_metrics import Heartbeat
from otel_straggler.native import NATIVE
from otel_straggler.otlp.decode_metrics import MetricDecoder
from otel_straggler.otlp.encode_metrics import (
    SectionHistogram,
    encode_heartbeat,
    encode_histograms,
    encode_point_attributes,
    heartbeat_texts,
)
from otel_straggler.otlp.encode_spans import encode_resource
from otel_straggler.otlp.identity import Aliases
from otel_straggler.otlp.metric_rules import DecodedMetrics

from . import protobuf_by_hand as by_hand
from .agreement import has_taken, scanned
from .made_metrics import HAS_METADATA, any_request
from .protobuf_by_hand import Node

pytestmark = pytest.mark.skipif(
    NATIVE is None, reason="no extension module; it would show that C++ reads the same metrics"
)


def same(a: DecodedMetrics, b: DecodedMetrics) -> None:
    """Equal in every field, to the type of every number."""
    assert a.points == b.points
    assert repr(a.heartbeats) == repr(b.heartbeats)
    same_kernels(a.kernel_times, b.kernel_times)
    assert len(a.section_times) == len(b.section_times)
    for left, right in zip(a.section_times, b.section_times, strict=True):
        for field in dataclasses.fields(left):
            if field.name != "buckets":
                assert repr(getattr(left, field.name)) == repr(getattr(right, field.name))
        for field in dataclasses.fields(left.buckets):
            one, other = getattr(left.buckets, field.name), getattr(right.buckets, field.name)
            if isinstance(one, np.ndarray):
                np.testing.assert_array_equal(one, other)
                assert one.dtype == other.dtype
            else:
                assert repr(one) == repr(other), field.name


def same_kernels(a: KernelTimes | None, b: KernelTimes | None) -> None:
    """The same points; the tables may stand in another order."""
    if a is None or b is None:
        assert a is b
        return
    assert [a.sources[code] for code in a.source] == [b.sources[code] for code in b.source]
    assert [a.cells[code] for code in a.cell] == [b.cells[code] for code in b.cell]
    for field in dataclasses.fields(a):
        if field.name not in ("sources", "cells", "source", "cell"):
            one, other = getattr(a, field.name), getattr(b, field.name)
            np.testing.assert_array_equal(one, other)
            assert one.dtype == other.dtype


def parsed(body: bytes, aliases: Aliases | None = None) -> DecodedMetrics | None:
    """Decoded with protobuf's classes alone; None if it is no request."""
    try:
        return MetricDecoder(aliases, extension=None).decode(body)
    except InputError:
        return None


def agree(decoder: MetricDecoder, body: bytes) -> bool:
    """Whether C++ took the body. It and the decoder as a whole must say what protobuf says."""
    return has_taken(decoder, body, parsed(body), same)


# --- valid requests ------------------------------------------------------------------------------


@given(st.integers(0, 2**32))
def test_a_scan_means_what_the_parser_says(seed: int) -> None:
    """Heartbeats, section times, counts; with cases learnt from other requests."""
    rng = random.Random(seed)
    decoder = MetricDecoder()
    for _ in range(3):
        assert agree(decoder, any_request(rng).SerializeToString())


@given(st.integers(0, 2**32))
def test_packed_unpacked_and_mixed_repeats_mean_the_same(seed: int) -> None:
    """Also with padded varints; C++ takes them all."""
    rng = random.Random(seed)
    decoder = MetricDecoder()
    for _ in range(3):
        node = by_hand.tree_of(any_request(rng))
        by_hand.pack_some(node, rng)
        assert agree(decoder, node.encode(rng))


@given(st.integers(0, 2**32))
def test_an_unusual_encoding_means_the_same(seed: int) -> None:
    """Unknown fields, groups, another order, padded varints, a message in two parts, single fields
    that come twice."""
    rng = random.Random(seed)
    decoder = MetricDecoder()
    for _ in range(3):
        node = by_hand.tree_of(any_request(rng))
        by_hand.disturb(node, rng)
        body = node.encode(rng)
        assert parsed(body) is not None
        agree(decoder, body)


def test_most_unusual_encodings_are_taken_by_cpp() -> None:
    """Only what comes in two parts is left to the parser."""
    rng = random.Random(1)
    decoder = MetricDecoder()
    taken = 0
    for _ in range(200):
        node = by_hand.tree_of(any_request(rng))
        by_hand.disturb(node, rng)
        taken += agree(decoder, node.encode(rng))
    assert taken > 100


TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12).map(
    clean_name
)
NAMES = TEXT.filter(bool)
COUNTS = st.dictionaries(NAMES, st.integers(0, 2**40), max_size=3)
BEATS = st.builds(
    Heartbeat,
    source=st.builds(Source, run_id=NAMES, rank=st.integers(0, 2**20)),
    sent_at_s=st.integers(0, 2**33).map(float),
    progress_at_s=st.integers(0, 2**33).map(float),
    step=st.none() | st.integers(0, 2**62),
    open_section=NAMES,
    open_time_s=st.none() | st.floats(0, 1e9),
    phase=TEXT,
    finished_at_s=st.none() | st.floats(0, 1e9),
    outcome=st.sampled_from(semconv.OUTCOMES),
    dropped=COUNTS,
    folded=COUNTS,
)


@given(BEATS, st.dictionaries(NAMES, TEXT, max_size=4))
def test_heartbeats_of_both_our_encoders_are_read_by_cpp(
    beat: Heartbeat, info: dict[str, str]
) -> None:
    """And say what was to be said."""
    from otel_straggler.client.native_export import REASONS

    assert NATIVE is not None
    resource = {"training.rank": beat.source.rank, "training.run.id": beat.source.run_id}
    in_python = encode_heartbeat(beat, resource=resource, info=info, started_at_s=1.5)
    in_cpp = NATIVE.heartbeat(
        (*heartbeat_texts(), *(reason.encode() for reason in REASONS)),
        encode_resource(resource),
        encode_point_attributes(info),
        int((beat.sent_at_s or 0.0) * 1e9),
        1_500_000_000,
        int((beat.progress_at_s or 0.0) * 1e9),
        -(2**63) if beat.step is None else beat.step,
        None if beat.open_time_s is None else beat.open_section,
        int((beat.open_time_s or 0.0) * 1e9),
        beat.phase,
        "" if beat.finished_at_s is None else beat.outcome,
        {name.encode(): count for name, count in beat.dropped.items()},
        {name.encode(): count for name, count in beat.folded.items()},
    )
    decoder = MetricDecoder()
    assert agree(decoder, in_python)
    assert agree(decoder, in_cpp)
    (result,) = decoder.decode(in_python).heartbeats
    assert (result.step, result.open_time_s, result.dropped, result.folded) == (
        beat.step, beat.open_time_s, beat.dropped, beat.folded,
    )  # fmt: skip


def test_section_histograms_of_our_encoder_are_read_by_cpp() -> None:
    """Several sections in one request, again and again."""
    decoder = MetricDecoder()
    for minute in range(1, 4):
        histograms = [
            SectionHistogram(
                section=name, kind="compute", bounds_s=[0.1, 0.2], counts=[1, 2, minute], sum_s=1.2
            )
            for name in ("forward", "backward", "größe")
        ]
        body = encode_histograms(
            histograms, resource={"rank": 3}, started_at_s=1.0, now_s=60.0 * minute
        )
        assert agree(decoder, body)
        assert len(decoder.decode(body).section_times) == 3


def test_what_the_sdk_sends_is_read_by_cpp() -> None:
    """Counters, gauges, explicit and exponential histograms, of ours and of others."""
    from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics
    from opentelemetry.sdk.metrics import Histogram, Meter, MeterProvider
    from opentelemetry.sdk.metrics.export import AggregationTemporality, InMemoryMetricReader
    from opentelemetry.sdk.metrics.view import ExponentialBucketHistogramAggregation, View
    from opentelemetry.sdk.resources import Resource

    reported = inspect.signature(MeterProvider.get_meter).parameters
    if "attributes" not in reported or not hasattr(Meter, "create_gauge"):
        pytest.skip("this SDK has no gauges, or none of scopes; a newer one's are read by C++")
    reader = InMemoryMetricReader(
        preferred_temporality={Histogram: AggregationTemporality.DELTA},
        preferred_aggregation={Histogram: ExponentialBucketHistogramAggregation()},
    )
    explicit = InMemoryMetricReader()
    provider = MeterProvider(
        resource=Resource({"service.name": "job", "rank": "2"}),
        metric_readers=[reader, explicit],
        views=[View(instrument_name="renamed", name="others.name")],
    )
    meter = provider.get_meter(semconv.SCOPE_NAME, "1.0", attributes={"in": ["a", "scope"]})
    times = meter.create_histogram(semconv.SECTION_DURATION.name, unit="s", description="times")
    meter.create_up_down_counter("renamed").add(-3, {"list": ("a", "b"), "x": 0.5, "on": True})
    meter.create_gauge(semconv.HEARTBEAT.name).set(1.7e9)
    meter.create_gauge(semconv.PROGRESS_STEP.name).set(7, {semconv.PHASE: "eval"})
    meter.create_counter(semconv.RECORDS_DROPPED.name).add(4, {semconv.REASON: "ring_full"})
    for section, seconds in (("forward", 0.25), ("forward", 0.5), ("backward", 0.0)):
        times.record(seconds, {semconv.SECTION: section})
    decoder = MetricDecoder()
    for one, scale in ((reader, True), (explicit, False)):
        data = one.get_metrics_data()
        assert data is not None
        body = encode_metrics(data).SerializeToString()
        assert agree(decoder, body)
        decoded = decoder.decode(body)
        assert [t.section.name for t in decoded.section_times] == ["forward", "backward"]
        assert all((t.buckets.scale is not None) == scale for t in decoded.section_times)
        (beat,) = decoded.heartbeats
        assert (beat.source.rank, beat.step, beat.phase) == (2, 7, "eval")
        assert beat.dropped == {"ring_full": 4}
        assert decoded.points["unknown"] == 1
    provider.shutdown()


def test_an_empty_request_has_no_points() -> None:
    """And is no error."""
    assert agree(MetricDecoder(), b"")
    empty = ExportMetricsServiceRequest(resource_metrics=[{}]).SerializeToString()
    assert agree(MetricDecoder(), empty)


@pytest.mark.parametrize("names", [99, 100, 101, 300])
@pytest.mark.parametrize("metric", [semconv.RECORDS_DROPPED, semconv.RECORDS_FOLDED])
def test_counts_beyond_the_most_are_left_out(metric: semconv.Metric, names: int) -> None:
    """The first are kept; once there is no room, nothing changes."""
    message = ExportMetricsServiceRequest()
    of_resource = message.resource_metrics.add()
    of_resource.resource.attributes.add(key="rank").value.int_value = 1
    points = of_resource.scope_metrics.add().metrics.add(name=metric.name).sum.data_points
    for number in [*range(names), 0, 1]:
        point = points.add(as_int=len(points))
        for key in (semconv.REASON, semconv.SECTION):
            point.attributes.add(key=key).value.string_value = f"name {number}"
    assert agree(MetricDecoder(), message.SerializeToString())


@pytest.mark.parametrize("buckets", [4_095, 4_096, 4_097, 9_000])
def test_more_buckets_than_are_read_are_malformed(buckets: int) -> None:
    """In both kinds of histograms, packed."""
    message = ExportMetricsServiceRequest()
    of_resource = message.resource_metrics.add()
    of_resource.resource.attributes.add(key="rank").value.int_value = 1
    metrics = of_resource.scope_metrics.add().metrics
    explicit = metrics.add(name=semconv.SECTION_DURATION.name).histogram
    exponential = metrics.add(name=semconv.SECTION_DURATION.name).exponential_histogram
    one = explicit.data_points.add(time_unix_nano=1, count=buckets)
    other = exponential.data_points.add(time_unix_nano=1, count=buckets, scale=20)
    one.bucket_counts.extend([1] * buckets)
    one.explicit_bounds.extend(range(buckets - 1))
    other.positive.bucket_counts.extend([1] * buckets)
    negative = exponential.data_points.add(time_unix_nano=1, count=0)
    negative.negative.bucket_counts.extend([0] * buckets)
    for data in (explicit, exponential):
        data.aggregation_temporality = 2
        for point in data.data_points:
            point.attributes.add(key=semconv.SECTION).value.string_value = "forward"
    agree(MetricDecoder(), message.SerializeToString())


# --- requests that are none ----------------------------------------------------------------------


@given(st.integers(0, 2**32), st.integers(1, 12))
def test_a_mangled_request_is_judged_as_the_parser_judges(seed: int, changes: int) -> None:
    """Points or refusal, the same."""
    rng = random.Random(seed)
    decoder = MetricDecoder()
    body = bytearray(any_request(rng).SerializeToString())
    agree(decoder, bytes(body))
    for _ in range(changes):
        by_hand.mangle(body, rng)
        agree(decoder, bytes(body))


@given(st.integers(0, 2**32))
def test_every_truncation_is_judged_as_the_parser_judges(seed: int) -> None:
    """Cut anywhere."""
    rng = random.Random(seed)
    decoder = MetricDecoder()
    body = any_request(rng).SerializeToString()
    for cut in range(0, len(body), 7):
        agree(decoder, body[:cut])


@pytest.mark.parametrize("wrong", [b"\xff", b"\xc0\x80", b"\xed\xa0\x80"], ids=lambda t: t.hex())
@pytest.mark.parametrize("where", ["name", "unit", "description", "metadata", "key", "value",
                                   "exemplar", "summary", "scope", "version", "of scope",
                                   "resource", "schema", "outer schema"])  # fmt: skip
def test_text_that_is_no_utf8_is_refused_wherever_it_stands(wrong: bytes, where: str) -> None:
    """As protobuf demands, of metrics of others too."""
    if where == "metadata" and not HAS_METADATA:
        pytest.skip("this parser knows no metadata; a newer one refuses what is no text in them")
    text = Node(1, wrong)
    point = {
        "key": [Node(7, [text])],
        "value": [Node(7, [Node(2, [text])])],
        "exemplar": [Node(5, [Node(7, [text])])],
    }
    metric: dict[str, list[Node]] = {
        "name": [text],
        "description": [Node(2, wrong)],
        "unit": [Node(3, wrong)],
        "metadata": [Node(12, [text])],
        "summary": [Node(11, [Node(1, [Node(7, [text])])])],
    }
    scope = {"scope": [text], "version": [Node(2, wrong)], "of scope": [Node(3, [text])]}
    data = Node(5, [Node(1, point.get(where, []))])
    of_scope = Node(
        2,
        [
            Node(1, scope.get(where, [])),
            Node(2, metric.get(where, [data])),
            *([Node(3, wrong)] if where == "schema" else []),
        ],
    )
    resource = [Node(1, [Node(1, [text])])] if where == "resource" else []
    schema = [Node(3, wrong)] if where == "outer schema" else []
    body = Node(0, [Node(1, [*resource, of_scope, *schema])]).content(random.Random(0))
    assert parsed(body) is None
    with pytest.raises(InputError, match="ExportMetricsServiceRequest"):
        MetricDecoder().decode(body)


@pytest.mark.parametrize(
    ("number", "packed"),
    [
        (9, Node(6, b"1234567")),
        (9, Node(7, b"123456789")),
        (11, Node(6, b"\x08")),
        (10, Node(8, [Node(2, b"\x80")])),
        (10, Node(9, [Node(2, b"\xff" * 9 + b"\x02")])),
        (10, Node(9, [Node(2, b"\xff" * 11)])),
    ],
)
def test_numbers_that_are_none_are_left_to_the_parser(number: int, packed: Node) -> None:
    """Too short, too long; packed or in a quantile. It takes a tenth byte of 2, and drops it."""
    metric = Node(2, [Node(number, [Node(1, [packed])])])
    body = Node(0, [Node(1, [Node(2, [metric])])]).content(random.Random(0))
    agree(MetricDecoder(), body)
    assert scanned(MetricDecoder(), body) == "unfamiliar"


def test_exponential_buckets_in_two_parts_are_put_together() -> None:
    """The last offset counts, and all counts."""
    section = Node(1, [Node(1, b"straggler.section"), Node(2, [Node(1, b"forward")])])
    buckets = [Node(8, [Node(1, 2), Node(2, b"\x01\x02")]), Node(8, [Node(1, 6), Node(2, 3)])]
    times = [Node(3, (9).to_bytes(8, "little"), fixed=True)]
    count = [Node(4, (6).to_bytes(8, "little"), fixed=True)]
    point = Node(1, [section, *buckets, *times, *count])
    metric = [Node(1, b"straggler.section.duration"), Node(10, [point, Node(2, 1)])]
    resource = Node(1, [Node(1, [Node(1, b"rank"), Node(2, [Node(3, 1)])])])
    body = Node(0, [Node(1, [resource, Node(2, [Node(2, metric)])])]).content(random.Random(0))
    decoder = MetricDecoder()
    assert agree(decoder, body)
    (result,) = decoder.decode(body).section_times
    assert (result.buckets.first, result.buckets.counts.tolist()) == (3, [1, 2, 3])


# --- state ---------------------------------------------------------------------------------------


def beat_of(rank: int, info: str = "actor", section: str = "forward") -> bytes:
    return encode_heartbeat(
        Heartbeat(
            source=Source(run_id="r", rank=rank),
            sent_at_s=1.0,
            open_section=section,
            open_time_s=0.5,
        ),
        resource={"training.rank": rank},
        info={"training.role": info},
        started_at_s=0.0,
    )


def test_keys_of_the_user_are_read_too() -> None:
    """And one that means two things means both."""
    aliases = Aliases().extended(rank=("my.rank", "both"), section=("both",))
    message = ExportMetricsServiceRequest.FromString(
        encode_histograms(
            [SectionHistogram(section="s", kind="", bounds_s=[], counts=[2], sum_s=1.0)],
            resource={},
            started_at_s=1.0,
            now_s=2.0,
        )
    )
    point = message.resource_metrics[0].scope_metrics[0].metrics[0].histogram.data_points[0]
    point.attributes.add(key="both").value.int_value = 3
    body = message.SerializeToString()
    result = scanned(MetricDecoder(aliases), body)
    expected = parsed(body, aliases)
    assert isinstance(result, DecodedMetrics)
    assert expected is not None
    same(result, expected)
    (times,) = result.section_times
    assert (times.source.rank, times.section.name) == (3, "3")


def test_more_cases_than_there_is_room_for_are_all_read() -> None:
    """Memory is bounded: the scan begins anew and goes on."""
    decoder = MetricDecoder()
    cases = decoder._cases
    for number in range(20_000):
        decoded = scanned(decoder, beat_of(1, section=f"section {number}"))
        assert isinstance(decoded, DecodedMetrics)
        assert decoded.heartbeats[0].open_section == f"section {number}"
    assert decoder._cases is not None
    assert decoder._cases is not cases


def test_a_request_of_more_names_than_there_is_room_for_is_left_to_the_parser() -> None:
    """Rather than held in memory."""
    message = ExportMetricsServiceRequest()
    for number in range(20_000):
        message.MergeFrom(ExportMetricsServiceRequest.FromString(beat_of(1, section=str(number))))
    body = message.SerializeToString()
    decoder = MetricDecoder()
    assert scanned(decoder, body) == "unfamiliar"
    assert len(decoder.decode(body).heartbeats) == 20_000


def test_a_rank_that_describes_itself_anew_is_seen_anew() -> None:
    """What was learnt goes by all that is said."""
    decoder = MetricDecoder()
    roles = [decoder.decode(beat_of(1, role)).heartbeats[0].source.role for role in ("a", "b", "a")]
    assert roles == ["a", "b", "a"]


def test_threads_share_what_was_learnt() -> None:
    """The same heartbeats, whoever asked first."""
    rng = random.Random(5)
    bodies = [any_request(rng).SerializeToString() for _ in range(60)]
    bodies += [b"".join(beat_of(rank) for rank in range(40))]
    expected = [parsed(body) for body in bodies]
    decoder = MetricDecoder()
    begin = threading.Barrier(4)

    def decode_all() -> list[DecodedMetrics]:
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
        lambda module: module.MetricScanner(
            [("a", True, True, False, 5)], [], [], (0, 1, 2, 3, 4, 5)
        ),
        lambda module: module.MetricScanner([], [("a", 0, 5, 1.0, 1)], [], (0, 1, 2, 3, 4, 5)),
        lambda module: module.MetricScanner([], [("a", 1, 2, 1.0, 1)], [], (0, 1, 2, 3, 4, 5)),
        lambda module: module.MetricScanner([], [("a", 5, 0, 1.0, 1)], [], (0, 1, 2, 3, 4, 5)),
        lambda module: module.MetricScanner([], [], [], (0, 1, 2, 3, 4, 9)),
        lambda module: module.MetricScanner(
            [("a", True, True, False, 0)] * 5_000, [], [], (0, 1, 2, 3, 4, 5)
        ),
        lambda module: module.MetricScanner((), [], [], (0, 1, 2, 3, 4, 5)),
        lambda module: module.MetricScanner([], [], [], (0, 1, 2, 3, 4, 5)).learn(6, 0, 0, 0),
    ],
)
def test_a_scanner_cannot_be_made_wrong(misuse: Callable[[Any], Any]) -> None:
    """Slots and uses are places in memory."""
    with pytest.raises((ValueError, SystemError)):
        misuse(NATIVE)


def test_answers_that_nobody_asked_for_are_ignored() -> None:
    """Numbers beyond the tables as well as codes beyond theirs."""
    assert NATIVE is not None
    scanner = NATIVE.MetricScanner([], [], [], (0, 1, 2, 3, 4, 5))
    for asked in range(6):
        scanner.learn(asked, 2**32 - 1, 5, 0)
        scanner.learn(asked, 0, 2**31 - 1, 0)
        scanner.learn(asked, 0, 0, 255)
    assert scanner.scan(b"") == ([], [], None, (0,) * 9)
    with pytest.raises(TypeError):
        scanner.scan(bytearray(b""))

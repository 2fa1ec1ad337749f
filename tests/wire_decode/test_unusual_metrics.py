"""Metrics in every encoding that protobuf allows mean the same."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)

from otel_straggler import semconv
from otel_straggler.errors import InputError
from otel_straggler.otlp.decode_metrics import MetricDecoder

from . import protobuf_by_hand as by_hand


def request(rng: random.Random) -> ExportMetricsServiceRequest:
    """Signs of life and section times, with explicit and with exponential buckets."""
    message = ExportMetricsServiceRequest()
    for rank in range(rng.choice([1, 1, 3])):
        of_resource = message.resource_metrics.add()
        of_resource.resource.attributes.add(key="training.rank").value.int_value = rank
        metrics = of_resource.scope_metrics.add().metrics
        beat = metrics.add(name=semconv.HEARTBEAT.name).gauge.data_points.add()
        beat.as_double = rng.random() * 1e9
        step = metrics.add(name=semconv.PROGRESS_STEP.name).gauge.data_points.add()
        step.as_int = rng.randrange(10**6)
        duration = metrics.add(name=semconv.SECTION_DURATION.name, unit="s")
        if rng.random() < 0.5:
            duration.histogram.aggregation_temporality = rng.choice([1, 2])
            point = duration.histogram.data_points.add()
            point.explicit_bounds.extend([0.001, 0.5, 2.0])
            point.bucket_counts.extend(rng.randrange(300) for _ in range(4))
            counts = point.bucket_counts
        else:
            duration.exponential_histogram.aggregation_temporality = rng.choice([1, 2])
            point = duration.exponential_histogram.data_points.add()
            point.scale, point.positive.offset = rng.randrange(9), rng.randrange(-9, 9)
            point.positive.bucket_counts.extend(rng.randrange(300) for _ in range(5))
            counts = point.positive.bucket_counts
        point.attributes.add(key=semconv.SECTION).value.string_value = "größe"
        point.start_time_unix_nano, point.time_unix_nano = 10**18, 10**18 + 10**9
        point.count, point.sum = sum(counts), 0.25 * sum(counts)
    return message


@given(st.integers(0, 2**32))
def test_packed_unpacked_and_mixed_repeats_mean_the_same(seed: int) -> None:
    """Also with padded varints."""
    rng = random.Random(seed)
    message = request(rng)
    usual = message.SerializeToString()
    expected = MetricDecoder().decode(usual)
    assert expected.section_times
    assert expected.heartbeats
    node = by_hand.tree_of(message)
    by_hand.pack_some(node, rng)
    body = node.encode(rng)
    assert body != usual
    assert repr(MetricDecoder().decode(body)) == repr(expected)


@given(st.integers(0, 2**32))
def test_an_unusual_encoding_means_what_the_parser_says(seed: int) -> None:
    """Unknown fields, groups, another order, messages in two parts, single fields that come
    twice."""
    rng = random.Random(seed)
    node = by_hand.tree_of(request(rng))
    by_hand.disturb(node, rng)
    body = node.encode(rng)
    again = ExportMetricsServiceRequest.FromString(body)
    again.DiscardUnknownFields()
    assert repr(MetricDecoder().decode(body)) == repr(
        MetricDecoder().decode(again.SerializeToString())
    )


@given(st.integers(0, 2**32), st.integers(1, 12))
def test_mangled_and_cut_requests_are_decoded_or_malformed(seed: int, changes: int) -> None:
    """Never anything else; and what protobuf refuses is refused."""
    rng = random.Random(seed)
    body = bytearray(request(rng).SerializeToString())
    for _ in range(changes):
        by_hand.mangle(body, rng)
    body = body[: rng.choice([len(body), rng.randrange(len(body) + 1)])]
    try:
        decoded = MetricDecoder().decode(bytes(body))
    except InputError:
        decoded = None
    assert (decoded is None) == (not _parses(bytes(body)))


def _parses(body: bytes) -> bool:
    from google.protobuf.message import DecodeError

    try:
        ExportMetricsServiceRequest.FromString(body)
    except DecodeError:
        return False
    return True

"""Metrics that pass through: read alike by all ways, and no others taken for them."""

from __future__ import annotations

import math

import pytest
from google.protobuf.json_format import MessageToJson
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)

from otel_straggler import semconv
from otel_straggler.model.rank import Source
from otel_straggler.otlp.decode_metrics import MetricDecoder
from otel_straggler.otlp.encode_metrics import encode_numbers
from otel_straggler.otlp.metric_rules import DecodedMetrics
from otel_straggler.simulate.writers import resource_of

SOURCE = Source(run_id="r", rank=3, job="j", node="n", session_id="0" * 16, world_size=8)
GPU = {str(semconv.GPU_UUID): "GPU-1", str(semconv.HW_TYPE): "gpu"}


def body(*numbers: tuple[semconv.Metric, dict[str, str], float]) -> bytes:
    return encode_numbers(
        numbers, resource=resource_of(SOURCE), now_s=1_800_000_000.0, started_at_s=1.0
    )


def all_ways(request: bytes) -> DecodedMetrics:
    """What is decoded, which is the same with the extension, without it and of JSON."""
    decoded = MetricDecoder().decode(request)
    assert MetricDecoder(extension=None).decode(request) == decoded
    parsed = ExportMetricsServiceRequest.FromString(request)
    message = MessageToJson(parsed, use_integers_for_enums=True)
    assert MetricDecoder().decode_json(message.encode()) == decoded
    return decoded


@pytest.mark.parametrize("metric", semconv.PASSTHROUGH_METRICS, ids=lambda metric: metric.name)
def test_every_such_metric_is_read_with_its_attributes(metric: semconv.Metric) -> None:
    """In the order of the catalogue, and of whom."""
    keys = metric.labels
    values = tuple(f"v{at}" for at in range(len(keys)))
    decoded = all_ways(body((metric, dict(zip(map(str, keys), values, strict=True)), 2.5)))
    [point] = decoded.passthrough
    assert (point.metric, point.values, point.value) == (metric, values, 2.5)
    assert (point.source.run_id, point.source.rank, point.source.node) == ("r", 3, "n")
    assert decoded.points["used"] == 1


@pytest.mark.parametrize("value", [-1.0, math.nan, math.inf, 1e300])
def test_a_number_that_makes_no_sense_is_left_out(value: float) -> None:
    """It is counted as unknown, and what comes with it is read."""
    decoded = all_ways(body((semconv.HW_POWER, GPU, value), (semconv.HW_ENERGY, GPU, 5.0)))
    assert [point.metric for point in decoded.passthrough] == [semconv.HW_ENERGY]
    assert (decoded.points["unknown"], decoded.points["used"]) == (1, 1)


def test_a_change_does_not_pass_for_a_running_total() -> None:
    """Deltas would be shown as totals that fall."""
    message = ExportMetricsServiceRequest.FromString(body((semconv.HW_ENERGY, GPU, 5.0)))
    message.resource_metrics[0].scope_metrics[0].metrics[0].sum.aggregation_temporality = 1
    assert all_ways(message.SerializeToString()).passthrough == ()


def test_an_attribute_that_is_missing_is_empty() -> None:
    """A sender that does not say which GPU it is is read all the same."""
    [point] = all_ways(body((semconv.HW_TEMPERATURE, {}, 61.0))).passthrough
    assert point.values == ("", "", "")


def test_heartbeats_alongside_are_read_as_well() -> None:
    """Requests put together: the whole is read point by point."""
    beat = body((semconv.HEARTBEAT, {}, 1.7e9), (semconv.PROGRESS_STEP, {}, 4.0))
    decoded = all_ways(beat + body((semconv.HW_POWER, GPU, 300.0)))
    assert [beat.step for beat in decoded.heartbeats] == [4]
    assert len(decoded.passthrough) == 1

"""Heartbeats and histograms against the reference decoder and the collector's own."""

from __future__ import annotations

import os

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)

from otel_straggler import semconv
from otel_straggler.client.topology import Topology, resource_attributes, source_of
from otel_straggler.config import ClientSettings
from otel_straggler.model.rank_metrics import Heartbeat
from otel_straggler.otlp.decode_metrics import MetricDecoder
from otel_straggler.otlp.encode_metrics import SectionHistogram, encode_heartbeat, encode_histograms

TOPOLOGY = Topology(
    role="actor", parallel={"data": (1, 4), "pipeline": (0, None)}, gpu_uuid="GPU-1"
)


def a_heartbeat(settings: ClientSettings, **printed: object) -> tuple[Heartbeat, bytes]:
    beat = Heartbeat(source=source_of(settings, "00aa", TOPOLOGY), sent_at_s=1.7e9, **printed)  # type: ignore[arg-type]
    body = encode_heartbeat(
        beat,
        resource=resource_attributes(settings, "00aa", TOPOLOGY),
        info=TOPOLOGY.attributes(),
        started_at_s=1.6e9,
    )
    return beat, body


def test_the_collector_reads_what_the_rank_said(settings: ClientSettings) -> None:
    """Encoder and decoder agree on every field of a heartbeat."""
    beat, body = a_heartbeat(
        settings,
        progress_at_s=1.69e9,
        step=2**40,
        open_section="vorwärts",
        open_time_s=12.5,
        phase="eval",
        finished_at_s=1.7e9,
        outcome="failed",
        dropped={"queue_full": 3, "ring_full": 1},
        folded={"attention": 12_000, "größe": 1},
        pid=os.getpid(),
    )
    assert MetricDecoder().decode(body).heartbeats == (beat,)


def test_what_is_not_known_is_not_said(settings: ClientSettings) -> None:
    """A rank without steps sends no step, and one that lives sends no end."""
    _, body = a_heartbeat(settings)
    metrics = ExportMetricsServiceRequest.FromString(body).resource_metrics[0].scope_metrics[0]
    assert [m.name for m in metrics.metrics] == [semconv.HEARTBEAT.name, semconv.RANK_INFO.name]


def test_names_units_and_schema_are_those_of_semconv(settings: ClientSettings) -> None:
    """Dashboards are generated from the same table."""
    _, body = a_heartbeat(settings, step=1, dropped={"rejected": 1})
    of_resource = ExportMetricsServiceRequest.FromString(body).resource_metrics[0]
    known = {m.name: m.unit for m in vars(semconv).values() if isinstance(m, semconv.Metric)}
    metrics = of_resource.scope_metrics[0].metrics
    assert all(known[m.name] == m.unit for m in metrics)
    assert of_resource.schema_url == semconv.SCHEMA_URL
    dropped = next(m for m in metrics if m.name == semconv.RECORDS_DROPPED.name)
    assert dropped.sum.is_monotonic
    assert dropped.sum.aggregation_temporality == 2


def test_the_rank_describes_itself(settings: ClientSettings) -> None:
    """The description travels with every heartbeat, so a collector may start late."""
    _, body = a_heartbeat(settings)
    metrics = ExportMetricsServiceRequest.FromString(body).resource_metrics[0].scope_metrics[0]
    info = next(m for m in metrics.metrics if m.name == semconv.RANK_INFO.name)
    printed = {
        a.key: a.value.string_value or a.value.int_value
        for a in info.gauge.data_points[0].attributes
    }
    assert printed == {
        "hw.id": "GPU-1",
        "training.role": "actor",
        "training.parallel.data.rank": 1,
        "training.parallel.data.size": 4,
        "training.parallel.pipeline.rank": 0,
    }


def test_a_histogram_is_read_back_as_it_was(settings: ClientSettings) -> None:
    """Counts, sum and bounds of one section, cumulative."""
    histogram = SectionHistogram(
        section="forward", kind="compute", bounds_s=(0.1, 1.0), counts=(1, 2, 3), sum_s=9.5
    )
    body = encode_histograms(
        [histogram],
        resource=resource_attributes(settings, "00aa", TOPOLOGY),
        started_at_s=1.0,
        now_s=2.0,
    )
    metrics = ExportMetricsServiceRequest.FromString(body).resource_metrics[0].scope_metrics[0]
    point = metrics.metrics[0].histogram.data_points[0]
    assert (list(point.bucket_counts), point.count, point.sum) == ([1, 2, 3], 6, 9.5)
    assert list(point.explicit_bounds) == [0.1, 1.0]

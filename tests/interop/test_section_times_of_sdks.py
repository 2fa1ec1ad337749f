"""A histogram ``straggler.section.duration`` of OpenTelemetry's SDKs lists the slow rank."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import grpc
import pytest
from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import (
    OTLPMetricExporter as GrpcMetricExporter,
)
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics import Histogram, MeterProvider
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    MetricExporter,
    PeriodicExportingMetricReader,
)
from opentelemetry.sdk.metrics.view import (
    Aggregation,
    ExplicitBucketHistogramAggregation,
    ExponentialBucketHistogramAggregation,
    View,
)
from opentelemetry.sdk.resources import Resource

from otel_straggler import semconv

RANKS, SLOW = 4, 2
NAME = semconv.SECTION_DURATION.name
FORWARD = {str(semconv.SECTION): "forward"}
EXCHANGE = {str(semconv.SECTION): "exchange", str(semconv.SECTION_KIND): "wait"}
TIMES = [
    [(0.1 + 0.001 * n, FORWARD) for n in range(20)] + [(0.05, EXCHANGE)] * 20,
    [(0.11 + 0.001 * n, FORWARD) for n in range(20)] + [(0.05, EXCHANGE)] * 20,
]
"""Two exports: seconds and attributes."""

PYTHON: dict[str, Callable[..., MetricExporter]] = {
    "http": lambda a, **temporality: OTLPMetricExporter(
        f"http://{a['otlp_http']}/v1/metrics", compression=Compression.Gzip, **temporality
    ),
    "grpc": lambda a, **temporality: GrpcMetricExporter(
        a["otlp_grpc"], insecure=True, compression=grpc.Compression.Gzip, **temporality
    ),
}
AGGREGATIONS: dict[str, Aggregation] = {
    "explicit": ExplicitBucketHistogramAggregation((0.0, 5.0, 10.0)),  # the SDK's own begin so
    "exponential": ExponentialBucketHistogramAggregation(),
}


def resource_of(rank: int) -> dict[str, Any]:
    return {"service.name": "job", "rank": rank, "world_size": RANKS}


def slowed(rank: int, seconds: float, attributes: dict[str, str]) -> float:
    return seconds * (1.8 if rank == SLOW and attributes is FORWARD else 1.0)


def check(collector: Any, kit: Any) -> None:
    """The slow rank for its work; every run counted once (a last export may repeat the counts)."""

    def counted() -> bool:
        return bool(collector.value(semconv.COLLECTOR_SECTION_TIMES, outcome="scored") == RANKS * 4)

    kit.eventually(counted)
    for window in kit.eventually(lambda: collector.windows("job")):
        listed = {(s["rank"], s["section"]) for s in window["stragglers"]}
        assert listed == {(SLOW, "forward")}
        scores = window["section_relative_scores"]["forward"]
        assert scores[str(SLOW)] == pytest.approx(1 / 1.8, rel=0.05)
        assert scores["0"] == pytest.approx(1.0, rel=0.05)
    outcomes = collector.samples(semconv.COLLECTOR_SECTION_TIMES.prometheus_name)
    reported = {dict(labels)["outcome"]: count for labels, count in outcomes.items() if count}
    assert reported.pop("scored") == RANKS * 4
    assert set(reported) <= {"empty"}
    assert collector.value(semconv.COLLECTOR_ROWS, outcome="late") == 0


@pytest.mark.parametrize("temporality", ["cumulative", "delta"])
@pytest.mark.parametrize("aggregation", AGGREGATIONS)
@pytest.mark.parametrize("exporter", PYTHON)
def test_of_the_python_sdk(
    start: Callable[..., Any], kit: Any, exporter: str, aggregation: str, temporality: str
) -> None:
    """Four resources in one process, each exporting twice."""
    collector = start(scoring__window_s=0.5)
    wanted = AggregationTemporality[temporality.upper()]
    providers = []
    for rank in range(RANKS):
        sender = PYTHON[exporter](collector.addresses, preferred_temporality={Histogram: wanted})
        reader = PeriodicExportingMetricReader(sender, export_interval_millis=3_600_000)
        view = View(instrument_name=NAME, aggregation=AGGREGATIONS[aggregation])
        provider = MeterProvider(
            [reader], Resource.create(resource_of(rank)), views=[view], shutdown_on_exit=False
        )
        histogram = provider.get_meter("of.somebody.else").create_histogram(NAME, unit="s")
        providers.append((rank, provider, histogram))
    for times in TIMES:
        for rank, provider, histogram in providers:
            for seconds, attributes in times:
                histogram.record(slowed(rank, seconds, attributes), attributes)
            assert provider.force_flush()
    check(collector, kit)
    for _, provider, _ in providers:
        provider.shutdown()


@pytest.mark.parametrize("form", ["json", "protobuf", "grpc"])
def test_of_the_javascript_sdk(
    start: Callable[..., Any], kit: Any, javascript: Callable[..., None], form: str
) -> None:
    """Exponential histograms of four resources in one process, each exporting twice."""
    collector = start(scoring__window_s=0.5)
    run = [
        {
            "resource": resource_of(rank),
            "times": [
                [(slowed(rank, s, reported), reported) for s, reported in times] for times in TIMES
            ],
        }
        for rank in range(RANKS)
    ]
    url = collector.addresses["otlp_grpc" if form == "grpc" else "otlp_http"]
    javascript(form, f"http://{url}", "gzip", run)
    check(collector, kit)

"""Spans that OpenTelemetry's SDKs send are scored as the pure core scores the same run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import grpc
import pytest
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import (
    OTLPSpanExporter as GrpcSpanExporter,
)
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter

PYTHON: dict[str, Callable[[Any], SpanExporter]] = {
    "http": lambda a: OTLPSpanExporter(f"http://{a['otlp_http']}/v1/traces"),
    "http, gzip": lambda a: OTLPSpanExporter(
        f"http://{a['otlp_http']}/v1/traces", compression=Compression.Gzip
    ),
    "grpc": lambda a: GrpcSpanExporter(a["otlp_grpc"], insecure=True),
    "grpc, gzip": lambda a: GrpcSpanExporter(
        a["otlp_grpc"], insecure=True, compression=grpc.Compression.Gzip
    ),
}
TABLES = ("section_relative_scores", "section_individual_scores", "section_medians_s")


def check(collector: Any, kit: Any, recorded: list[Any], expected: dict[str, Any]) -> None:
    """The same stragglers and scores, and every span counted once."""
    assert collector.spans() == {"scored": sum(len(rank.spans) for rank in recorded)}
    [window] = kit.eventually(lambda: collector.windows("job"))
    assert window["stragglers"] == [
        {**straggler, "score": pytest.approx(straggler["score"], rel=1e-12), "node": ""}
        for straggler in expected["stragglers"]
    ]
    for table in TABLES:
        assert window[table].keys() == expected[table].keys()
        for section, column in expected[table].items():
            assert window[table][section] == pytest.approx(column, rel=1e-12), table


@pytest.mark.parametrize("exporter", PYTHON)
def test_of_the_python_sdk(
    collector: Any, kit: Any, recorded: list[Any], expected: dict[str, Any], exporter: str
) -> None:
    """Four resources in one process, over its two exporters."""
    for rank in recorded:
        resource = Resource.create(rank.resource)
        provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        provider.add_span_processor(BatchSpanProcessor(PYTHON[exporter](collector.addresses)))
        tracer = provider.get_tracer("of.somebody.else")
        for name, start_ns, end_ns, attributes in rank.spans:
            tracer.start_span(name, start_time=start_ns, attributes=attributes).end(end_ns)
        provider.shutdown()
    check(collector, kit, recorded, expected)


@pytest.mark.parametrize("compression", ["none", "gzip"])
@pytest.mark.parametrize("form", ["json", "protobuf", "grpc"])
def test_of_the_javascript_sdk(
    collector: Any,
    kit: Any,
    javascript: Callable[..., None],
    recorded: list[Any],
    expected: dict[str, Any],
    form: str,
    compression: str,
) -> None:
    """Four resources in one process, over its three exporters."""
    run = [
        {
            "resource": rank.resource,
            "spans": [
                {
                    "name": n,
                    "start": divmod(a, 10**9),
                    "end": divmod(b, 10**9),
                    "attributes": reported,
                }
                for n, a, b, reported in rank.spans
            ],
        }
        for rank in recorded
    ]
    addresses = collector.addresses
    url = addresses["otlp_grpc" if form == "grpc" else "otlp_http"]
    javascript(form, f"http://{url}", compression, run)
    check(collector, kit, recorded, expected)

"""Forwarded traces behind a real OpenTelemetry Collector have the shape that a backend takes."""

from __future__ import annotations

import urllib.request
from pathlib import Path

import pytest
import yaml

from otel_straggler import semconv
from otel_straggler.collector.settings import ForwardSettings

from ..publish.sink import Sink
from ..publish.test_trace_shape import bodies_of, slow_in_forward
from ..publish.trace_rules import broken_rules, traces_in
from ..servers.otelcol import free_address, otelcol_program, running_otelcol
from ..waiting import eventually
from .fleet import Shard

RANKS, STEPS, SLOW = 150, 30, 7


def send(shard: Shard) -> None:
    """In two parts, as ranks do; the second one comes when the run is known to be large."""
    for steps in (range(STEPS // 2), range(STEPS // 2, STEPS)):
        for body in bodies_of(RANKS, steps, slow_in_forward(SLOW)):
            request = urllib.request.Request(
                f"{shard.otlp}/v1/traces",
                data=body,
                headers={"Content-Type": "application/x-protobuf"},
            )
            urllib.request.urlopen(request, timeout=30).close()


@pytest.mark.parametrize("mode", ["all", "sampled"])
def test_what_a_backend_behind_an_opentelemetry_collector_gets(tmp_path: Path, mode: str) -> None:
    """Its batches regroup spans; every trace has one root, no orphan, and its bound. (Without that
    program the same rules are checked in tests/publish/test_trace_shape.py.)"""
    otelcol_program()
    backend = Sink()
    address = free_address()
    config = tmp_path / "otelcol.yaml"
    pipeline = {"receivers": ["otlp"], "processors": ["batch"], "exporters": ["otlp_http"]}
    document = {
        "receivers": {"otlp": {"protocols": {"http": {"endpoint": address}}}},
        "processors": {"batch": {"timeout": "200ms"}},
        "exporters": {"otlp_http": {"endpoint": backend.url, "compression": "none"}},
        "service": {"pipelines": {"traces": pipeline}},
    }
    config.write_text(yaml.safe_dump(document))

    def bodies() -> list[bytes]:
        return [body for path, body, _, _ in list(backend.received) if path == "/v1/traces"]

    def roots() -> int:
        spans = [span for each in traces_in(bodies()).values() for _, span in each]
        return sum(span.name == semconv.ROOT_SPAN for span in spans)

    try:
        with running_otelcol(config, address) as otelcol:
            settings = ForwardSettings(
                url=otelcol.url, mode=mode, sample_every=1, max_trace_spans=500
            )
            shard = Shard(forward=settings)
            try:
                send(shard)
            finally:
                shard.close()
            assert eventually(lambda: roots() == STEPS)
        assert broken_rules(bodies(), max_spans=500) == []
        for spans in list(traces_in(bodies()).values())[-5:]:
            assert {rank for rank, _ in spans} > {SLOW, None}
    finally:
        backend.close()

"""What a section costs, beside a span of OpenTelemetry's SDK, in the same run.

    python -m benchmarks.section_cost

Prints JSON. The ratios are what counts; the absolute times belong to the machine they were taken
on. Rounds alternate between the two, so that both see the same noise, and the median is taken.
"""

from __future__ import annotations

import gc
import json
import platform
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import (
    BatchSpanProcessor,
    SimpleSpanProcessor,
    SpanExporter,
    SpanExportResult,
)
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from otel_straggler import section, step
from otel_straggler.config import ClientSettings, Endpoint
from otel_straggler.record.active import RECORDER
from otel_straggler.record.spans import SpanPacker

ROUNDS = 31
RUNS = 5_000
ENCODED = 5_120
ATTRIBUTES = {
    "straggler.section": "forward",
    "straggler.section.kind": "compute",
    "straggler.time_basis": "host",
    "training.step": 7,
    "straggler.seq": 12_345,
}


class _Nowhere(SpanExporter):
    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        del spans
        return SpanExportResult.SUCCESS


def main() -> None:
    """Measure and print."""
    print(json.dumps({"machine": _machine(), "call": _call(), "encode": _encode()}, indent=2))


def _machine() -> dict[str, Any]:
    return {"python": platform.python_version(), "processor": platform.machine()}


def _call() -> dict[str, float]:
    """``with section:`` against ``start_as_current_span`` with a batch processor."""
    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(_Nowhere()))
    tracer = provider.get_tracer("benchmark")
    forward = section("forward")
    RECORDER.enable()
    step(7)

    def own() -> None:
        for _ in range(RUNS):
            with forward:
                pass

    def empty() -> None:
        for _ in range(RUNS):
            pass

    def sdk() -> None:
        for _ in range(RUNS):
            with tracer.start_as_current_span("forward", attributes=ATTRIBUTES):
                pass

    times = _alternate({"own": own, "sdk": sdk, "empty": empty}, RUNS, between=RECORDER.drain)
    RECORDER.disable()
    times_off = _alternate({"off": own}, RUNS, between=RECORDER.drain)
    provider.shutdown()
    own_ns, sdk_ns = times["own"] - times["empty"], times["sdk"] - times["empty"]
    return {
        "section_ns": own_ns,
        "section_before_configure_ns": times_off["off"] - times["empty"],
        "sdk_span_ns": sdk_ns,
        "sdk_over_own": sdk_ns / own_ns,
    }


def _encode() -> dict[str, float]:
    """Records to bytes against the SDK's spans to bytes, in requests of 512."""
    endpoint = Endpoint(url="http://127.0.0.1/v1/traces")
    settings = ClientSettings(run_id="r", traces=endpoint, metrics=endpoint)
    RECORDER.enable()
    sections = [section(f"section {n}") for n in range(16)]
    for n in range(ENCODED // 16):
        step(n)
        for each in sections:
            with each:
                pass
    records = RECORDER.drain()
    packer = SpanPacker(settings, lambda _: {"training.rank": 0}, RECORDER.epoch.generation)
    spans = _sdk_spans(len(records))
    sizes = {"own": 0, "sdk": 0}

    def own() -> None:
        sizes["own"] = sum(len(r.body) for r in packer.pack(records, 0))

    def sdk() -> None:
        sizes["sdk"] = sum(
            len(encode_spans(spans[at : at + 512]).SerializeToString())
            for at in range(0, len(spans), 512)
        )

    times = _alternate({"own": own, "sdk": sdk}, len(records), between=list)
    RECORDER.disable()
    return {
        "own_ns_per_span": times["own"],
        "sdk_ns_per_span": times["sdk"],
        "sdk_over_own": times["sdk"] / times["own"],
        "own_bytes_per_span": sizes["own"] / len(records),
        "sdk_bytes_per_span": sizes["sdk"] / len(records),
    }


def _sdk_spans(count: int) -> list[ReadableSpan]:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracer = provider.get_tracer("benchmark")
    for _ in range(count):
        with tracer.start_as_current_span("forward", attributes=ATTRIBUTES):
            pass
    return list(exporter.get_finished_spans())


def _alternate(
    candidates: dict[str, Callable[[], None]], runs: int, between: Callable[[], object]
) -> dict[str, float]:
    """Nanoseconds per run of each candidate: the median over rounds that take turns."""
    taken: dict[str, list[float]] = {name: [] for name in candidates}
    for at in range(ROUNDS):
        order = list(candidates) if at % 2 else list(reversed(candidates))
        for name in order:
            gc.collect()
            begin_ns = time.perf_counter_ns()
            candidates[name]()
            taken[name].append((time.perf_counter_ns() - begin_ns) / runs)
            between()
    return {name: statistics.median(values) for name, values in taken.items()}


if __name__ == "__main__":
    main()

"""What it costs to turn a recorded section into bytes, beside OpenTelemetry's SDK, in one run.

    python -m benchmarks.encode_cost

Prints JSON. The ratios are what counts; the absolute times belong to the machine they were taken
on. Rounds alternate between the two, so that both see the same noise, and the median is taken.
"""

from __future__ import annotations

import gc
import json
import platform
import statistics
import time
from collections.abc import Callable
from typing import Any

from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from benchmarks.sections import ATTRIBUTES
from otel_straggler import section, step
from otel_straggler.config import ClientSettings, Endpoint
from otel_straggler.record.active import RECORDER
from otel_straggler.record.spans import SpanPacker

ROUNDS = 31
ENCODED = 5_120


def main() -> None:
    """Measure and print."""
    print(json.dumps({"machine": _machine(), "encode": _encode()}, indent=2))


def _machine() -> dict[str, Any]:
    return {"python": platform.python_version(), "processor": platform.machine()}


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

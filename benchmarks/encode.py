"""What it costs to turn section runs into OTLP: C++, plain Python and OpenTelemetry's SDK.

    python -m benchmarks.encode

Prints JSON. The three take turns in one run, on the same 5,120 spans of six attributes in requests
of 512, so that all see the same noise, and the median is taken. The budget is 200 ns a span in C++,
without the GIL. ``native_folded`` is a rank far above its span budget, per run. ``gil_held`` is the
share of a call in which another thread could do nothing.
"""

from __future__ import annotations

import argparse
import hashlib
import statistics
import struct
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from benchmarks.harness.about import about
from benchmarks.harness.budgets import judge, not_measured, print_result
from benchmarks.harness.turns import take_turns
from otel_straggler.client.python_packing import SpanPacker
from otel_straggler.client.python_recorder import PythonTimer
from otel_straggler.client.recorder import Context, Record, RecordingSession
from otel_straggler.config import ClientSettings, Endpoint
from otel_straggler.native import NATIVE, REASON

BUDGET_NS = 200.0
STEPS = 320
SECTIONS = 15
"""And the step itself: 16 spans a step."""
OFFSET_NS = 1_790_000_000_000_000_000
ATTRIBUTES = {
    "straggler.section": "section 7",
    "straggler.section.kind": "compute",
    "straggler.time_basis": "host",
    "straggler.phase": "warm-up",
    "training.step": 7,
    "straggler.seq": 12_345,
}
_RECORD = struct.Struct("<QQQqqqqqIIIIIIQqqqII")
_NO_SECTION, _NOT_REPORTED, _STEP_SPAN = 2**32 - 1, -1, 2


@dataclass(slots=True)
class _Tables:
    """Names by number, as a recorder gives them."""

    sections: Sequence[tuple[str, str]]
    sessions: Sequence[RecordingSession]
    phases: Sequence[str] = ("", "warm-up")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=31)
    rounds = parser.parse_args().rounds
    result = _measure(rounds)
    name = "native: CPU ns to encode a span"
    budget = not_measured(str(REASON))
    if NATIVE is not None:
        budget = judge(result["ns_per_span"]["native"], BUDGET_NS, "ns")
    about_it = about("opentelemetry-sdk", "opentelemetry-exporter-otlp-proto-common", "protobuf")
    print_result({**about_it, "rounds": rounds, **result}, {name: budget})


def _measure(rounds: int) -> dict[str, Any]:
    tables = _tables()
    records, block = _runs(tables)
    sdk_spans = _sdk_spans(len(records))
    sizes: dict[str, int] = {}
    plain = SpanPacker(_settings(0), _resource, 1)

    def python() -> None:
        sizes["python"] = sum(len(r.body) for r in plain.pack(records, OFFSET_NS))

    def sdk() -> None:
        sizes["sdk"] = sum(
            len(encode_spans(sdk_spans[at : at + 512]).SerializeToString())
            for at in range(0, len(sdk_spans), 512)
        )

    ways: dict[str, Callable[[], None]] = {"python": python, "sdk": sdk}
    if NATIVE is not None:
        ways |= _native(tables, block, sizes)
    turns = take_turns(ways, rounds, time.thread_time_ns)
    taken = {name: statistics.median(ns) / len(records) for name, ns in turns.items()}
    result: dict[str, Any] = {
        "spans": len(records),
        "ns_per_span": {name: round(ns, 1) for name, ns in taken.items()},
        "bytes_per_span": {name: round(size / len(records), 1) for name, size in sizes.items()},
        "sdk_over_python": round(taken["sdk"] / taken["python"], 1),
    }
    if NATIVE is None:
        return result
    return result | {
        "python_over_native": round(taken["python"] / taken["native"], 1),
        "sdk_over_native": round(taken["sdk"] / taken["native"], 1),
        "gil_held": round(_gil_held(tables, block, rounds), 3),
    }


def _native(tables: _Tables, block: bytes, sizes: dict[str, int]) -> dict[str, Callable[[], None]]:
    """All spans singly, and a rank far above its budget."""
    from otel_straggler.client.packing import NativeSpanPacker

    packer = NativeSpanPacker(_settings(0), _resource, 1)
    folding = NativeSpanPacker(_settings(1), _resource, 1)
    hot = _hot_block()

    def native() -> None:
        requests = packer.pack_block(block, tables, OFFSET_NS)
        sizes["native"] = sum(len(r.body) for r in requests)

    def native_folded() -> None:
        requests = folding.pack_block(hot, tables, OFFSET_NS)
        sizes["native_folded"] = sum(len(r.body) for r in requests)

    return {"native": native, "native_folded": native_folded}


def _gil_held(tables: _Tables, block: bytes, rounds: int) -> float:
    """Share of the time of encoding in which a thread that needs the GIL gets nothing done.

    A thread counts; its counts while another encodes are compared with those while the other
    hashes, which needs a processor as much and the GIL not at all.
    """
    from otel_straggler.client.packing import NativeSpanPacker

    packer = NativeSpanPacker(_settings(0), _resource, 1)
    large = block * 40
    text = bytes(50_000_000)

    def encode() -> None:
        packer.pack_block(large, tables, OFFSET_NS)

    def digest() -> None:
        hashlib.blake2b(text)

    rates: dict[str, list[float]] = {"encode": [], "digest": []}
    for at in range(rounds):
        for work in (encode, digest) if at % 2 else (digest, encode):
            thread = threading.Thread(target=work)
            begin = time.perf_counter()
            thread.start()
            counted = 0
            while thread.is_alive():
                counted += 1
            rates[work.__name__].append(counted / (time.perf_counter() - begin))
    share = statistics.median(rates["encode"]) / statistics.median(rates["digest"])
    return max(0.0, 1.0 - share)


def _settings(span_budget: int) -> ClientSettings:
    endpoint = Endpoint(url="http://127.0.0.1/v1/traces")
    return ClientSettings(run_id="r", traces=endpoint, metrics=endpoint, span_budget=span_budget)


def _resource(_: RecordingSession) -> dict[str, str | int | float | bool]:
    return {"training.rank": 0}


def _tables() -> _Tables:
    sections = [("step", "other"), *((f"section {n}", "compute") for n in range(SECTIONS))]
    return _Tables(sections, [RecordingSession("0" * 16, 1)])


def _runs(tables: _Tables) -> tuple[list[Record], bytes]:
    """The same runs as tuples and as records."""
    timers = [PythonTimer(*name) for name in tables.sections]
    records: list[Record] = []
    parts: list[bytes] = []
    span, now = 0, 10**12
    for step in range(STEPS):
        step_span = span + SECTIONS + 1
        context = Context(tables.sessions[0], step, step_span, "warm-up")
        for number in (*range(1, SECTIONS + 1), 0):
            span += 1
            start, now = now, now + 1_000_000 + span * 37 % 5_000
            records.append(((timers[number], span, start, context, None), None, now, None, 0))
            flags = 0 if number else _STEP_SPAN
            parts.append(_record(span, number, step, step_span, start, now, flags))
    return records, b"".join(parts)


def _hot_block() -> bytes:
    """As many runs, nearly all of one section."""
    times = ((n, 10**12 + n * 50_000) for n in range(1, STEPS * (SECTIONS + 1) + 1))
    return b"".join(
        _record(n, 1, n // 500, 10**9 + n // 500, now, now + 40_000 + n * 37 % 500, 0)
        for n, now in times
    )


def _record(
    span: int, section: int, step: int, step_span: int, start: int, end: int, flags: int
) -> bytes:
    numbers = (span, 0, step_span, step, start, end, _NOT_REPORTED, _NOT_REPORTED)
    return _RECORD.pack(*numbers, section, _NO_SECTION, 1, 0, 0, flags, *(0,) * 6)


def _sdk_spans(count: int) -> list[ReadableSpan]:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracer = provider.get_tracer("benchmark")
    for _ in range(count):
        with tracer.start_as_current_span("section 7", attributes=ATTRIBUTES):
            pass
    return list(exporter.get_finished_spans())


if __name__ == "__main__":
    main()

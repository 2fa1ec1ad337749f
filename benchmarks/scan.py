"""What it costs to read a trace request: CPU time per span, of one thread.

    python -m benchmarks.scan

Requests of 512 spans with 6 attributes each, in one run: the scan in C++ with the GIL released;
decoding to columns with it, and without it (NumPy); upb, which only parses; and upb with the fields
read that scoring needs. Prints JSON; the ratio is that of the scan to its budget.
"""

from __future__ import annotations

import json
import os
import platform
import random
import time
from collections.abc import Callable
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from otel_straggler import semconv
from otel_straggler.native import NATIVE, REASON
from otel_straggler.wire.decode_spans import SpanDecoder

REQUESTS = 64
SPANS = 512
SECTIONS = ("data_loading", "forward", "backward", "optimizer")
ROUNDS = 9
BUDGET_NS = 100.0
START_NS = 1_790_000_000_000_000_000


def main() -> None:
    """Measure and print."""
    bodies = [_request(rank).SerializeToString() for rank in range(REQUESTS)]
    plain = SpanDecoder(extension=None)
    candidates: dict[str, Callable[[bytes], Any]] = {
        "numpy_decode": plain.decode,
        "upb_parse": ExportTraceServiceRequest.FromString,
        "upb_parse_and_read": _parse_and_read,
    }
    if NATIVE is not None:
        native = SpanDecoder()
        native.decode(bodies[0])
        assert native._native is not None
        scanner = native._native._cases._scanner
        candidates = {"scan": scanner.scan, "scan_decode": native.decode, **candidates}
    took = _alternate(candidates, bodies)
    result = {
        "machine": {"python": platform.python_version(), "cpus": os.cpu_count()},
        "native": NATIVE is not None or REASON,
        "spans_per_request": SPANS,
        "bytes_per_span": round(sum(map(len, bodies)) / REQUESTS / SPANS),
        "rounds": ROUNDS,
        "cpu_ns_per_span": {name: round(ns, 1) for name, ns in took.items()},
        "budget_ns": BUDGET_NS,
    }
    if "scan" in took:
        result["ratio_to_budget"] = round(took["scan"] / BUDGET_NS, 3)
        result["ratio_to_upb_parse"] = round(took["scan"] / took["upb_parse"], 3)
        result["is_within_budget"] = took["scan"] <= BUDGET_NS
    print(json.dumps(result, indent=2))


def _request(rank: int) -> ExportTraceServiceRequest:
    """As a rank of a run sends it."""
    rng = random.Random(rank)
    message = ExportTraceServiceRequest()
    resource_spans = message.resource_spans.add()
    put = resource_spans.resource.attributes.add
    put(key=semconv.SERVICE_NAME).value.string_value = "job"
    put(key="training.rank").value.int_value = rank
    put(key="training.world_size").value.int_value = REQUESTS
    scope_spans = resource_spans.scope_spans.add()
    scope_spans.scope.name = semconv.SCOPE_NAME
    for number in range(SPANS):
        _add_span(scope_spans.spans.add(), number, rng)
    return message


def _add_span(span: Any, number: int, rng: random.Random) -> None:
    step, at = divmod(number, len(SECTIONS))
    span.trace_id, span.span_id, span.parent_span_id = (rng.randbytes(n) for n in (16, 8, 8))
    span.name, span.kind, span.flags = SECTIONS[at], 1, 0x101
    span.start_time_unix_nano = START_NS + number * 10**7
    span.end_time_unix_nano = span.start_time_unix_nano + rng.randrange(1, 10**7)
    put = span.attributes.add
    put(key=semconv.SECTION).value.string_value = span.name
    put(key=semconv.SECTION_KIND).value.string_value = "compute" if at else "data"
    put(key=semconv.STEP).value.int_value = 100 + step
    put(key=semconv.SEQ).value.int_value = step
    put(key=semconv.TOKENS).value.int_value = 4096
    put(key="straggler.time_basis").value.string_value = "host"


def _parse_and_read(body: bytes) -> list[tuple[Any, ...]]:
    """What any scorer needs of a span."""
    return [
        (
            span.name,
            span.start_time_unix_nano,
            span.end_time_unix_nano,
            {a.key: a.value.int_value or a.value.string_value for a in span.attributes},
        )
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    ]


def _alternate(
    candidates: dict[str, Callable[[bytes], Any]], bodies: list[bytes]
) -> dict[str, float]:
    """Nanoseconds of CPU per span of each: the best of rounds that take turns."""
    best = dict.fromkeys(candidates, float("inf"))
    for at in range(ROUNDS):
        for name in list(candidates) if at % 2 else reversed(candidates):
            read = candidates[name]
            before_ns = time.thread_time_ns()
            for body in bodies:
                read(body)
            took_ns = time.thread_time_ns() - before_ns
            best[name] = min(best[name], took_ns / len(bodies) / SPANS)
    return best


if __name__ == "__main__":
    main()

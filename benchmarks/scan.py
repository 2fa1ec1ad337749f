"""What it costs to read a request: CPU time per span and per heartbeat, of one thread.

    python -m benchmarks.scan

Requests of 512 spans with 6 attributes each, in one run: the scan in C++ with the GIL released;
decoding to columns with it, and without it (upb); upb, which only parses; and upb with the fields
read that scoring needs. Then metrics requests of one heartbeat each, of 1,024 ranks: the scan in
C++, decoding with it, and decoding with upb's classes. Prints JSON; the budget is 100 ns for the
scan of a span. ``scan_gpu`` and ``scan_decode_gpu`` read the same spans with the four attributes of
kernel timing.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from benchmarks.harness import upb
from benchmarks.harness.about import about
from benchmarks.harness.budgets import judge, not_measured, print_result
from benchmarks.harness.turns import take_turns
from otel_straggler import semconv
from otel_straggler.model.rank import Source
from otel_straggler.model.rank_metrics import Heartbeat
from otel_straggler.native import NATIVE, REASON
from otel_straggler.otlp.decode_metrics import MetricDecoder
from otel_straggler.otlp.decode_spans import SpanDecoder
from otel_straggler.otlp.encode_metrics import encode_heartbeat

REQUESTS = 64
SPANS = 512
HEARTBEATS = 1_024
Reads = dict[str, Callable[[bytes], Any]]
SECTIONS = ("data_loading", "forward", "backward", "optimizer")
BUDGET_NS = 100.0
START_NS = 1_790_000_000_000_000_000


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=9)
    rounds = parser.parse_args().rounds
    bodies = [_request(rank).SerializeToString() for rank in range(REQUESTS)]
    timed = [_request(rank, is_timed=True).SerializeToString() for rank in range(REQUESTS)]
    took = _alternate(_readers_of_spans(bodies[0]), bodies, rounds, SPANS)
    took_timed = _alternate(_readers_of_spans(timed[0]), timed, rounds, SPANS)
    took |= {f"{name}_gpu": ns for name, ns in took_timed.items() if name.startswith("scan")}
    beats = [_heartbeat(rank) for rank in range(HEARTBEATS)]
    took_beats = _alternate(_readers_of_heartbeats(beats), beats, rounds, 1)
    result = {
        **about("protobuf", "numpy"),
        "spans_per_request": SPANS,
        "bytes_per_span": round(sum(map(len, bodies)) / REQUESTS / SPANS),
        "bytes_per_span_gpu": round(sum(map(len, timed)) / REQUESTS / SPANS),
        "rounds": rounds,
        "cpu_ns_per_span": {name: round(ns, 1) for name, ns in took.items()},
        "bytes_per_heartbeat": round(sum(map(len, beats)) / HEARTBEATS),
        "cpu_ns_per_heartbeat": {name: round(ns) for name, ns in took_beats.items()},
    }
    budget = not_measured(str(REASON))
    if "scan" in took:
        result["scan_over_upb_parse"] = round(took["scan"] / took["upb_parse"], 3)
        over_upb = took_beats["scan_decode"] / took_beats["upb_decode"]
        result["heartbeat_scan_decode_over_upb_decode"] = round(over_upb, 3)
        budget = judge(took["scan"], BUDGET_NS, "ns")
    print_result(result, {"native: CPU ns to scan a span": budget})


def _readers_of_spans(body: bytes) -> Reads:
    """Ways to read a request of spans; the scan has learnt its cases."""
    readers: Reads = {
        "upb_decode": SpanDecoder(extension=None).decode,
        "upb_parse": upb.parse,
        "upb_parse_and_read": upb.parse_and_read,
    }
    if NATIVE is None:
        return readers
    native = SpanDecoder()
    native.decode(body)
    assert native._cases is not None
    return {"scan": native._cases.scanner.scan, "scan_decode": native.decode, **readers}


def _readers_of_heartbeats(bodies: list[bytes]) -> Reads:
    """Ways to read a heartbeat; the scan has learnt all ranks."""
    readers: Reads = {
        "upb_decode": MetricDecoder(extension=None).decode,
        "upb_parse": ExportMetricsServiceRequest.FromString,
    }
    if NATIVE is None:
        return readers
    native = MetricDecoder()
    for body in bodies:
        native.decode(body)
    assert native._cases is not None
    return {"scan": native._cases.scanner.scan, "scan_decode": native.decode, **readers}


def _request(rank: int, *, is_timed: bool = False) -> ExportTraceServiceRequest:
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
        _add_span(scope_spans.spans.add(), number, rng, is_timed=is_timed)
    return message


def _add_span(span: Any, number: int, rng: random.Random, *, is_timed: bool) -> None:
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
    put(key=semconv.TIME_BASIS).value.string_value = "cupti" if is_timed else "host"
    if is_timed:
        put(key=semconv.GPU_KERNEL_TIME).value.int_value = rng.randrange(10**7)
        put(key=semconv.GPU_BUSY_TIME).value.int_value = rng.randrange(10**7)
        put(key=semconv.GPU_NCCL_TIME).value.int_value = rng.randrange(10**6)
        put(key=semconv.GPU_KERNEL_COUNT).value.int_value = rng.randrange(500)


def _heartbeat(rank: int) -> bytes:
    """As a rank of a run with data and pipeline groups sends it, inside a section."""
    beat = Heartbeat(
        source=Source(run_id="run", rank=rank),
        sent_at_s=START_NS / 1e9,
        progress_at_s=START_NS / 1e9 - 0.2,
        step=12_345 + rank,
        open_section=SECTIONS[rank % len(SECTIONS)],
        open_time_s=0.02,
        dropped={"ring_full": 3, "queue_full": rank},
    )
    resource = {
        semconv.SERVICE_NAME: "job",
        "training.rank": rank,
        "training.world_size": HEARTBEATS,
        "training.run.id": "run",
        semconv.HOST_NAME: f"node-{rank // 8}",
        semconv.SESSION_ID: f"{rank:016x}",
    }
    info = {"training.parallel.data.rank": rank % 16, "training.parallel.pipeline.rank": rank % 4}
    return encode_heartbeat(beat, resource=resource, info=info, started_at_s=0.0)


def _alternate(candidates: Reads, bodies: list[bytes], rounds: int, items: int) -> dict[str, float]:
    """Nanoseconds of CPU per item of a request, of each: the best of rounds that take turns."""

    def all_of(read: Callable[[bytes], Any]) -> Callable[[], None]:
        def read_all() -> None:
            for body in bodies:
                read(body)

        return read_all

    ways = {name: all_of(read) for name, read in candidates.items()}
    took = take_turns(ways, rounds, time.thread_time_ns)
    return {name: min(times) / len(bodies) / items for name, times in took.items()}


if __name__ == "__main__":
    main()

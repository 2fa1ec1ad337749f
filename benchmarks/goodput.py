"""How long ``otel-straggler goodput`` takes for a million events.

    python -m benchmarks.goodput

Three times: an event log of a million lines, OTLP protobuf with a million spans of steps and their
sections, and the account alone of a million activities in memory. The first two are whole commands,
start of the interpreter included; ``cpu`` is what they took of the processor, which does not depend
on what else runs.
"""

from __future__ import annotations

import json
import resource
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue

from otel_straggler import semconv
from otel_straggler.goodput.account import account
from otel_straggler.goodput.activities import STEP, Activities
from otel_straggler.goodput.job_events import JobEvent, event_line

EVENTS = 1_000_000
RANKS = 8
ATTEMPTS = 10
BUDGET_S = 10.0
_S = 10**9
_AT_NS = 1_700_000_000 * _S
_SPANS_AT_ONCE = 5_000


def main() -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory() as folder:
        log, spans = Path(folder) / "run.log", Path(folder) / "run.pb"
        log.write_text("".join(f"{event_line(event)}\n" for event in _events()))
        with spans.open("wb") as file:
            for body in _requests():
                file.write(struct.pack(">I", len(body)) + body)
        event_log_s, event_log_cpu_s = _command_s(log, "--reference-step-time", "1")
        otlp_s, otlp_cpu_s = _command_s(spans)
        result = {
            "events": EVENTS,
            "event_log_s": round(event_log_s, 2),
            "event_log_cpu_s": round(event_log_cpu_s, 2),
            "otlp_s": round(otlp_s, 2),
            "otlp_cpu_s": round(otlp_cpu_s, 2),
            "account_alone_s": round(_account_s(), 2),
            "budget_s": BUDGET_S,
        }
    peak_kib = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    slowest_s = max(result["event_log_s"], result["otlp_s"])
    result |= {"is_within_budget": slowest_s <= BUDGET_S, "peak_memory_mib": peak_kib >> 10}
    print(json.dumps(result, indent=2))


def _command_s(path: Path, *options: str) -> tuple[float, float]:
    """Wall clock and processor time."""
    command = [sys.executable, "-m", "otel_straggler.cli", "goodput", str(path), *options]
    cpu_s, started = _children_cpu_s(), time.perf_counter()
    answer = subprocess.run([*command, "--json", "-"], stdout=subprocess.PIPE, check=True)
    took_s = time.perf_counter() - started, _children_cpu_s() - cpu_s
    [run] = json.loads(answer.stdout)["runs"]
    assert sum(run["time_ns"].values()) == round(run["elapsed_s"] * 1e9, -3) // 1
    return took_s


def _children_cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _events() -> Iterator[JobEvent]:
    """A checkpoint after every step, restarts that do some again."""
    each = EVENTS // ATTEMPTS
    at_ns, step = _AT_NS, 0
    for _ in range(ATTEMPTS):
        yield JobEvent(at_ns, "job_started", job_name="run")
        yield JobEvent(at_ns + 30 * _S, "checkpoint_loaded", step, job_name="run")
        at_ns += 30 * _S
        for _ in range(each - 3):
            at_ns, step = at_ns + _S, step + 1
            yield JobEvent(at_ns, "checkpoint_saved", step, 0, _S // 10, "run")
        yield JobEvent(at_ns + 10 * _S, "job_terminated", job_name="run")
        at_ns, step = at_ns + 60 * _S, step - 5


def _requests() -> Iterator[bytes]:
    """Requests of a rank: for every step its span, data loading and forward."""
    n_steps = EVENTS // (3 * RANKS)
    per_request = _SPANS_AT_ONCE // 3
    for rank in range(RANKS):
        for first in range(0, n_steps, per_request):
            request = ExportTraceServiceRequest()
            resource_spans = request.resource_spans.add()
            resource_spans.resource.attributes.extend(
                [
                    _pair(semconv.RUN_ID, AnyValue(string_value="run")),
                    _pair(semconv.RANK, AnyValue(int_value=rank)),
                    _pair(semconv.WORLD_SIZE, AnyValue(int_value=RANKS)),
                ]
            )
            scope = resource_spans.scope_spans.add()
            scope.scope.name = semconv.SCOPE_NAME
            for step in range(first, min(first + per_request, n_steps)):
                _add_step(scope.spans, rank, step)
            yield request.SerializeToString()


def _add_step(spans: object, rank: int, step: int) -> None:
    start_ns = _AT_NS + step * _S // 10
    parts = (("step", 0, 100, ""), ("data", 1, 9, "data"), ("forward", 10, 95, "compute"))
    for number, (name, begins_ms, ends_ms, kind) in enumerate(parts):
        span = spans.add()  # type: ignore[attr-defined]
        span.trace_id = (step + 1).to_bytes(16, "big")
        span.span_id = ((step * RANKS + rank) * 3 + number + 1).to_bytes(8, "big")
        span.name = name
        span.start_time_unix_nano = start_ns + begins_ms * 1_000_000
        span.end_time_unix_nano = start_ns + ends_ms * 1_000_000
        span.attributes.append(_pair(semconv.STEP, AnyValue(int_value=step)))
        if kind:
            span.attributes.append(_pair(semconv.SECTION, AnyValue(string_value=name)))
            span.attributes.append(_pair(semconv.SECTION_KIND, AnyValue(string_value=kind)))


def _pair(key: str, value: AnyValue) -> KeyValue:
    return KeyValue(key=str(key), value=value)


def _account_s() -> float:
    """A quarter of the rows is data loading, the rest steps with an attempt for each tenth."""
    n = EVENTS // 4
    step = np.repeat(np.arange(n) % (n // RANKS + 1), 4)
    rank = np.repeat(np.arange(n) // (n // RANKS + 1), 4)
    part = np.tile(np.arange(4), n)
    start_ns = _AT_NS + (step * 4 + part) * _S
    activities = Activities(
        names=(STEP, "data"),
        what=(part == 3).astype(np.int32),
        rank=rank,
        attempt=step * ATTEMPTS // (step.max() + 1),
        step=step * 4 + part,
        steps=np.ones(len(step), np.int64),
        start_ns=start_ns,
        end_ns=start_ns + _S - 1000,
    )
    started = time.perf_counter()
    result = account(activities)
    took_s = time.perf_counter() - started
    assert result is not None
    assert int(result.run_ns.sum()) == result.elapsed_ns
    return took_s


if __name__ == "__main__":
    main()

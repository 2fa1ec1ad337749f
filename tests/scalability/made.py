"""Traces, spans and sensors with known contents."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from otel_straggler import semconv
from otel_straggler.model.observation import BatchBuilder, ObservationBatch, Section
from otel_straggler.model.rank import Source
from otel_straggler.otlp.encode_metrics import encode_numbers
from otel_straggler.semconv import Metric

Event = dict[str, Any]
AT_S = 1_790_000_000.0


def step(number: int, at: float, length: float) -> list[Event]:
    name = f"ProfilerStep#{number}"
    return [{"ph": "X", "cat": "user_annotation", "name": name, "ts": at, "dur": length,
             "pid": 1, "tid": 1}]  # fmt: skip


def kernel(name: str, at: float, length: float, **arguments: Any) -> Event:
    said = {"device": 0, "stream": 7, **arguments}
    return {"ph": "X", "cat": "kernel", "name": name, "ts": at, "dur": length, "pid": 0, "tid": 7,
            "args": said}  # fmt: skip


def trace_text(events: Iterable[Event], rank: int | None = None, world_size: int = 8) -> str:
    header: Event = {"schemaVersion": 1}
    if rank is not None:
        header["distributedInfo"] = {"rank": rank, "world_size": world_size, "backend": "nccl"}
    return json.dumps({**header, "traceEvents": list(events)})


def training(run_id: str, ranks: int, step_s: float, epoch_s: float = 0.0) -> ObservationBatch:
    """Ten steps of every rank with 100 tokens in each of two sections; one epoch around all."""
    rows = BatchBuilder()
    for rank in range(ranks):
        source = Source(run_id=run_id, rank=rank, world_size=ranks, session_id=f"{rank:016x}",
                        job="resnet")  # fmt: skip
        if epoch_s:
            at_ns, took_s = int(AT_S * 1e9), epoch_s - 0.1 * rank
            rows.add(source, Section("epoch"), start_ns=at_ns, duration_s=took_s, seq=0)
        for number in range(10):
            for part, name in enumerate(("forward", "backward")):
                start_s = AT_S + step_s * (number + part / 2)
                rows.add(source, Section(name), start_ns=int(start_s * 1e9), step=number,
                         duration_s=step_s / 3, seq=number, tokens=100.0)  # fmt: skip
    return rows.build()


def sensors(
    run_id: str, rank: int, metric: Metric, values: Iterable[tuple[float, float]], **resource: str
) -> list[bytes]:
    """Requests with one point each, at seconds after the start."""
    who = {str(semconv.RUN_ID): run_id, str(semconv.RANK): rank, str(semconv.WORLD_SIZE): 2,
           **resource}  # fmt: skip
    gpu = {str(semconv.GPU_UUID): f"GPU-{rank}", str(semconv.HW_TYPE): "gpu"}
    return [
        encode_numbers([(metric, gpu, value)], resource=who, now_s=AT_S + at_s, started_at_s=AT_S)
        for at_s, value in values
    ]

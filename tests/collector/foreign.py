"""Spans as other instrumentations send them: 4 ranks, of which rank 2 is slow.

Names and types of attributes follow what NeMo Lens with Megatron-LM and dd-trace document; the
numbers are made up here. Waiting is where it would be: those who are not slow wait for rank 2.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Status

RANKS, STEPS, SLOW = 4, 30, 2
STEP_S, COMPUTE_S, SLOWDOWN = 0.4, 0.15, 1.8
START_NS = 1_790_000_000_000_000_000
Attributes = Mapping[str, Any]


class Rank:
    """The spans of one rank, in the order in which they end."""

    def __init__(self, request: ExportTraceServiceRequest, rank: int, resource: Attributes) -> None:
        self.rank = rank
        self._scope = request.resource_spans.add().scope_spans.add()
        put(request.resource_spans[-1].resource.attributes, resource)
        self._count = 0

    def span(
        self, name: str, start_s: float, length_s: float, attributes: Attributes, **changes: Any
    ) -> None:
        self._count += 1
        number = (self.rank + 1) * 1_000_000 + self._count
        span = self._scope.spans.add(
            trace_id=number.to_bytes(16, "big"),
            span_id=number.to_bytes(8, "big"),
            name=name,
            start_time_unix_nano=START_NS + int(start_s * 1e9),
            end_time_unix_nano=START_NS + int((start_s + length_s) * 1e9),
            **changes,
        )
        put(span.attributes, attributes)


def put(attributes: Any, values: Attributes) -> None:
    for key, value in values.items():
        kind = {bool: "bool_value", int: "int_value", float: "double_value", str: "string_value"}
        setattr(attributes.add(key=key).value, kind[type(value)], value)


def compute_s(rank: int) -> float:
    return COMPUTE_S * (SLOWDOWN if rank == SLOW else 1.0)


def lens(rank_value: Callable[[int], Any] = int, prefix: str = "nv.dl") -> bytes:
    """Megatron-LM with NeMo Lens, all ranks exporting, group ``per_step``.

    Args:
        rank_value: how the rank is sent (``OTEL_RESOURCE_ATTRIBUTES`` makes it text).
        prefix: of rank and world size; the first release had ``dl``.
    """
    request = ExportTraceServiceRequest()
    for number in range(RANKS):
        who = {
            "service.name": "megatron-lm",
            "service.instance.id": f"4711-rank{number}",
            "nemo.run.id": "4711",
            "host.name": f"node-{number // 2}",
            f"{prefix}.rank": rank_value(number),
            f"{prefix}.world_size": rank_value(RANKS),
            "nv.dl.role": "trainer",
            "nv.dl.run.uuid": "second-start",
            "dl.pipeline_parallel.rank": number // 2,
            "slurm.job.id": "4711",
        }
        rank = Rank(request, number, who)
        slowest_s = compute_s(SLOW)
        for step in range(STEPS):
            at_s, busy_s = step * STEP_S, compute_s(number)
            rank.span("megatron.forward_backward", at_s, busy_s, {"megatron.num_microbatches": 8})
            rank.span("megatron.grad_sync.finish", at_s + busy_s, slowest_s - busy_s + 0.01, {})
            done = {"megatron.update_successful": True, "megatron.grad_norm": 0.5}
            rank.span("megatron.optimizer_step", at_s + slowest_s + 0.01, 0.02, done)
            iteration = {"megatron.iteration": step + 1, "megatron.loss": 2.5}
            rank.span("megatron.train_step", at_s, STEP_S, iteration)
        rank.span("megatron.save_checkpoint", STEPS * STEP_S, 1.0 + number, {"dl.iteration": STEPS})
        cut_off = {"nemo.span.truncated": True}
        rank.span("megatron.evaluate", STEPS * STEP_S + 6, 9.0, cut_off)
        rank.span("megatron.train", 0.0, STEPS * STEP_S + 15, {"megatron.train_iters": STEPS})
    encoded: bytes = request.SerializeToString()
    return encoded


LENS_SPANS = {
    "row": RANKS * (3 * STEPS + 1),
    "excluded": RANKS * (STEPS + 1),
    "truncated": RANKS,
}


def datadog() -> bytes:
    """dd-trace as it leaves a Collector's Datadog receiver: numeric tags are doubles, who sent is
    on the spans, and the ranks of a host share a resource."""
    request = ExportTraceServiceRequest()
    for number in range(RANKS):
        rank = Rank(request, number, {"service.name": "trainer", "host.name": "node"})
        own = {"rank": float(number), "training_job.id": "raysubmit_1", "component": "pytorch"}
        world = {**own, "world_size": float(RANKS)}
        slowest_s = compute_s(SLOW)
        for step in range(STEPS):
            at_s, busy_s = step * STEP_S, compute_s(number)
            rank.span("pytorch.data_load", at_s, 0.01, own)
            rank.span("pytorch.forward", at_s + 0.01, busy_s / 3, own)
            rank.span("pytorch.backward", at_s + 0.01 + busy_s / 3, busy_s * 2 / 3, own)
            rank.span("pytorch.allreduce", at_s + busy_s, slowest_s - busy_s + 0.01, world)
            failed = {"status": Status(code=Status.STATUS_CODE_ERROR)} if step == 3 else {}
            rank.span("pytorch.optimizer", at_s + slowest_s + 0.02, 0.02, own, **failed)
            rank.span("pytorch.step", at_s, STEP_S, {**own, "step": float(step)})
        rank.span(
            "pytorch.rank", 0.0, STEPS * STEP_S, {**world, "pytorch.local_rank": float(number)}
        )
    encoded: bytes = request.SerializeToString()
    return encoded


DATADOG_SPANS = {
    "row": RANKS * (5 * STEPS - 1),
    "excluded": RANKS * (STEPS + 1),
    "error_status": RANKS,
}

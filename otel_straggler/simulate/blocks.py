"""A generated run, some steps at a time: what was measured, when, and what is not told."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from otel_straggler.model.observation import Floats, Ints, Section
from otel_straggler.simulate.labels import hung_ranks
from otel_straggler.simulate.noise import Draws
from otel_straggler.simulate.on_gpu import OnGpu, stack_on_gpu
from otel_straggler.simulate.plan import (
    BACKWARD,
    FORWARD,
    OPTIMIZER,
    PIPELINE,
    SYNC,
    RunPlan,
)
from otel_straggler.simulate.synchronisation import Measured, measure
from otel_straggler.simulate.timeline import Attempt, Mask, Timeline
from otel_straggler.simulate.work import PASSES, Workers

RESTART_S = 120.0
"""From the end of an attempt to its successor's first step."""
_STUCK = {"local": SYNC, "synchronised": BACKWARD, "asynchronous": OPTIMIZER}
"""The section that does not end when the collective does not."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Block:
    """Some consecutive steps of one attempt. T steps, R ranks, S sections.

    Attributes:
        attempt: which start of the job.
        steps: (T,) numbers.
        seconds: (T, R, S); NaN where nothing ran or nothing is told.
        start_ns: (T, R) begin of the step of each rank, on its node's clock.
        gap_s: (T, R) unmeasured, before section number ``gap_at``.
        parts: (T, R, M) part of each microbatch in the sections of ``per_microbatch``, or None.
        per_microbatch: (S,) sections that run once for each microbatch.
        tokens: (T, R, M); None if not told.
        gpu: what the devices tell; None: nothing.
    """

    attempt: Attempt
    steps: Ints
    seconds: Floats
    start_ns: Ints
    gap_s: Floats
    gap_at: int
    parts: Floats | None
    per_microbatch: Mask
    tokens: Floats | None
    gpu: OnGpu | None = None


def make_blocks(
    plan: RunPlan, draws: Draws, timeline: Timeline, steps_at_once: int
) -> Iterator[Block]:
    """The whole run; only one block is in memory. Blocks do not reach over a restart."""
    workers = Workers(plan, draws, timeline)
    clock_ns = plan.start_ns
    offsets = draws.once("clocks").standard_normal(plan.nodes)
    offset_ns = np.rint(offsets * plan.clock_offset_s * 1e9).astype(np.int64)
    for attempt in timeline.attempts:
        carry_s = np.zeros(plan.layout.ranks)
        for first in range(0, attempt.steps, steps_at_once):
            count = min(steps_at_once, attempt.steps - first)
            made = attempt.first_made + first
            work = workers.work(attempt, made, count)
            measured = measure(plan, work, carry_s)
            meet_ns = clock_ns + np.cumsum(np.rint(measured.meet_s * 1e9).astype(np.int64))
            met_ns = np.concatenate([[clock_ns], meet_ns])
            clock_ns, carry_s = int(met_ns[-1]), measured.carry_s
            start_ns = met_ns[:-1, None] + np.rint(measured.begin_s * 1e9).astype(np.int64)
            block = Block(
                attempt=attempt,
                steps=np.arange(count) + attempt.first_step + first,
                seconds=_stack(measured, plan.sections),
                start_ns=start_ns + offset_ns[attempt.slot // plan.ranks_per_node],
                gap_s=measured.gap_s,
                gap_at=plan.sections.index(measured.gap_before),
                parts=work.parts,
                per_microbatch=np.array([section in PASSES for section in plan.sections]),
                tokens=work.tokens,
            )
            block = _cut(plan, draws, block, made)
            if measured.gpu is not None:
                on_gpu = stack_on_gpu(plan, measured.gpu, block.seconds)
                block = replace(block, gpu=on_gpu)
            yield block
        clock_ns += round(RESTART_S * 1e9)


def _stack(measured: Measured, sections: tuple[Section, ...]) -> Floats:
    seconds: Floats = np.stack([measured.seconds[section] for section in sections], axis=2)
    return np.maximum(seconds, 1e-9, out=seconds)  # rounding may leave a wait of -1e-17


def _cut(plan: RunPlan, draws: Draws, block: Block, made: int) -> Block:
    """Take out what a hang keeps from ending, and what never arrives."""
    hang = block.attempt.hang
    last = block.attempt.first_step + block.attempt.steps - 1
    if hang is not None and block.steps[-1] == last:
        index = np.arange(len(plan.sections))
        block.seconds[-1][index >= _first_open(plan, block.attempt)[:, None]] = np.nan
    if plan.missing_reports:
        drawn = draws.uniforms("missing", made, block.start_ns.shape)
        block.seconds[drawn < plan.missing_reports] = np.nan
    return block


def _first_open(plan: RunPlan, attempt: Attempt) -> Ints:
    """(ranks,) number of the first section of the last step that does not end."""
    fault = attempt.hang
    assert fault is not None
    layout = plan.layout
    who = hung_ranks(plan, fault, attempt)
    stuck = plan.sections.index(_STUCK[plan.timing])
    first = np.full(layout.ranks, stuck)
    if fault.kind == "hang_joined":
        return first
    if plan.timing != "asynchronous":
        pipelines = layout.data_index
        if layout.pp > 1:
            first[np.isin(pipelines, pipelines[who])] = plan.sections.index(PIPELINE)
        groups = layout.inner_group
        first[np.isin(groups, groups[who])] = plan.sections.index(FORWARD)
    first[who] = 0 if fault.kind == "crash" else plan.sections.index(FORWARD)
    return first

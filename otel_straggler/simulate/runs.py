"""Runs of any size with known faults, generated a few steps at a time.

Local work is drawn first; then ranks wait for each other as in a real run. The same plan gives the
same numbers, whatever the size of the blocks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from hashlib import blake2b

import numpy as np

from otel_straggler.model.observation import (
    NO_KERNEL,
    Bools,
    Floats,
    GpuTimes,
    Ints,
    ObservationBatch,
)
from otel_straggler.model.rank import Source
from otel_straggler.model.step_table import StepTable
from otel_straggler.simulate.auxiliary_metrics import GPU_MODEL, gpu_uuid
from otel_straggler.simulate.faults import Fault
from otel_straggler.simulate.labels import Label, build_labels, hung_ranks, node_name
from otel_straggler.simulate.plan import (
    BACKWARD,
    FORWARD,
    OPTIMIZER,
    PIPELINE,
    SYNC,
    Layout,
    RunPlan,
)
from otel_straggler.simulate.synchronisation import Measured, OnGpu, measure, stack_on_gpu
from otel_straggler.simulate.timeline import Attempt, Draws, Timeline, build_timeline
from otel_straggler.simulate.work import PASSES, Workers

__all__ = ["Fault", "Label", "Layout", "RunPlan", "SimulatedRun", "generate"]


class SimulatedRun:
    """A run that is generated as it is read; each reading gives the same."""

    def __init__(self, plan: RunPlan) -> None:
        self.plan = plan
        self._draws = Draws(plan.seed)
        self._timeline = build_timeline(plan, self._draws)
        self.labels: tuple[Label, ...] = build_labels(plan, self._timeline)
        self._sources = tuple(_sources(plan, attempt) for attempt in self._timeline.attempts)

    @property
    def sources(self) -> tuple[Source, ...]:
        """Ranks of the newest attempt."""
        return self._sources[-1]

    def tables(self, block_steps: int = 5) -> Iterator[StepTable]:
        """Tables of up to ``block_steps``; none crosses a restart.

        Memory: one table at a time, about 200 bytes x steps x ranks.
        """
        for block in make_blocks(self.plan, self._draws, self._timeline, block_steps):
            yield build_table(self.plan, block, self._sources[block.attempt.number])

    def batches(
        self, steps_at_once: int = 20, *, counts_microbatches: bool = False
    ) -> Iterator[ObservationBatch]:
        """The same run as rows, in order of their starts within a batch; none crosses a restart.

        Args:
            counts_microbatches: forward and backward are one row with a count in ``runs``;
                otherwise one
                row for each microbatch.

        Memory: one batch at a time, about 200 bytes a row.
        """
        for block in make_blocks(self.plan, self._draws, self._timeline, steps_at_once):
            sources = self._sources[block.attempt.number]
            yield build_rows(self.plan, block, sources, counts_microbatches=counts_microbatches)


def generate(plan: RunPlan) -> SimulatedRun:
    """Make the run of a plan.

    >>> run = generate(RunPlan(layout=Layout(dp=4), steps=10,
    ...                        faults=(Fault.parse("compute:1.5@rank2:step5"),)))
    >>> [table.seconds.shape for table in run.tables()], sorted(run.labels[0].ranks)
    ([(5, 4, 5), (5, 4, 5)], [2])
    """
    return SimulatedRun(plan)


def _sources(plan: RunPlan, attempt: Attempt) -> tuple[Source, ...]:
    return tuple(_source(plan, attempt, rank) for rank in range(plan.layout.ranks))


def _source(plan: RunPlan, attempt: Attempt, rank: int) -> Source:
    slot = int(attempt.slot[rank])
    session = f"{plan.seed}|{plan.run_id}|{plan.start_ns}|{attempt.number}|{rank}"
    source = Source(
        run_id=plan.run_id,
        rank=rank,
        job="simulation",
        attempt=attempt.number,
        node=node_name(plan, slot),
        session_id=blake2b(session.encode(), digest_size=8).hexdigest(),
        local_rank=slot % plan.ranks_per_node,
        world_size=plan.layout.ranks,
        parallel=plan.layout.index(rank) if plan.report_topology else (),
    )
    if not plan.report_hardware:
        return source
    return replace(source, device=gpu_uuid(source), device_model=GPU_MODEL)


RESTART_S = 120.0
"""From the end of an attempt to the first step of the next."""
_STUCK = {"local": SYNC, "synchronised": BACKWARD, "asynchronous": OPTIMIZER}
"""The section that does not end when the collective does not."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Block:
    """Consecutive steps of one attempt. T steps, R ranks, S sections, M microbatches.

    Attributes:
        steps: (T,) numbers.
        seconds: (T, R, S); NaN where nothing ran or nothing is reported.
        start_ns: (T, R) start of the step of each rank, on its node's clock.
        gap_s: (T, R) unmeasured, before section ``gap_at``.
        parts: (T, R, M) share of each microbatch in the sections of ``per_microbatch``, or None.
        per_microbatch: (S,) sections that run once for each microbatch.
        tokens: (T, R, M); None if not reported.
        gpu: None if not reported.
    """

    attempt: Attempt
    steps: Ints
    seconds: Floats
    start_ns: Ints
    gap_s: Floats
    gap_at: int
    parts: Floats | None
    per_microbatch: Bools
    tokens: Floats | None
    gpu: OnGpu | None = None


def make_blocks(
    plan: RunPlan, draws: Draws, timeline: Timeline, steps_at_once: int
) -> Iterator[Block]:
    """The whole run, one block in memory at a time; none crosses a restart."""
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
            seconds = np.stack([measured.seconds[name] for name in plan.sections], axis=2)
            meet_ns = clock_ns + np.cumsum(np.rint(measured.meet_s * 1e9).astype(np.int64))
            met_ns = np.concatenate([[clock_ns], meet_ns])
            clock_ns, carry_s = int(met_ns[-1]), measured.carry_s
            start_ns = met_ns[:-1, None] + np.rint(measured.begin_s * 1e9).astype(np.int64)
            block = Block(
                attempt=attempt,
                steps=np.arange(count) + attempt.first_step + first,
                seconds=np.maximum(seconds, 1e-9),  # rounding may leave a wait of -1e-17
                start_ns=start_ns + offset_ns[attempt.slot // plan.ranks_per_node],
                gap_s=measured.gap_s,
                gap_at=plan.sections.index(measured.gap_before),
                parts=work.parts,
                per_microbatch=np.array([section in PASSES for section in plan.sections]),
                tokens=work.tokens,
            )
            block = _cut(plan, draws, block, made)
            yield replace(block, gpu=_on_gpu(plan, draws, measured, block, made))
        clock_ns += round(RESTART_S * 1e9)


def _cut(plan: RunPlan, draws: Draws, block: Block, made: int) -> Block:
    """Remove what a hang keeps from ending, and what never arrives."""
    hang = block.attempt.hang
    last = block.attempt.first_step + block.attempt.steps - 1
    if hang is not None and block.steps[-1] == last:
        index = np.arange(len(plan.sections))
        block.seconds[-1][index >= _first_open(plan, block.attempt)[:, None]] = np.nan
    if plan.missing_reports:
        drawn = draws.uniforms("missing", made, block.start_ns.shape)
        block.seconds[drawn < plan.missing_reports] = np.nan
    return block


def _on_gpu(
    plan: RunPlan, draws: Draws, measured: Measured, block: Block, made: int
) -> OnGpu | None:
    is_missing = np.full(block.seconds.shape, plan.gpu_missing == 1.0)
    if 0.0 < plan.gpu_missing < 1.0:
        drawn = draws.uniforms("gpu_missing", made, is_missing.shape)
        is_missing = drawn < plan.gpu_missing
    return stack_on_gpu(plan, measured.gpu, block.seconds, block.steps, is_missing)


def _first_open(plan: RunPlan, attempt: Attempt) -> Ints:
    """(ranks,) index of the first section of the last step that does not end."""
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


def build_table(plan: RunPlan, block: Block, sources: tuple[Source, ...]) -> StepTable:
    is_there = ~np.isnan(block.seconds)
    count = 1 if block.parts is None else block.parts.shape[2]
    per_step = np.where(block.per_microbatch, count, 1).astype(np.int32)
    reports = np.asarray(is_there.any(axis=2))
    return StepTable(
        steps=block.steps,
        sources=sources,
        sections=plan.sections,
        seconds=block.seconds,
        runs=is_there * per_step,
        run_cv=_run_cv(block, is_there),
        tokens=_tokens(block, reports),
        start_ns=np.where(reports, block.start_ns, 0),
        end_ns=np.where(reports, _end_ns(block, is_there), 0),
        world_size=plan.layout.ranks,
        gpu=None if block.gpu is None else block.gpu.table(),
    )


def _end_ns(block: Block, is_there: Bools) -> Ints:
    seconds = np.where(is_there, block.seconds, 0.0).sum(axis=2)
    seconds += block.gap_s * is_there[:, :, block.gap_at]
    return np.asarray(block.start_ns + np.rint(seconds * 1e9).astype(np.int64))


def _tokens(block: Block, reports: Bools) -> Floats:
    if block.tokens is None:
        return np.full(reports.shape, np.nan)
    return np.where(reports, block.tokens.sum(axis=2), np.nan)


def _run_cv(block: Block, is_there: Bools) -> Floats:
    """(ranks, sections) standard deviation of executions within their step / mean of all
    executions."""
    run_cv: Floats = np.full(block.seconds.shape[1:], np.nan)
    if block.parts is None:
        return run_cv
    count = block.parts.shape[2]
    square = np.square(block.parts * count - 1.0).sum(axis=2) / (count - 1)
    for index in np.flatnonzero(block.per_microbatch).tolist():
        seconds = np.where(is_there[:, :, index], block.seconds[:, :, index], 0.0)
        steps = is_there[:, :, index].sum(axis=0)
        pooled = np.sqrt((seconds * seconds * square).sum(axis=0) * steps)
        total = seconds.sum(axis=0)
        np.divide(pooled, total, out=run_cv[:, index], where=total > 0)
    return run_cv


@dataclass(frozen=True, eq=False)
class _Rows:
    """Rows of one section: indices into the block, and times."""

    step: Ints
    rank: Ints
    section: int
    microbatch: Ints
    start_ns: Ints
    end_ns: Ints


def build_rows(
    plan: RunPlan, block: Block, sources: tuple[Source, ...], *, counts_microbatches: bool
) -> ObservationBatch:
    """Rows in order of their starts; sums over a step are those of the table.

    Args:
        counts_microbatches: the microbatches of a section are one row, with their count in
            ``runs``.
    """
    is_there = ~np.isnan(block.seconds)
    edges_s = _edges(block, is_there)
    parts = [
        _rows(block, section, is_there[:, :, section], edges_s, counts_microbatches)
        for section in range(len(plan.sections))
    ]
    order = np.argsort(np.concatenate([rows.start_ns for rows in parts]), kind="stable")
    step, rank, microbatch, start_ns, end_ns = (
        np.concatenate([getattr(rows, name) for rows in parts])[order]
        for name in ("step", "rank", "microbatch", "start_ns", "end_ns")
    )
    section = np.repeat(np.arange(len(parts)), [len(rows.step) for rows in parts])[order]
    counts = np.where(block.per_microbatch, plan.microbatches, 1).astype(np.int32)
    since_start = block.steps[step] - block.attempt.first_step
    return ObservationBatch(
        sources=sources,
        sections=plan.sections,
        source=rank.astype(np.int32),
        section=section.astype(np.int32),
        kernel=np.full(len(order), NO_KERNEL, np.int32),
        step=block.steps[step],
        start_ns=start_ns,
        duration_s=np.maximum(end_ns - start_ns, 1) / 1e9,
        seq=since_start * plan.microbatches + microbatch,
        runs=counts[section] if counts_microbatches else None,
        tokens=_rows_tokens(plan, block, (step, rank, section, microbatch), counts_microbatches),
        gpu=_gpu(block, (step, rank, section, microbatch), counts_microbatches),
    )


def _edges(block: Block, is_there: Bools) -> Floats:
    """(T, R, S, 2) seconds from the start of the step to the start and end of a section."""
    ends = np.cumsum(np.where(is_there, block.seconds, 0.0), axis=2)
    begins = np.concatenate([np.zeros_like(ends[:, :, :1]), ends[:, :, :-1]], axis=2)
    edges = np.stack([begins, ends], axis=3)
    edges[:, :, block.gap_at :] += block.gap_s[:, :, None, None]
    return edges


def _rows(
    block: Block, section: int, is_there: Bools, edges_s: Floats, counts_microbatches: bool
) -> _Rows:
    step, rank = np.nonzero(is_there)
    edges_s = edges_s[step, rank, section]
    if not (block.parts is None or counts_microbatches) and block.per_microbatch[section]:
        until = np.cumsum(block.parts[step, rank], axis=1)[:, :-1]
        begin_s, end_s = edges_s[:, :1], edges_s[:, 1:]
        edges_s = np.hstack([begin_s, begin_s + until * (end_s - begin_s), end_s])
    edges_ns = np.rint(edges_s * 1e9).astype(np.int64) + block.start_ns[step, rank][:, None]
    count = edges_ns.shape[1] - 1
    return _Rows(
        step=np.repeat(step, count),
        rank=np.repeat(rank, count),
        section=section,
        microbatch=np.tile(np.arange(count), len(step)),
        start_ns=edges_ns[:, :-1].ravel(),
        end_ns=edges_ns[:, 1:].ravel(),
    )


def _gpu(
    block: Block, index: tuple[Ints, Ints, Ints, Ints], counts_microbatches: bool
) -> GpuTimes | None:
    if block.gpu is None:
        return None
    step, rank, section, microbatch = index
    part = np.ones(len(step))
    if block.parts is not None and not counts_microbatches:
        is_one_of_many = block.per_microbatch[section]
        part = np.where(is_one_of_many, block.parts[step, rank, microbatch], 1.0)
    return block.gpu.columns((step, rank, section), part)


def _rows_tokens(
    plan: RunPlan, block: Block, index: tuple[Ints, Ints, Ints, Ints], counts_microbatches: bool
) -> Floats | None:
    """Forward reports the tokens of its microbatches."""
    if block.tokens is None:
        return None
    step, rank, section, microbatch = index
    tokens = block.tokens.sum(axis=2, keepdims=True) if counts_microbatches else block.tokens
    reported = np.minimum(microbatch, tokens.shape[2] - 1)
    is_reported = section == plan.sections.index(FORWARD)
    return np.where(is_reported, tokens[step, rank, reported], np.nan)

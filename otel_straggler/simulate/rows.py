"""A generated run as rows: what its ranks would send, one row per section run."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from otel_straggler.model.observation import NO_KERNEL, Floats, GpuTimes, Ints, ObservationBatch
from otel_straggler.model.rank import Source
from otel_straggler.simulate.blocks import Block
from otel_straggler.simulate.plan import FORWARD, RunPlan
from otel_straggler.simulate.timeline import Mask


@dataclass(frozen=True, eq=False)
class _Rows:
    """Rows of one section: where they stand in the block, and when they run."""

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
        plan: of the run.
        block: of it.
        sources: ranks of the block's attempt.
        counts_microbatches: the microbatches of a section are one row, with their count in
            ``runs``; otherwise each is a row.

    Cost: O(rows * log(rows)).
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
        runs=_runs(plan, block, section) if counts_microbatches else None,
        tokens=_tokens(plan, block, (step, rank, section, microbatch), counts_microbatches),
        gpu=_gpu(block, (step, rank, section, microbatch), counts_microbatches),
    )


def _edges(block: Block, is_there: Mask) -> Floats:
    """(T, R, S, 2) seconds from the begin of the step to the begin and end of a section."""
    ends = np.cumsum(np.where(is_there, block.seconds, 0.0), axis=2)
    begins = np.concatenate([np.zeros_like(ends[:, :, :1]), ends[:, :, :-1]], axis=2)
    edges = np.stack([begins, ends], axis=3)
    edges[:, :, block.gap_at :] += block.gap_s[:, :, None, None]
    return edges


def _rows(
    block: Block, section: int, is_there: Mask, edges_s: Floats, counts_microbatches: bool
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


def _runs(plan: RunPlan, block: Block, section: Ints) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
    counts = np.where(block.per_microbatch, plan.microbatches, 1)
    return np.asarray(counts[section], np.int32)


def _gpu(
    block: Block, place: tuple[Ints, Ints, Ints, Ints], counts_microbatches: bool
) -> GpuTimes | None:
    if block.gpu is None:
        return None
    step, rank, section, microbatch = place
    part = np.ones(len(step))
    if block.parts is not None and not counts_microbatches:
        is_one_of_many = block.per_microbatch[section]
        part = np.where(is_one_of_many, block.parts[step, rank, microbatch], 1.0)
    return block.gpu.columns((step, rank, section), part)


def _tokens(
    plan: RunPlan, block: Block, place: tuple[Ints, Ints, Ints, Ints], counts_microbatches: bool
) -> Floats | None:
    """Forward tells the tokens of its microbatches."""
    if block.tokens is None:
        return None
    step, rank, section, microbatch = place
    tokens = block.tokens.sum(axis=2, keepdims=True) if counts_microbatches else block.tokens
    told = np.minimum(microbatch, tokens.shape[2] - 1)
    is_told = section == plan.sections.index(FORWARD)
    return np.where(is_told, tokens[step, rank, told], np.nan)

"""A generated run as the tables that layer 2 reads."""

from __future__ import annotations

import numpy as np

from otel_straggler.model.observation import Floats, Ints
from otel_straggler.model.rank import Source
from otel_straggler.model.step_table import StepTable
from otel_straggler.simulate.blocks import Block
from otel_straggler.simulate.plan import RunPlan
from otel_straggler.simulate.timeline import Mask


def build_table(plan: RunPlan, block: Block, sources: tuple[Source, ...]) -> StepTable:
    """Cost: O(steps * ranks * (sections + microbatches))."""
    is_there = ~np.isnan(block.seconds)
    count = 1 if block.parts is None else block.parts.shape[2]
    per_step = np.where(block.per_microbatch, count, 1).astype(np.int32)
    tells = np.asarray(is_there.any(axis=2))
    return StepTable(
        steps=block.steps,
        sources=sources,
        sections=plan.sections,
        seconds=block.seconds,
        runs=is_there * per_step,
        run_cv=_run_cv(block, is_there),
        tokens=_tokens(block, tells),
        start_ns=np.where(tells, block.start_ns, 0),
        end_ns=np.where(tells, _end_ns(block, is_there), 0),
        world_size=plan.layout.ranks,
        gpu=None if block.gpu is None else block.gpu.table(),
    )


def _end_ns(block: Block, is_there: Mask) -> Ints:
    seconds = np.where(is_there, block.seconds, 0.0).sum(axis=2)
    seconds += block.gap_s * is_there[:, :, block.gap_at]
    return np.asarray(block.start_ns + np.rint(seconds * 1e9).astype(np.int64))


def _tokens(block: Block, tells: Mask) -> Floats:
    if block.tokens is None:
        return np.full(tells.shape, np.nan)
    return np.where(tells, block.tokens.sum(axis=2), np.nan)


def _run_cv(block: Block, is_there: Mask) -> Floats:
    """(ranks, sections) standard deviation of single runs in their step / mean of all runs."""
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

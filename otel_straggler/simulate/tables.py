"""A generated run as the tables that layer 2 reads."""

from __future__ import annotations

import numpy as np

from otel_straggler.model.observation import Floats, Ints
from otel_straggler.model.rank import Source
from otel_straggler.model.step_table import StepTable
from otel_straggler.simulate.blocks import Block
from otel_straggler.simulate.plan import RunPlan


def build_table(plan: RunPlan, block: Block, sources: tuple[Source, ...]) -> StepTable:
    """Cost: O(steps * ranks * (sections + microbatches))."""
    is_there = ~np.isnan(block.seconds)
    count = 1 if block.parts is None else block.parts.shape[2]
    per_step = np.where(block.per_microbatch, count, 1).astype(np.int32)
    tells = is_there.any(axis=2)
    return StepTable(
        steps=block.steps,
        sources=sources,
        sections=plan.sections,
        seconds=block.seconds,
        runs=is_there * per_step,
        run_cv=_run_cv(block, is_there),
        tokens=block.tokens,
        start_ns=np.where(tells, block.start_ns, 0),
        end_ns=np.where(tells, _end_ns(block, is_there), 0),
        world_size=plan.layout.ranks,
    )


def _end_ns(block: Block, is_there: np.ndarray) -> Ints:
    seconds = np.where(is_there, block.seconds, 0.0).sum(axis=2)
    seconds += block.gap_s * is_there[:, :, block.gap_at]
    return np.asarray(block.start_ns + np.rint(seconds * 1e9).astype(np.int64))


def _run_cv(block: Block, is_there: np.ndarray) -> Floats:
    """(ranks, sections), squares pooled over the steps in which the section ran."""
    run_cv: Floats = np.full(block.seconds.shape[1:], np.nan)
    if block.parts is None:
        return run_cv
    count = block.parts.shape[2]
    squares = np.square(block.parts * count - 1.0).sum(axis=2) / (count - 1)
    for index in np.flatnonzero(block.per_microbatch).tolist():
        ran = is_there[:, :, index]
        steps = ran.sum(axis=0)
        total = np.where(ran, squares, 0.0).sum(axis=0)
        np.sqrt(
            np.divide(total, steps, out=run_cv[:, index], where=steps > 0), out=run_cv[:, index]
        )
    return run_cv

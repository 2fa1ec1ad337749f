"""Which pipeline stages are too long, what balance would win, and whether they became so."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from otel_straggler.model.observation import Floats, Ints
from otel_straggler.model.rank import Source
from otel_straggler.score.verdicts.grouping import median_of_rows
from otel_straggler.score.verdicts.what_if import WhatIf, filled, row_seconds
from otel_straggler.score.verdicts.workers import Workers

LEAST_SLOWDOWN = 1.05
LEAST_STAGE = 1.03
STAGE_PART = 0.5
"""Stages are to blame if mending them wins half of what is lost."""
AGREEING = 0.75
"""In so many of the data ranks a long stage is long by half of its excess at least."""
GAP_PART = 0.5
"""Of several stages that are named each is longer than all others by so much of its excess."""
BLOCK_STEPS, LEAST_BEFORE = 5, 2
"""Whether a stage was even before is asked of medians of 5 steps, at least two of them."""
EVEN_PART = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class LongStages:
    """Stages that are too long, by index.

    Attributes:
        stages: longest first; empty if none is to blame, as where only one is short.
        part: part of the loss that goes if all of them take the mean of all stages.
        saved_s: seconds per step that this wins, by the schedule that ``what_if`` assumes.
    """

    stages: tuple[int, ...] = ()
    part: float = 0.0
    saved_s: float = 0.0


def long_stages(seconds: Floats, microbatches: int, told: WhatIf) -> LongStages:
    """Look for the fewest stages, fewer than the others, with which half of the loss goes.

    Stages are never equal: embedding, head and loss have no layers' worth. So a stage is named by
    what it costs: the run takes 1.05 times as long as it could, and half of that goes if these
    stages take the mean. One that is long by itself but hides behind a longer one costs nothing.
    Three quarters of the data ranks must agree, which one slow worker cannot bring about.

    Args:
        seconds: (T, D, P) as in ``what_if``, which has ``told`` of them.

    Cost: O(T D P) for each stage that is tried, at most half of them.
    """
    if not told.slowdown >= LEAST_SLOWDOWN:
        return LongStages()
    a = filled(np.asarray(seconds, np.float64))[0] / max(1, microbatches)
    ideal = a.mean(axis=(1, 2))
    total = float(row_seconds(a, microbatches).max(axis=1).sum())
    loss = total * (1.0 - 1.0 / told.slowdown)
    order = np.argsort(-told.stages, kind="stable")
    for count in range(1, max(1, len(order) // 2) + 1):
        chosen = order[:count]
        if not told.stages[chosen[-1]] >= LEAST_STAGE:
            break
        mended = a.copy()
        mended[:, :, chosen] = ideal[:, None, None]
        won = total - float(row_seconds(mended, microbatches).max(axis=1).sum())
        if won >= STAGE_PART * loss:
            if not (_stand_out(told.stages, order, count) and _agree(a, told.stages, chosen)):
                break
            return LongStages(
                stages=tuple(chosen.tolist()), part=won / loss, saved_s=won / max(1, len(a))
            )
    return LongStages()


def became_long(seconds: Floats, steps: Ints, stage: int) -> int | None:
    """The step since when a stage is long that was even before; None if it was long all along.

    Layers do not move while a run goes on: what becomes long has another cause.

    Args:
        seconds: (T, D, P) of the newest steps; steps: (T,) their numbers.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        of_mean = seconds[:, :, stage] / seconds.mean(axis=2)
    ratio = median_of_rows(of_mean.T)
    n_blocks = len(ratio) // BLOCK_STEPS
    if n_blocks <= LEAST_BEFORE:
        return None
    first = len(ratio) - n_blocks * BLOCK_STEPS
    blocks = median_of_rows(ratio[first:].reshape(n_blocks, BLOCK_STEPS).T)
    excess = float(np.median(blocks[-2 * LEAST_BEFORE :])) - 1.0
    is_even = ~(blocks - 1.0 >= 0.5 * excess)
    if not is_even.any() or not excess > 0.0:
        return None
    onset = int(np.flatnonzero(is_even)[-1]) + 1
    before = blocks[:onset]
    if onset < LEAST_BEFORE or not np.median(before) - 1.0 < EVEN_PART * excess:
        return None
    return int(steps[first + min(onset, n_blocks - 1) * BLOCK_STEPS])


def who_else_it_may_be(stage: int, workers: Workers, sources: Sequence[Source]) -> str:
    """Of a stage that is not the last one, which nothing makes long by its nature: the node or the
    rank that is all of it, for then no peer tells whether that is slow. Empty if there is none.
    """
    if stage == workers.shape[1] - 1:
        return ""
    here = [source for source, at in zip(sources, workers.stage, strict=True) if at == stage]
    if len(here) == 1:
        return f"or rank {here[0].rank} is slow, which has no peers"
    nodes = {source.node for source in here}
    others = {s.node for s, at in zip(sources, workers.stage, strict=True) if at != stage}
    if len(nodes) == 1 and "" not in nodes and not nodes & others:
        return f"or {nodes.pop()} is slow, which has all of its ranks and no others"
    return ""


def _stand_out(lengths: Floats, order: npt.NDArray[np.intp], count: int) -> bool:
    if count == 1:
        return True
    shortest, next_one = lengths[order[count - 1]], lengths[order[count]]
    return bool(shortest - next_one >= GAP_PART * (shortest - 1.0))


def _agree(a: Floats, lengths: Floats, chosen: npt.NDArray[np.intp]) -> bool:
    of_worker = a.mean(axis=0)
    of_mean = of_worker / of_worker.mean(axis=1, keepdims=True)
    is_long = of_mean[:, chosen] - 1.0 >= 0.5 * (lengths[chosen] - 1.0)
    return bool((is_long.mean(axis=0) >= AGREEING).all())

"""Do ranks take turns at being slow? Then the work moves, and none of them is at fault.

Two things are looked at, in medians of blocks of 5 steps. Runs: how long other ranks were as slow,
for a while. Stays: how long a rank that jumped up stays up, from all stays that were seen to end.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from otel_straggler.detect.scores.medians import median_of
from otel_straggler.detect.verdicts.significance import SIGMA_OF_MAD
from otel_straggler.model.observation import Bools, Floats, Ints

Blocks = npt.NDArray[np.float32]
MIN_TURNS, MIN_RUN, MIN_SIGMAS = 0.01, 2, 2.5
"""Ranks take turns if this part of the others, one at least, were slow for so many blocks, by so
many standard errors of a block."""
MAX_FAULTS = 0.01
"""Others that were slow and named for it had a fault that ended, if they are so few: this part of
the ranks, or one. More take turns."""
ALIKE = 0.35
"""... and by this part of the excess in question."""
JUMP_SIGMAS, JUMP_PART = 4.5, 0.4
"""A rank jumps from block to block by so many times what it usually moves, and by this part of the
excess in question."""
MAX_JUMP = 0.7
"""... of the highest that blocks are kept with at most."""
EARLY_BLOCKS, EARLY_PART = 40, 0.1
"""A short history has not seen the rare jumps: smaller ones count, except ..."""
OBVIOUS = math.log(2.0)
"""... for a rank that takes twice as long."""
MIN_JUMPING = 0.02
"""Part of the ranks, one at least, that must have ended a stay."""
MIN_STAYS, MAX_STAYS = 5, 8
"""Who stays up for so many times as long as ranks usually do has not merely jumped; chance is e to
the minus that."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BlockHistory:
    """Of one quantity.

    Attributes:
        blocks: (T, R) log excess over the peers, clipped at ``highest``; NaN if unknown.
        normal: (R,) what each always had; 0 if unknown.
        error: standard error of a block.
        is_full: there were more blocks before.
        was_named: (R,) whether it has had a verdict of its own, now or before.
    """

    blocks: Blocks
    normal: Floats
    error: float
    highest: float
    is_full: bool
    was_named: Bools


def takes_turns(
    history: BlockHistory, row: int, effect: float, lasted: int, times: float, min_run: int
) -> bool:
    """Whether other ranks, too, were slow for a while and then not.

    They did not take turns if this rank has been slow for more than ``times`` as long as any other
    was, and for many times as long as a rank usually stays where it jumped up to. Ranks that still
    are slow do not count: they may share a fault; nor does one that was named and has recovered.
    Cost: O(T R).

    Args:
        effect: its log excess; others were slow by a good part of it.
        lasted: blocks that it has been slow for, at the minimum.
        times: infinite where any turn counts, also one within the noise.
        min_run: blocks of a turn.
    """
    is_strict = math.isinf(times)
    normal = np.maximum(history.normal, 0.0)  # a faster rank was not slow when it was as its peers
    normal[row] = 0.0
    level = ALIKE * effect if is_strict else max(ALIKE * effect, MIN_SIGMAS * history.error)
    high = history.blocks - normal >= min(level, history.highest)
    longest, own = _ended_runs(high), max(lasted, _newest_run(high[:, row]))
    longest[row] = 0
    n_ranks = int(np.isfinite(history.blocks).any(axis=0).sum())
    others = np.arange(len(longest)) != row
    recovered = others & history.was_named & (longest >= min_run)
    if not is_strict and recovered.sum() <= max(1.0, MAX_FAULTS * n_ranks):
        others &= ~recovered
    if not is_strict and _merely_jumped(history, row, effect, others):
        return True
    longest = longest[others]
    if not (longest >= min_run).sum() >= max(1.0, MIN_TURNS * n_ranks):
        return False
    return own <= times * int(longest.max())


def _merely_jumped(history: BlockHistory, row: int, effect: float, others: Bools) -> bool:
    """Whether ``others`` (R,) jump, and this one has not stayed up for much longer than they do."""
    stay = _stay(history.blocks[:, row], min(0.5 * effect, history.highest))
    if history.is_full and stay == len(history.blocks):
        return False
    is_obvious = effect >= OBVIOUS
    is_early = len(history.blocks) < EARLY_BLOCKS and not is_obvious
    tall = JUMP_PART * effect
    if not is_obvious:  # whose like would be clipped, and so is not known
        tall = min(tall, MAX_JUMP * history.highest)
    jump = EARLY_PART * effect if is_early else tall
    return stay < _long_stay(history.blocks[:, others], jump, tall)


def _stay(blocks: Blocks, level: float) -> int:
    """Blocks (T,) since it was below the level for two in a row.

    >>> _stay(np.array([9, 1, 1, 9, 9, 1, 9], np.float32), 5.0)
    4
    """
    low = ~(blocks >= level)
    ends = np.flatnonzero(low[1:] & low[:-1])
    return len(blocks) - (int(ends[-1]) + 2 if len(ends) else 0)


def _long_stay(blocks: Blocks, jump: float, tall: float) -> float:
    """Blocks that hardly any stay of these ranks (T, R) lasts.

    Stays whose end was seen, and their mean length, make a rate; the more were seen, the better it
    is known. 0 if no end was seen, or only of a few ranks, which may have been slow. A stay of one
    block is one if it is ``tall``, else noise.
    """
    moves = np.diff(blocks, axis=0)
    known = np.abs(moves[np.isfinite(moves)])
    if not len(known):
        return 0.0
    jump = max(jump, JUMP_SIGMAS * SIGMA_OF_MAD * median_of(known))
    ended = np.zeros(blocks.shape[1], np.int64)
    total = 0
    length = np.zeros(blocks.shape[1], np.int64)  # 0: not known to be up
    base = np.full(blocks.shape[1], -np.inf)
    is_tall = np.zeros(blocks.shape[1], bool)
    first = blocks[0] >= 0.5 * jump  # up from the start
    for at, move in enumerate(np.nan_to_num(moves)):
        is_up = length > 0
        # Who falls by more than it was up has not ended a stay: its peers became slow.
        ends_first = first & (move <= -jump) & (blocks[0] >= -0.5 * move)
        falls = (is_up & (blocks[at + 1] < base + 0.5 * jump)) | ends_first
        stayed = np.where(first, at + 1, length)
        counted = falls & ((stayed >= MIN_RUN) | is_tall)
        ended += counted
        total += int(stayed[counted].sum())
        rises = ~is_up & (move >= jump)
        first &= np.abs(blocks[at + 1] - blocks[0]) < 0.5 * jump
        base = np.where(rises, blocks[at], base)
        is_tall = np.where(rises, move >= tall, is_tall)
        length = np.where(rises, 1, np.where(is_up & ~falls, length + 1, 0))
    n = int(ended.sum())
    if (ended > 0).sum() < max(1.0, MIN_JUMPING * blocks.shape[1]):
        return 0.0
    return min(MAX_STAYS, MIN_STAYS + n) * (total + int(length.sum())) / n


def _ended_runs(high: Bools) -> Ints:
    """(R,) longest run of blocks (T, R), of those that have ended."""
    run = np.zeros(high.shape[1], np.int64)
    longest = run.copy()
    for one in high:
        longest = np.where(one, longest, np.maximum(longest, run))
        run = np.where(one, run + 1, 0)
    return np.asarray(longest)


def _newest_run(high: Bools) -> int:
    """Blocks (T,) up to the newest."""
    low = np.flatnonzero(~high)
    return len(high) - (int(low[-1]) + 1 if len(low) else 0)

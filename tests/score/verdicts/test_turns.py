"""Ranks that take turns, and those that merely jumped."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest

from otel_straggler.detect.verdicts.turns import BlockHistory, takes_turns
from otel_straggler.model.observation import Floats

RANKS, SLOW = 16, 5
TIMES = 4.0


def history(
    blocks: Floats, *, is_full: bool = False, highest: float = 1.0, named: Sequence[int] = ()
) -> BlockHistory:
    return BlockHistory(
        blocks=blocks.astype(np.float32).clip(-highest, highest),
        normal=np.zeros(blocks.shape[1]),
        error=0.004,
        highest=highest,
        is_full=is_full,
        was_named=np.isin(np.arange(blocks.shape[1]), named),
    )


def noise(n_blocks: int) -> Floats:
    return np.random.default_rng(7).normal(0.0, 0.004, (n_blocks, RANKS))


def stretches(n_blocks: int, height: float) -> Floats:
    """Every rank but one is up for 5 blocks of 20, each at another time."""
    blocks = noise(n_blocks)
    for rank in range(RANKS):
        is_up = (np.arange(n_blocks) + 3 * rank) % 20 < 5
        blocks[is_up, rank] += height
    blocks[:, SLOW] = 0.0
    return blocks


def answer(blocks: Floats, effect: float, times: float = TIMES, named: Sequence[int] = ()) -> bool:
    return takes_turns(history(blocks, named=named), SLOW, effect, 0, times, 2)


def test_among_quiet_ranks_nobody_takes_turns() -> None:
    blocks = noise(40)
    blocks[30:, SLOW] += 0.1
    assert not answer(blocks, 0.1)


@pytest.mark.parametrize(("stay", "is_turn"), [(5, True), (25, True), (60, False)])
def test_among_ranks_that_jump_only_a_long_stay_counts(stay: int, *, is_turn: bool) -> None:
    """Stays of 5 blocks: 40 and more are no chance."""
    blocks = stretches(80, 0.1)
    blocks[-stay:, SLOW] += 0.15
    assert answer(blocks, 0.15) is is_turn


def test_small_jumps_of_others_do_not_excuse_a_much_slower_rank() -> None:
    """Except in the first 200 steps, in which larger ones may not have been seen."""
    blocks = stretches(60, 0.03)
    blocks[-6:, SLOW] += 0.3
    assert not answer(blocks, 0.3)
    assert answer(blocks[-30:], 0.25)
    blocks[-6:, SLOW] += 0.6
    assert not answer(blocks[-30:], 0.9)


def test_ranks_that_are_slow_together_are_no_turns() -> None:
    """They may share a fault."""
    blocks = noise(40)
    blocks[25:, 3:9] += 0.1
    assert not answer(blocks, 0.1)


def test_one_other_rank_that_was_slow_excuses_only_a_shorter_time() -> None:
    blocks = noise(80)
    blocks[10:15, 2] += 0.1
    blocks[40:, SLOW] += 0.1
    assert answer(blocks[:50], 0.1)
    assert not answer(blocks, 0.1)


def test_a_rank_that_was_named_and_has_recovered_took_no_turn() -> None:
    """Its fault has ended; a second one is not late. Of sixteen ranks only one."""
    blocks = noise(60)
    blocks[15:27, 2] += 0.3
    blocks[-4:, SLOW] += 0.3
    assert answer(blocks, 0.3)
    assert not answer(blocks, 0.3, named=[2])
    blocks[30:42, 9] += 0.3
    assert answer(blocks, 0.3, named=[2])
    assert answer(blocks, 0.3, named=[2, 9])


def test_among_ranks_that_jump_one_that_was_named_changes_nothing() -> None:
    blocks = stretches(60, 0.1)
    blocks[-4:, SLOW] += 0.15
    assert answer(blocks, 0.15, named=[2])


def test_in_data_loading_any_turn_counts() -> None:
    blocks = noise(80)
    blocks[10:12, 2] += 0.1
    blocks[20:, SLOW] += 0.1
    assert answer(blocks, 0.1, times=math.inf)
    assert answer(blocks, 0.1, times=math.inf, named=[2])


@pytest.mark.parametrize(("height", "is_turn"), [(0.1, True), (0.025, False)])
def test_single_blocks_count_as_stays_if_they_are_as_tall(height: float, *, is_turn: bool) -> None:
    """Bursts of a few steps; smaller ones are noise."""
    blocks = noise(40)
    blocks[8:32:8, [1, 6, 11]] += height
    blocks[-4:, SLOW] += 0.15
    assert answer(blocks, 0.15) is is_turn


@pytest.mark.parametrize(("effect", "is_turn"), [(0.5, True), (1.5, False)])
def test_clipped_stays_excuse_a_rank_of_less_than_twice_the_time(
    effect: float, *, is_turn: bool
) -> None:
    """Whether others were as slow cannot be seen above the clip; a much slower rank is named."""
    blocks = stretches(60, 0.5)
    blocks[-24:, SLOW] += effect
    clipped = history(blocks, highest=0.18)
    assert takes_turns(clipped, SLOW, effect, 24, TIMES, 2) is is_turn

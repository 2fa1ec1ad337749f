"""A rank that stalls now and then."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from otel_straggler.detect.verdicts.stalls import Spikes, StallDetector, critical_count

SEEDS = st.integers(0, 2**32 - 1)
RANKS, COLUMNS = 8, 2
STEP_S = np.full(RANKS, 1.0)


def stalls(steps: int = 200, every: int = 20, size: float = 1.0, rank: int = 3) -> np.ndarray:
    """(T, R, C) excesses: one rank takes twice as long in its second quantity now and then."""
    excess = np.zeros((steps, RANKS, COLUMNS))
    excess[::every, rank, 1] = size
    return excess


def result(excess: np.ndarray, columns_s: float = 0.5, usual: float = 0.0) -> Spikes:
    memory, last = StallDetector((RANKS, COLUMNS)), None
    prices = np.full((RANKS, COLUMNS), columns_s)
    for at in range(0, len(excess), 5):
        block = excess[at : at + 5]
        last = memory.observe(block, np.full((RANKS, COLUMNS), usual), prices, STEP_S)
    assert last is not None
    return last


def test_one_stall_in_twenty_steps_is_too_often() -> None:
    """For the rank and the quantity that has them, at the price they have."""
    spikes = result(stalls())
    assert np.argwhere(spikes.beyond).tolist() == [[3, 1]]
    assert spikes.lost_s[3, 1] == pytest.approx(math.expm1(1.0) * 0.5 / 20, rel=0.15)
    assert spikes.z[3, 1] > 3.0


@pytest.mark.parametrize("every", [400, 150])
def test_rare_stalls_are_chance(every: int) -> None:
    """Everybody has one now and then."""
    assert not result(stalls(every=every)).beyond.any()


def test_stalls_that_all_have_are_nobodys() -> None:
    """Compared with the other ranks, not with none."""
    excess = np.zeros((400, RANKS, COLUMNS))
    for rank in range(RANKS):
        excess[rank::20, rank, 1] = 1.0
    assert not result(excess).beyond.any()


def test_a_lasting_rise_is_one_spike_and_not_one_each_step() -> None:
    """Slowness has methods of its own."""
    excess = np.zeros((200, RANKS, COLUMNS))
    excess[50:, 3, 1] = 1.0
    assert not result(excess).beyond.any()
    assert not result(stalls(every=1)).beyond.any()


def test_what_is_less_than_a_tenth_of_a_step_is_no_spike() -> None:
    """Twice the time of a section of no importance."""
    assert not result(stalls(), columns_s=0.05).beyond.any()
    assert result(stalls(), columns_s=0.12).beyond.any()


def test_old_stalls_fade() -> None:
    """A loader that was mended is forgiven."""
    excess = np.concatenate([stalls(200), np.zeros((1000, RANKS, COLUMNS))])
    assert not result(excess).beyond.any()


@settings(max_examples=25)
@given(SEEDS, st.floats(1e-3, 1e3))
def test_stalls_do_not_depend_on_the_order_of_ranks_nor_on_the_unit(
    seed: int, factor: float
) -> None:
    """Permuted alike; seconds lost in the new unit."""
    rng = np.random.default_rng(seed)
    excess = np.where(rng.random((100, RANKS, COLUMNS)) < 0.05, 1.0, 0.0)
    order = rng.permutation(RANKS)
    here, there = result(excess), result(excess[:, order])
    np.testing.assert_array_equal(there.beyond, here.beyond[order])
    np.testing.assert_allclose(there.lost_s, here.lost_s[order])
    memory = StallDetector((RANKS, COLUMNS))
    usual, prices = np.zeros((RANKS, COLUMNS)), np.full((RANKS, COLUMNS), 0.5 * factor)
    for at in range(0, len(excess), 5):
        scaled = memory.observe(excess[at : at + 5], usual, prices, factor * STEP_S)
    np.testing.assert_array_equal(scaled.beyond, here.beyond)
    np.testing.assert_allclose(scaled.lost_s, factor * here.lost_s)


@pytest.mark.parametrize("value", [0.0, np.nan, np.inf])
def test_times_that_say_nothing_make_no_spikes(value: float) -> None:
    """Unknown excesses, and quantities without a price."""
    assert not result(np.full((50, RANKS, COLUMNS), np.nan)).beyond.any()
    assert not result(stalls(), columns_s=value).beyond.any()
    assert not result(stalls(), usual=2.0).beyond.any()


@settings(max_examples=50)
@given(st.floats(1e-4, 50.0), st.floats(1e-7, 0.1))
def test_the_critical_count_is_the_first_that_is_rare(mean: float, chance: float) -> None:
    """By the Poisson distribution, summed another way."""
    count = critical_count(mean, chance)

    def reaches(n: int) -> float:
        return sum(math.exp(-mean + k * math.log(mean) - math.lgamma(k + 1)) for k in range(n, 400))

    assert reaches(count) <= chance * (1 + 1e-6)
    assert count == 1 or reaches(count - 1) > chance * (1 - 1e-6)

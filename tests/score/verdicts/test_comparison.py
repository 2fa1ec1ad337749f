"""Slower than its peers, by more than chance and by enough to matter."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from otel_straggler.detect.scores.medians import Groups
from otel_straggler.detect.verdicts.significance import centred, min_z, spread_of

SEEDS = st.integers(0, 2**32 - 1)


def logs(seed: int, rows: int, steps: int = 3) -> np.ndarray:
    return np.random.default_rng(seed).normal(0.0, 0.02, (steps, rows))


@settings(max_examples=40)
@given(SEEDS, st.integers(3, 9), st.floats(1e-9, 1e9))
def test_an_excess_does_not_depend_on_the_unit_nor_on_the_order(
    seed: int, rows: int, factor: float
) -> None:
    """Seconds or milliseconds; ranks in any order."""
    values, groups = logs(seed, rows), Groups.of([0] * rows)
    usual = centred(values, groups, 3)
    np.testing.assert_allclose(centred(values + math.log(factor), groups, 3), usual, atol=1e-9)
    order = np.random.default_rng(seed).permutation(rows)
    np.testing.assert_array_equal(centred(values[:, order], groups, 3), usual[:, order])


@settings(max_examples=40)
@given(SEEDS, st.integers(3, 9), st.floats(0.0, 3.0))
def test_who_gets_slower_gets_no_smaller_excess(seed: int, rows: int, more: float) -> None:
    """And nobody else gets a larger one."""
    values, groups = logs(seed, rows), Groups.of([0] * rows)
    worse = values.copy()
    worse[:, 0] += more
    before, after = centred(values, groups, 3), centred(worse, groups, 3)
    assert (after[:, 0] >= before[:, 0] - 1e-12).all()
    assert (after[:, 1:] <= before[:, 1:] + 1e-12).all()


def test_groups_that_are_too_small_are_not_compared() -> None:
    """Those present count, not those that could be."""
    values = np.array([[0.0, 1.0, np.nan, 0.0, 0.0, 1.0]])
    groups = Groups.of(["a", "a", "a", "b", "b", "b"])
    result = centred(values, groups, 3)
    assert np.isnan(result[0, :3]).all()
    assert result[0, 3:].tolist() == [0.0, 0.0, 1.0]


@settings(max_examples=40)
@given(SEEDS, st.integers(1, 12))
def test_peers_are_never_taken_to_be_more_alike_than_half_a_percent(seed: int, rows: int) -> None:
    """Nor than the noise of their own times."""
    effect = logs(seed, 2, rows) * np.array([0.0, 1.0])
    result = spread_of(effect, np.array([0.0, 0.03]))
    assert result[0] == pytest.approx(0.005)
    assert result[1] >= math.hypot(0.03, 0.005) * (1 - 1e-12)


def test_a_spread_that_is_measured_counts_the_more_the_more_rows_there_are() -> None:
    """The spread of three ranks is nearly worthless; that of a thousand is the truth."""
    rng = np.random.default_rng(0)
    few, many = (spread_of(rng.normal(0, 0.1, (n, 1)), np.zeros(1))[0] for n in (3, 3000))
    assert few < 0.08 < many == pytest.approx(0.1, rel=0.1)


def test_one_slow_rank_hardly_widens_the_spread() -> None:
    """Or it would hide itself."""
    healthy = np.random.default_rng(1).normal(0, 0.02, (31, 1))
    with_slow = np.vstack([healthy, [[5.0]]])
    error = np.array([0.01])
    assert spread_of(with_slow, error) < 1.2 * spread_of(healthy, error)


def test_the_limit_of_chance_grows_with_those_who_are_compared() -> None:
    """Of 100,000 healthy ranks one is always far out."""
    limits = [min_z(rows, 4, 3.5) for rows in (1, 8, 1000, 100_000)]
    assert limits == sorted(limits)
    assert limits[0] == 3.5
    assert min_z(0, 0, 3.5) == 3.5


def test_nobody_and_nothing_known_have_a_spread_too() -> None:
    """Of noise alone."""
    nothing = spread_of(np.full((4, 2), np.nan), np.zeros(2))
    nobody = spread_of(np.zeros((0, 2)), np.zeros(2))
    np.testing.assert_allclose([nothing, nobody], 0.005)

"""Medians of few numbers, and of many groups at once, are NumPy's, only faster."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from otel_straggler.detect.scores import medians
from otel_straggler.detect.scores.medians import (
    SMALL,
    Groups,
    group_times,
    median_of,
    median_of_peers,
    median_of_rows,
    minimum_of_peers,
    nan_median,
    number_densely,
    placed_times,
    sum_groups,
)

SEEDS = st.integers(0, 2**32 - 1)


@settings(max_examples=60)
@given(SEEDS, st.integers(1, 30), st.sampled_from([np.float32, np.float64]))
def test_a_median_of_numbers_is_numpys(seed: int, n: int, kind: type) -> None:
    """To the last bit, and what was given stays as it was."""
    values = np.random.default_rng(seed).normal(size=n).astype(kind)
    before = values.copy()
    assert median_of(values) == float(np.median(values))
    np.testing.assert_array_equal(values, before)


def test_a_median_of_nothing_or_of_something_unknown_is_unknown() -> None:
    """NaN, and no warning."""
    assert np.isnan(median_of(np.array([])))
    assert np.isnan(median_of(np.array([1.0, np.nan, 3.0])))


@settings(max_examples=60)
@given(SEEDS, st.integers(1, 6), st.integers(1, 6), st.sampled_from([-1, 0, 1, 2]))
def test_a_median_of_what_is_known_is_numpys(seed: int, rows: int, width: int, axis: int) -> None:
    """Along any axis, with holes."""
    rng = np.random.default_rng(seed)
    values = rng.normal(size=(rows, width, 3))
    values[rng.random(values.shape) < 0.4] = np.nan
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # NumPy warns of lines of which nothing is known
        expected = np.nanmedian(values, axis=axis)
    np.testing.assert_allclose(nan_median(values, axis), expected, rtol=1e-15)


SIZES = st.lists(st.integers(0, 5) | st.integers(30, 60), min_size=1, max_size=12)


@settings(max_examples=60)
@given(SEEDS, SIZES)
def test_groups_of_any_sizes_have_numpys_median_sum_and_count(seed: int, sizes: list[int]) -> None:
    """Few long groups among many short ones too, which are sorted another way."""
    rng = np.random.default_rng(seed)
    group = rng.permutation(np.repeat(np.arange(len(sizes)), sizes))
    values = rng.normal(size=len(group))
    result = group_times(group, values, len(sizes))
    assert result.count.tolist() == sizes
    for code, size in enumerate(sizes):
        own = values[group == code]
        expected = np.median(own) if size else np.nan
        np.testing.assert_allclose(result.median_s[code], expected, rtol=1e-14)
        np.testing.assert_allclose(result.total_s[code], own.sum(), atol=1e-12)


def test_two_large_values_do_not_overflow_in_the_middle() -> None:
    """Their mean is a number."""
    huge = np.array([1.6e308, 1.7e308])
    result = group_times(np.zeros(2, int), huge, 1).median_s
    np.testing.assert_allclose(result, [1.65e308])


@settings(max_examples=60)
@given(SEEDS, st.integers(1, 6), st.integers(1, 7), st.sampled_from([0.0, 0.4]))
def test_values_with_a_place_of_their_own_have_the_median_of_their_group(
    seed: int, n_groups: int, width: int, holes: float
) -> None:
    """With empty places and without; two values in one place are not guessed at."""
    rng = np.random.default_rng(seed)
    index = rng.permutation(np.flatnonzero(rng.random(n_groups * width) >= holes))
    values = rng.normal(size=len(index))
    expected = group_times(index // width, values, n_groups)
    result = placed_times(lambda part: index[part], values, n_groups, width)
    assert result is not None
    np.testing.assert_allclose(result[0], expected.median_s, rtol=1e-14)
    np.testing.assert_array_equal(result[1], expected.count)
    if len(index):
        twice = np.append(index, index[0])
        again = np.append(values, 0.5)
        assert placed_times(lambda part: twice[part], again, n_groups, width) is None


@settings(max_examples=60)
@given(st.lists(st.integers(-5, 5) | st.integers(-(10**9), 10**9), max_size=20))
def test_numbers_and_sums_of_distinct_values_are_numpys(values: list[int]) -> None:
    """Whether they lie close together or far apart."""
    given_values = np.array(values, np.int64)
    distinct, number = number_densely(given_values)
    expected, inverse = np.unique(given_values, return_inverse=True)
    np.testing.assert_array_equal(distinct, expected)
    np.testing.assert_array_equal(number, inverse)
    for n_groups in (len(distinct) or 1, 1_000):
        filled, sums = sum_groups(number, np.arange(1.0, len(values) + 1), n_groups)
        assert filled.tolist() == list(range(len(distinct)))
        np.testing.assert_allclose(sums, np.bincount(number, np.arange(1.0, len(values) + 1)))


@settings(max_examples=60)
@given(SEEDS, st.integers(1, 9), st.integers(1, 3), st.integers(1, 3))
def test_peers_are_those_of_the_own_group_that_have_a_value(
    seed: int, rows: int, columns: int, n_groups: int
) -> None:
    """NaN where none has one."""
    rng = np.random.default_rng(seed)
    peers = rng.integers(0, n_groups, rows)
    values = np.where(rng.random((rows, columns)) < 0.4, np.nan, rng.random((rows, columns)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        middle = np.array([np.nanmedian(values[peers == code], axis=0) for code in peers])
        minimum = np.array([np.nanmin(values[peers == code], axis=0) for code in peers])
    np.testing.assert_allclose(median_of_peers(values, peers), middle, rtol=1e-14)
    np.testing.assert_array_equal(minimum_of_peers(values, peers), minimum)


def test_no_ranks_have_no_peers() -> None:
    """An empty table gives an empty one."""
    nobody, peers = np.empty((0, 3)), np.empty(0, np.int64)
    assert median_of_peers(nobody, peers).shape == minimum_of_peers(nobody, peers).shape == (0, 3)
    assert nan_median(np.empty((2, 0)), axis=1).tolist() == pytest.approx([np.nan] * 2, nan_ok=True)


@pytest.mark.parametrize("n_rows", [0, 1, 3, 4, 5, 8, 9])
def test_slices_are_all_rows_once_in_order(n_rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many go into one."""
    monkeypatch.setattr(medians, "ROWS_AT_ONCE", 4)
    rows = [row for part in medians.slices(n_rows) for row in range(n_rows)[part]]
    assert rows == list(range(n_rows))


@given(st.integers(0, 2**16), st.integers(2, 12), st.integers(1, 6), st.sampled_from([0.0, 0.3]))
def test_few_numbers_have_the_medians_that_they_have_among_many(
    seed: int, rows: int, width: int, missing: float
) -> None:
    """Small tables are sorted, large ones compared row by row: to the last bit the same."""
    rng = np.random.default_rng(seed)
    few = rng.lognormal(size=(rows, width))
    few[rng.random(few.shape) < missing] = np.nan
    many = np.tile(few, SMALL)
    np.testing.assert_array_equal(median_of_rows(few), median_of_rows(many)[:width])
    groups = Groups.of([0] * rows)
    np.testing.assert_array_equal(groups.medians(few.T), groups.medians(many.T)[:width])

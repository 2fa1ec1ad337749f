"""Medians over groups of ranks."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from otel_straggler.detect.scores.medians import Groups, low_median_of_rows, median_of_rows

SEEDS = st.integers(0, 2**32 - 1)


def drawn(seed: int, *shape: int, holes: float = 0.3) -> np.ndarray:
    rng = np.random.default_rng(seed)
    values = rng.normal(size=shape)
    values[rng.random(shape) < holes] = np.nan
    return values


def plain_median(values: np.ndarray) -> float:
    known = values[~np.isnan(values)]
    return float(np.median(known)) if len(known) else float("nan")


@settings(max_examples=60)
@given(SEEDS, st.integers(1, 9), st.integers(1, 4))
def test_a_median_of_a_group_is_that_of_its_known_values(seed: int, rows: int, groups: int) -> None:
    """Whatever is missing, and however unequal the groups are."""
    keys = np.random.default_rng(seed).integers(0, groups, rows).tolist()
    values, result = drawn(seed, 3, rows), Groups.of(keys)
    expected = [
        [plain_median(line[[k == key for k in keys]]) for key in result.keys] for line in values
    ]
    np.testing.assert_array_equal(result.medians(values), expected)
    lowest = [[min(filter(np.isfinite, line[[k == key for k in keys]]), default=np.nan)
               for key in result.keys] for line in values]  # fmt: skip
    np.testing.assert_array_equal(result.minima(values), lowest)


@settings(max_examples=60)
@given(SEEDS, st.integers(0, 10), st.sampled_from([0.0, 0.3, 1.0]))
def test_a_median_of_rows_is_that_of_each_column(seed: int, rows: int, holes: float) -> None:
    """The fast way for up to 8 rows gives what sorting gives, and changes nothing."""
    values = drawn(seed, rows, 4, 3, holes=holes)
    before = values.copy()
    for one in (values, values[:, :1, :1].copy()):
        median_of_rows(one)
    np.testing.assert_array_equal(values, before)
    single = np.random.default_rng(seed).normal(size=(12, 1))
    kept = single.copy()
    assert median_of_rows(single)[0] == np.median(kept)
    np.testing.assert_array_equal(single, kept)
    expected = [[plain_median(values[:, i, j]) for j in range(3)] for i in range(4)]
    np.testing.assert_allclose(median_of_rows(values), expected, rtol=1e-15)
    turned = np.asfortranarray(values)
    np.testing.assert_array_equal(median_of_rows(turned), median_of_rows(values))


@settings(max_examples=40)
@given(SEEDS, st.integers(1, 8))
def test_medians_do_not_depend_on_the_order_of_ranks(seed: int, rows: int) -> None:
    """Nor do they change what they are given."""
    keys, values = [row % 3 for row in range(rows)], drawn(seed, 2, rows)
    before = values.copy()
    order = np.random.default_rng(seed).permutation(rows)
    there = Groups.of([keys[row] for row in order])
    here = Groups.of(keys)
    result = dict(zip(there.keys, there.medians(values[:, order]).T.tolist(), strict=True))
    expected = dict(zip(here.keys, here.medians(values).T.tolist(), strict=True))
    assert {k: np.nan_to_num(v, nan=-9).tolist() for k, v in result.items()} == {
        k: np.nan_to_num(v, nan=-9).tolist() for k, v in expected.items()
    }
    np.testing.assert_array_equal(values, before)


def test_groups_know_their_members_in_order() -> None:
    """What fills up a narrow group is one past the last row."""
    groups = Groups.of(["a", "b", "a", "a"])
    assert (groups.code.tolist(), groups.size.tolist()) == ([0, 1, 0, 0], [3, 1])
    assert groups.members.tolist() == [[0, 2, 3], [1, 4, 4]]
    assert len(groups) == 2


@pytest.mark.parametrize("rows", [1, 4])
def test_rows_that_are_alone_are_groups_of_one(rows: int) -> None:
    """Each is its own median."""
    values = drawn(0, 2, rows)
    np.testing.assert_array_equal(Groups.of(list(range(rows))).medians(values), values)


def test_nobody_is_a_group_too() -> None:
    """Before the first rank has come."""
    assert Groups.of([]).medians(np.zeros((3, 0))).shape == (3, 0)


def test_two_pauses_and_a_missing_report_lift_no_low_median() -> None:
    """Of five steps they would lift the plain one by half of a pause."""
    block = np.array([[0.0], [0.0], [np.nan], [0.8], [0.8]])
    assert median_of_rows(block).tolist() == [0.4]
    assert low_median_of_rows(block).tolist() == [0.0]


@given(SEEDS, st.integers(1, 9))
def test_a_low_median_is_the_median_but_where_holes_leave_an_even_number(
    seed: int, rows: int
) -> None:
    """And then the lower of the two in the middle."""
    values = drawn(seed, rows, 2, 2).transpose(0, 2, 1)
    low, plain = low_median_of_rows(values), median_of_rows(values)
    for column, cell in enumerate(low.reshape(-1).tolist()):
        cells = values.reshape(rows, -1)[:, column]
        known = np.sort(cells[~np.isnan(cells)])
        if 0 < len(known) < rows and len(known) % 2 == 0:
            assert cell == known[len(known) // 2 - 1]
        else:
            assert np.array_equal(cell, plain.reshape(-1)[column], equal_nan=True)

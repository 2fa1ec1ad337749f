"""Medians of many groups at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from otel_straggler.model.observation import Floats, Ints


@dataclass(frozen=True, slots=True)
class GroupedTimes:
    """Per group: true median, sum, and number of values; NaN, 0, and 0 for an empty group."""

    median_s: Floats
    total_s: Floats
    count: Ints

    def reshape(self, *shape: int) -> GroupedTimes:
        return GroupedTimes(
            self.median_s.reshape(shape), self.total_s.reshape(shape), self.count.reshape(shape)
        )


def group_times(group: Ints, values_s: Floats, n_groups: int) -> GroupedTimes:
    """Median (the mean of the middle two), sum, and count of finite values in each of ``n_groups``.

    >>> group_times(np.array([0, 0, 2]), np.array([1.0, 3.0, 5.0]), 3).median_s.tolist()
    [2.0, nan, 5.0]
    """
    count = np.bincount(group, minlength=n_groups)
    total: Floats = np.bincount(group, values_s, n_groups).astype(np.float64)
    median = np.full(n_groups, np.nan)
    filled = np.flatnonzero(count)
    if len(filled):
        widest = int(count.max())
        is_even_enough = widest * len(filled) <= MAX_PADDING * len(values_s)
        find = _medians_padded if is_even_enough else _medians_sorted
        median[filled] = find(group, values_s, count[filled])
    return GroupedTimes(median, total, count)


def placed_times(
    index: Callable[[slice], Ints], values_s: Floats, n_groups: int, width: int
) -> tuple[Floats, Ints] | None:
    """Median and count of every group, if each value has its own cell; None if two share one.

    ``index`` gives the cells of a slice of values: group * width + index in the group. Cost: O(n +
    n_groups * width * log width), much less than sorting all.
    """
    flat = np.full(n_groups * width, np.inf)
    for part in slices(len(values_s)):
        flat[index(part)] = values_s[part]
    table = flat.reshape(n_groups, width)
    count = np.count_nonzero(table < np.inf, axis=1)
    if int(count.sum()) != len(values_s):
        return None
    low, high = (width - 1) // 2, width // 2
    if len(values_s) == len(flat):
        table.partition((low, high), axis=1)
        return _middle(table[:, low], table[:, high]), count
    table.sort(axis=1)
    lines = np.arange(n_groups)
    middle = _middle(table[lines, (count - 1) // 2], table[lines, count // 2])
    return np.where(count > 0, middle, np.nan), count


def row_times(ordered_s: Floats) -> GroupedTimes:
    """:func:`group_times` where every group is an ascending row of a (n_groups, n) table, n > 0.

    >>> row_times(np.array([[1.0, 3.0], [5.0, 5.0]])).median_s.tolist()
    [2.0, 5.0]
    """
    n_groups, width = ordered_s.shape
    median = _middle(ordered_s[:, (width - 1) // 2], ordered_s[:, width // 2])
    total: Floats = ordered_s.sum(axis=1)
    return GroupedTimes(median, total, np.full(n_groups, width, np.int64))


MAX_PADDING = 4
"""Groups of similar size are sorted as rows of a table of up to so many times the values, several
times faster than sorting everything at once."""


def _medians_padded(group: Ints, values_s: Floats, count: Ints) -> Floats:
    order = np.argsort(group, kind="stable")  # rows arrive nearly grouped: cheap
    line = np.repeat(np.arange(len(count)), count)
    index = np.arange(len(order)) - np.repeat(np.cumsum(count) - count, count)
    table = np.full((len(count), int(count.max())), np.inf)
    table[line, index] = values_s[order]
    table.sort(axis=1)
    lines = np.arange(len(count))
    return _middle(table[lines, (count - 1) // 2], table[lines, count // 2])


def _medians_sorted(group: Ints, values_s: Floats, count: Ints) -> Floats:
    ordered = values_s[np.lexsort((values_s, group))]
    starts = np.cumsum(count) - count
    return _middle(ordered[starts + (count - 1) // 2], ordered[starts + count // 2])


def _middle(low: Floats, high: Floats) -> Floats:
    """Mean of the two middle values; halved first, so that two large times do not overflow."""
    return np.where(low == high, low, 0.5 * low + 0.5 * high)


ROWS_AT_ONCE = 1 << 19
"""Temporary arrays of this many rows are reused by the next slice; larger ones come from the system
every time, which takes longer than the work on them."""


def slices(n_rows: int) -> Iterator[slice]:
    for first in range(0, n_rows, ROWS_AT_ONCE):
        yield slice(first, first + ROWS_AT_ONCE)


def sum_groups(group: Ints, values_s: Floats, n_groups: int) -> tuple[Ints, Floats]:
    """Groups that have values, in order, and the sum of each. Cost: O(n + n_groups) if there are
    not many more groups than values, else O(n log n)."""
    if n_groups <= MAX_PADDING * len(values_s):
        filled = np.flatnonzero(np.bincount(group, minlength=n_groups))
        sums: Floats = np.bincount(group, values_s, n_groups).astype(np.float64)
        return filled, sums[filled]
    filled, position = np.unique(group, return_inverse=True)
    return filled, np.bincount(position, values_s, len(filled)).astype(np.float64)


def number_densely(values: Ints) -> tuple[Ints, Ints]:
    """``np.unique(values, return_inverse=True)``, without sorting where the range is small."""
    if len(values) == 0:
        return values, values
    low = int(values.min())
    span = int(values.max()) - low + 1
    if span > MAX_PADDING * len(values):
        return np.unique(values, return_inverse=True)
    seen = np.bincount(values - low, minlength=span) > 0
    number = np.cumsum(seen) - 1
    return np.flatnonzero(seen) + low, number[values - low]


def median_of_peers(values: Floats, peers: Ints) -> Floats:
    """(R, S) median of each column among the rows of the same peer group, without NaN."""
    rows, columns = np.nonzero(~np.isnan(values))
    n_columns = values.shape[1]
    n_groups = (int(peers.max()) + 1 if len(peers) else 0) * n_columns
    grouped = group_times(peers[rows] * n_columns + columns, values[rows, columns], n_groups)
    cell = peers[:, None] * n_columns + np.arange(n_columns)[None, :]
    result: Floats = grouped.median_s[cell]
    return result


def minimum_of_peers(values: Floats, peers: Ints) -> Floats:
    """(R, S) smallest value of each column among the peer group, without NaN."""
    smallest = np.full((int(peers.max()) + 1 if len(peers) else 0, values.shape[1]), np.inf)
    np.minimum.at(smallest, peers, np.where(np.isnan(values), np.inf, values))
    smallest[np.isinf(smallest)] = np.nan
    return smallest[peers]


def median_of(values: npt.NDArray[np.floating[Any]]) -> float:
    """Median; NaN if any value is, or there are none. Several times faster than ``np.median`` on a
    few numbers.

    >>> median_of(np.array([3.0, 1.0, 2.0, 9.0]))
    2.5
    """
    if len(values) == 0:
        return float("nan")
    ordered = np.sort(values, axis=None)  # NaN stand last
    low, high = ordered[(len(ordered) - 1) // 2], ordered[len(ordered) // 2]
    return float((low + high) / 2) if ordered[-1] == ordered[-1] else float("nan")


def nan_median(values: Floats, axis: int) -> Floats:
    """Median of finite values along ``axis``; NaN, without a warning, where there are none. Several
    times faster than ``np.nanmedian`` on small tables.

    >>> nan_median(np.array([[1.0, np.nan], [3.0, np.nan]]), axis=0).tolist()
    [2.0, nan]
    """
    known = np.where(np.isfinite(values), values, np.nan)
    if axis not in (-1, known.ndim - 1):
        known = np.moveaxis(known, axis, -1)
    width = known.shape[-1]
    if width == 0:
        return np.full(known.shape[:-1], np.nan)
    lines = np.sort(known, axis=-1).reshape(-1, width)  # NaN stand last
    count = (lines == lines).sum(axis=1)
    number = np.arange(len(lines))
    low, high = lines[number, np.maximum(count - 1, 0) // 2], lines[number, count // 2 % width]
    return np.where(count > 0, _middle(low, high), np.nan).reshape(known.shape[:-1])

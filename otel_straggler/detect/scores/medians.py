"""Medians of many groups at once."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Sequence
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
    n_groups * width * log width), much less than sorting all."""
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
    return median_of_sorted(np.sort(known, axis=-1))


def median_of_sorted(ordered: Floats) -> Floats:
    """Medians over the last axis; NaNs come last."""
    width = ordered.shape[-1]
    if width == 0:
        return np.full(ordered.shape[:-1], np.nan)
    if not np.isnan(ordered[..., -1]).any():
        low, high = ordered[..., (width - 1) // 2], ordered[..., width // 2]
        return np.asarray(0.5 * low + 0.5 * high)
    lines = ordered.reshape(-1, width)
    count = (lines == lines).sum(axis=1)
    number = np.arange(len(lines))
    low, high = lines[number, np.maximum(count - 1, 0) // 2], lines[number, count // 2 % width]
    middle = np.where(count > 0, 0.5 * low + 0.5 * high, np.nan)
    return middle.reshape(ordered.shape[:-1])


@dataclass(frozen=True, slots=True, eq=False)
class Groups:
    """Partition of rows.

    Attributes:
        code: (R,) group of each row.
        members: (G, widest) rows of each group, padded with R.
        size: (G,) rows of each group.
        keys: (G,) what the rows have in common.
    """

    code: Ints
    members: Ints
    size: Ints
    keys: tuple[Hashable, ...]

    @classmethod
    def of(cls, keys: Sequence[Hashable]) -> Groups:
        """Group rows with equal keys, in order of first appearance."""
        number: dict[Hashable, int] = {}
        code = np.array([number.setdefault(key, len(number)) for key in keys], np.int64)
        return cls.of_codes(code, tuple(number))

    @classmethod
    def of_codes(cls, code: Ints, keys: tuple[Hashable, ...]) -> Groups:
        size = np.bincount(code, minlength=len(keys))
        members = np.full((len(keys), int(size.max(initial=0))), len(code), np.int64)
        order = np.argsort(code, kind="stable")
        index = np.arange(len(code)) - np.repeat(np.cumsum(size) - size, size)
        members[code[order], index] = order
        return cls(code, members, size, keys)

    def __len__(self) -> int:
        return len(self.keys)

    def medians(self, values: Floats) -> Floats:
        """(..., R) to (..., G): the median of each group without NaN. Cost: O(n log widest)."""
        is_small = values.size <= SMALL
        if not is_small and 2 <= self.members.shape[1] <= MAX_COMPARED_ROWS and self._is_even:
            members = np.empty((self.members.shape[1], *values.shape[:-1], len(self)), values.dtype)
            for rows, out in zip(self.members.T, members, strict=True):
                np.take(values, rows, axis=-1, out=out, mode="clip")
            return median_of_rows(members)
        gathered = self.gather(values)
        gathered.sort(axis=-1)
        return median_of_sorted(gathered)

    @property
    def _is_even(self) -> bool:
        return self.members.size == len(self.code) and len(self.code) > 0

    def minima(self, values: Floats) -> Floats:
        """(..., R) to (..., G); NaN where there is none."""
        lowest = np.fmin.reduce(self.gather(values), axis=-1)
        return np.asarray(lowest)

    def gather(self, values: Floats) -> Floats:
        """(..., R) to (..., G, widest), NaN where a group is narrower."""
        if self._is_even:
            return np.asarray(values[..., self.members])
        padded = np.concatenate([values, np.full((*values.shape[:-1], 1), np.nan)], axis=-1)
        return np.asarray(padded[..., self.members])


def low_median_of_rows(values: Floats) -> Floats:
    """:func:`median_of_rows`, but the lower middle value where NaN leave an even number: of five
    steps with one missing, two pauses must not lift the median.

    >>> low_median_of_rows(np.array([[0.0, 0.0], [1.0, 1.0], [9.0, 9.0], [np.nan, 9.0]])).tolist()
    [1.0, 5.0]
    """
    middle = np.ascontiguousarray(median_of_rows(values))
    known = values == values
    if known.all():
        return middle
    count = known.sum(axis=0)
    at = np.flatnonzero((count < len(values)) & (count % 2 == 0) & (count > 0))
    if len(at):
        ordered = np.sort(values.reshape(len(values), -1)[:, at], axis=0)
        lower = np.take_along_axis(ordered, count.reshape(-1)[at][None] // 2 - 1, 0)
        middle.reshape(-1)[at] = lower[0]
    return middle


def median_of_rows(values: Floats) -> Floats:
    """(n, ...) to (...): the median over the first axis without NaN; NaN where there is none. Up to
    8 long rows without NaN are compared as whole rows, several times faster.

    >>> median_of_rows(np.array([[1.0, np.nan], [3.0, np.nan], [np.nan, 5.0]])).tolist()
    [2.0, 5.0]
    """
    if len(values) == 1:
        return np.array(values[0])
    if 0 < values.size <= SMALL:
        return _median_of_few_rows(values)
    if not 2 <= len(values) <= MAX_COMPARED_ROWS or values.ndim < 2:
        columns = values.reshape(len(values), math.prod(values.shape[1:]))
        lines = np.sort(columns.T, axis=1)
        return median_of_sorted(lines).reshape(values.shape[1:])
    middle = _compared_in_parts(values)
    holes = np.isnan(middle)
    if not holes.any():
        return middle
    flat, columns = middle.reshape(-1), values.reshape(len(values), -1)
    at = (holes & (values == values).any(axis=0)).reshape(-1).nonzero()[0]
    if len(at):
        flat[at] = median_of_sorted(np.sort(columns[:, at].T, axis=-1))
    return flat.reshape(middle.shape)


SMALL = 512
"""Numbers that are sorted in less time than the calls take that would compare them as rows."""
MAX_COMPARED_ROWS = 8
CELLS_AT_ONCE = 2**15
"""Numbers of a row (256 KiB) compared at once, so that intermediates stay cached."""


def _median_of_few_rows(values: Floats) -> Floats:
    ordered = np.sort(values, axis=0)  # NaN stand last
    last, n = ordered[-1], len(ordered)
    if (last == last).all():
        high: Floats = ordered[n // 2]
        return high if n % 2 else 0.5 * ordered[n // 2 - 1] + 0.5 * high
    return median_of_sorted(np.moveaxis(ordered, 0, -1))


def _compared_in_parts(values: Floats) -> Floats:
    length = values.shape[1]
    part = max(1, CELLS_AT_ONCE * length // max(values[0].size, 1))
    if part >= length:
        return _compared(list(values))
    middle = np.empty(values.shape[1:], values.dtype)
    for at in range(0, length, part):
        middle[at : at + part] = _compared(list(values[:, at : at + part]))
    return middle


def _compared(rows: list[Floats]) -> Floats:
    """The median of 2 to 8 rows; NaN wherever one of them is."""
    while len(rows) > 5:
        rows = _without_extremes(rows)
    if len(rows) == 5:
        return _median_of_five(*rows)
    if len(rows) == 3:
        return _median_of_three(*rows)
    low, high = _middle_of_four(*rows) if len(rows) == 4 else rows
    return np.asarray(0.5 * low + 0.5 * high)


def _median_of_five(a: Floats, b: Floats, c: Floats, d: Floats, e: Floats) -> Floats:
    """Drop the largest of the smaller and the smallest of the larger of two pairs."""
    minimum, maximum = np.minimum, np.maximum
    return _median_of_three(
        maximum(minimum(a, b), minimum(d, e)), minimum(maximum(a, b), maximum(d, e)), c
    )


def _median_of_three(a: Floats, b: Floats, c: Floats) -> Floats:
    low, high = np.minimum(a, b), np.maximum(a, b)
    return np.asarray(np.maximum(low, np.minimum(high, c)))


def _middle_of_four(a: Floats, b: Floats, c: Floats, d: Floats) -> tuple[Floats, Floats]:
    minimum, maximum = np.minimum, np.maximum
    return maximum(minimum(a, b), minimum(c, d)), minimum(maximum(a, b), maximum(c, d))


def _without_extremes(rows: list[Floats]) -> list[Floats]:
    """Each cell's values but the smallest and the largest."""
    rows = list(rows)
    for at in range(len(rows) - 1):  # the largest moves to the end
        low, high = np.minimum(rows[at], rows[at + 1]), np.maximum(rows[at], rows[at + 1])
        rows[at], rows[at + 1] = low, high
    rows.pop()
    for at in range(len(rows) - 1, 0, -1):  # the smallest moves to the front
        low, high = np.minimum(rows[at - 1], rows[at]), np.maximum(rows[at - 1], rows[at])
        rows[at - 1], rows[at] = low, high
    return rows[1:]

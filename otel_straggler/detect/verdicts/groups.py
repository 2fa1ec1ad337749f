"""Medians over fixed groups of rows."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from otel_straggler.model.observation import Floats, Ints


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
        if 2 <= self.members.shape[1] <= MAX_COMPARED_ROWS and self._is_even:
            members = np.empty((self.members.shape[1], *values.shape[:-1], len(self)), values.dtype)
            for rows, out in zip(self.members.T, members, strict=True):
                np.take(values, rows, axis=-1, out=out, mode="clip")
            return median_of_rows(members)
        gathered = self.gather(values)
        gathered.sort(axis=-1)
        return _median_of_sorted(gathered)

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


def _median_of_sorted(ordered: Floats) -> Floats:
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
    8 rows without NaN are compared as whole rows, several times faster.

    >>> median_of_rows(np.array([[1.0, np.nan], [3.0, np.nan], [np.nan, 5.0]])).tolist()
    [2.0, 5.0]
    """
    if len(values) == 1:
        return np.array(values[0])
    if not 2 <= len(values) <= MAX_COMPARED_ROWS or values.ndim < 2:
        columns = values.reshape(len(values), math.prod(values.shape[1:]))
        lines = np.sort(columns.T, axis=1)
        return _median_of_sorted(lines).reshape(values.shape[1:])
    middle = _compared_in_parts(values)
    holes = np.isnan(middle)
    if not holes.any():
        return middle
    flat, columns = middle.reshape(-1), values.reshape(len(values), -1)
    at = (holes & (values == values).any(axis=0)).reshape(-1).nonzero()[0]
    if len(at):
        flat[at] = _median_of_sorted(np.sort(columns[:, at].T, axis=-1))
    return flat.reshape(middle.shape)


MAX_COMPARED_ROWS = 8
CELLS_AT_ONCE = 2**15
"""Numbers of a row (256 KiB) compared at once, so that intermediates stay cached."""


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

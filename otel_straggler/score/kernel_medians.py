"""Medians of kernels that were counted in histograms."""

from __future__ import annotations

import numpy as np

from otel_straggler.model.kernel_times import KernelTimes
from otel_straggler.model.observation import Floats, Ints
from otel_straggler.score.medians import GroupedTimes

_SHORTEST_S = 1e-9
_MOST_INDEX = 2**32
_NO_TIME = -(2**31)


def group_histograms(times: KernelTimes, group: Ints, n_groups: int) -> GroupedTimes:
    """Median, sum and count of all kernels in every group.

    A time is taken to lie in the middle of its bucket, or of what the shortest and the longest of
    its group leave of it. So a median is off by half a bucket at most: 0.28 % at scale 7. The sum
    and the count are exact.

    Args:
        times: n points; histograms of any scales.
        group: (n,) group of each point, in [0, n_groups).

    Returns:
        Arrays of length ``n_groups``; NaN, 0 and 0 for an empty group.

    Cost: O(b log b) for b buckets.
    """
    count = np.bincount(group, times.count, n_groups).astype(np.int64)
    total: Floats = np.bincount(group, times.sum_s, n_groups).astype(np.float64)
    median = np.full(n_groups, np.nan)
    filled = np.flatnonzero(count)
    if len(filled):
        buckets = _Buckets(times, group, n_groups)
        low, high = (count[filled] - 1) // 2, count[filled] // 2
        middle = (buckets.time_s(filled, low) + buckets.time_s(filled, high)) / 2
        median[filled] = np.maximum(middle, _SHORTEST_S)
    return GroupedTimes(median, total, count)


class _Buckets:
    """All buckets of all points, ordered by group and length; what took no time comes first."""

    def __init__(self, times: KernelTimes, group: Ints, n_groups: int) -> None:
        self._scale = np.full(n_groups, np.iinfo(np.int64).max)
        self._min_s, self._max_s = _bounds(times, group, n_groups)
        sizes = times.sizes
        filled = np.flatnonzero(sizes)
        np.minimum.at(self._scale, group[filled], times.scale[filled].astype(np.int64))
        of_bucket = np.repeat(group, sizes)
        coarser = np.repeat(times.scale - self._scale[group], sizes)
        index = times.index.astype(np.int64) >> coarser
        in_none = times.count - _sums(times.runs, times.ends, sizes)
        empty = np.flatnonzero(in_none > 0)
        of_bucket = np.concatenate([group[empty], of_bucket])
        index = np.concatenate([np.full(len(empty), _NO_TIME), index])
        key = of_bucket * _MOST_INDEX + (index - _NO_TIME)
        order = np.argsort(key, kind="stable")
        self._index = index[order]
        self._runs_before = np.cumsum(np.concatenate([in_none[empty], times.runs])[order])
        first = np.searchsorted(key[order], np.arange(n_groups) * _MOST_INDEX)
        self._before_group = np.concatenate([[0], self._runs_before])[first]

    def time_s(self, groups: Ints, rank: Ints) -> Floats:
        """The time at place ``rank``, from 0, of each of some groups."""
        at = np.searchsorted(self._runs_before, self._before_group[groups] + rank, side="right")
        index, width = (
            self._index[at].astype(np.float64),
            np.exp2(-self._scale[groups].astype(float)),
        )
        lower = np.maximum(np.exp2(index * width), self._min_s[groups])
        upper = np.minimum(np.exp2((index + 1.0) * width), self._max_s[groups])
        middle: Floats = np.where(self._index[at] == _NO_TIME, 0.0, (lower + upper) / 2)
        return middle


def _bounds(times: KernelTimes, group: Ints, n_groups: int) -> tuple[Floats, Floats]:
    """The shortest and longest time of every group; 0 and infinity where one is not known."""
    least, most = np.full(n_groups, np.inf), np.zeros(n_groups)
    np.minimum.at(least, group, np.where(np.isnan(times.min_s), 0.0, times.min_s))
    np.maximum.at(most, group, np.where(np.isnan(times.max_s), np.inf, times.max_s))
    return least, most


def _sums(values: Ints, ends: Ints, sizes: Ints) -> Ints:
    """Sum of the values of every point."""
    running = np.concatenate([[0], np.cumsum(values)])
    sums: Ints = running[ends] - running[ends - sizes]
    return sums

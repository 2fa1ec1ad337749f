"""Medians of kernels that were counted in histograms."""

from __future__ import annotations

import numpy as np

from otel_straggler.model.kernel_times import KernelTimes
from otel_straggler.model.observation import Floats, Ints
from otel_straggler.score.medians import GroupedTimes

_SHORTEST_S = 1e-9
_FINEST = 62
_HIGHEST = 2**62
_MOST_PADDING = 16
"""Empty buckets for each that holds something, at most; else those that hold something are
sorted."""


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

    Cost: O(b) for b buckets; O(b log b) where they lie far apart.
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
    """Kernels of every group by length, in one row: what took no time, then bucket by bucket."""

    def __init__(self, times: KernelTimes, group: Ints, n_groups: int) -> None:
        sizes = times.sizes
        filled = np.flatnonzero(sizes)
        self._scale = np.full(n_groups, _FINEST, np.int64)
        np.minimum.at(self._scale, group[filled], times.scale[filled].astype(np.int64))
        self._min_s, self._max_s = _bounds(times, group, n_groups)
        index = self._at_scale(times, group, sizes)
        self._first, width = _ranges(index, group, times.ends, filled, n_groups)
        self._begin = np.cumsum(width + 1) - (width + 1)
        place = index + np.repeat(self._begin[group] + 1 - self._first[group], sizes)
        in_none = times.count - _sums(times.runs, times.ends, sizes)
        places = np.concatenate([self._begin, place])
        runs = np.concatenate([np.bincount(group, in_none, n_groups), times.runs])
        n_places = int(self._begin[-1] + width[-1] + 1)
        self._places: Ints | None = None
        row = self._begin
        if n_places > _MOST_PADDING * len(places):
            self._places, places = np.unique(places, return_inverse=True)
            n_places, row = len(self._places), np.searchsorted(self._places, self._begin)
        counted = np.bincount(places, runs, n_places).astype(np.int64)
        self._until = np.cumsum(counted)
        self._before_group = self._until[row] - counted[row]

    def _at_scale(self, times: KernelTimes, group: Ints, sizes: Ints) -> Ints:
        """Index of every bucket at the scale of its group."""
        index = times.index.astype(np.int64)
        coarser = times.scale - self._scale[group]
        return index if not coarser.any() else index >> np.repeat(coarser, sizes)

    def time_s(self, groups: Ints, rank: Ints) -> Floats:
        """The time at place ``rank``, from 0, of each of some groups."""
        at = np.searchsorted(self._until, self._before_group[groups] + rank, side="right")
        place = (at if self._places is None else self._places[at]) - self._begin[groups]
        index = (place - 1 + self._first[groups]).astype(np.float64)
        width = np.exp2(-self._scale[groups].astype(np.float64))
        lower = np.maximum(np.exp2(index * width), self._min_s[groups])
        upper = np.minimum(np.exp2((index + 1.0) * width), self._max_s[groups])
        middle: Floats = np.where(place == 0, 0.0, (lower + upper) / 2)
        return middle


def _ranges(index: Ints, group: Ints, ends: Ints, filled: Ints, n_groups: int) -> tuple[Ints, Ints]:
    """First bucket of every group, and how many there are to its last; 0 and 0 if it has none."""
    first, last = np.full(n_groups, _HIGHEST), np.full(n_groups, -_HIGHEST)
    begins = np.concatenate([[0], ends[:-1]])[filled]
    np.minimum.at(first, group[filled], index[begins])
    np.maximum.at(last, group[filled], index[ends[filled] - 1])
    has_any = last >= first
    return np.where(has_any, first, 0), np.where(has_any, last - first + 1, 0)


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

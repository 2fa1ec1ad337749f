"""Kernels of a window, from rows or histograms: median, time, and count per rank."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from otel_straggler.detect.scores.medians import GroupedTimes, group_times
from otel_straggler.model.kernels import KernelTimes
from otel_straggler.model.observation import NO_KERNEL, Bools, Floats, Ints
from otel_straggler.model.observation import ObservationBatch as Batch
from otel_straggler.model.rank import Source
from otel_straggler.semconv import OTHER_KERNEL

_MAX_BUCKETS = 2**17


@dataclass(frozen=True, slots=True)
class NamedTimes:
    """Times of K kernels on R ranks: names, and (R, K) tables."""

    names: list[str]
    times: GroupedTimes


class RowKernels:
    """Compute kernels from rows, one for each run of a kernel; always of the window itself."""

    end_ns: int | None = None

    def __init__(self, rows: Batch, line_of_source: Ints, n_ranks: int) -> None:
        compute = np.array([k.kernel_class == "compute" for k in rows.kernels], bool)
        chosen = np.flatnonzero(rows.kernel != NO_KERNEL)
        self._chosen = chosen[compute[rows.kernel[chosen]]]
        self._rows = rows
        self._line_of_source = line_of_source
        self._n_ranks = n_ranks

    def of(self, section: int | None) -> NamedTimes | None:
        rows, chosen = self._rows, self._chosen
        if section is not None:
            chosen = chosen[rows.section[chosen] == section]
        if len(chosen) == 0:
            return None
        codes, column = np.unique(rows.kernel[chosen], return_inverse=True)
        line: Ints = self._line_of_source[rows.source[chosen]]
        times = group_times(
            line * len(codes) + column, rows.duration_s[chosen], self._n_ranks * len(codes)
        )
        names = [rows.kernels[code].name for code in codes.tolist()]
        return NamedTimes(names, times.reshape(self._n_ranks, -1))


class KernelMedians:
    """Medians of histograms by rank and kernel, and by rank, kernel, and section. Source codes are
    indexes of ranks; the points of a rank are contiguous. Cost: O(points and buckets); memory for
    some dozens of ranks at a time."""

    def __init__(self, times: KernelTimes) -> None:
        numbers: dict[str, int] = {}
        kernel = np.full(len(times.cells), -1, np.int64)
        for code, cell in enumerate(times.cells):
            if is_scored(cell.kernel.name, cell.kernel.kernel_class):
                kernel[code] = numbers.setdefault(cell.kernel.name, len(numbers))
        self.names = list(numbers)
        self.kernel_of_cell = kernel
        self.section_of_cell = [cell.section for cell in times.cells]
        self.by_kernel = _medians(times, kernel, len(numbers))
        scored = np.where(kernel >= 0, np.arange(len(times.cells)), -1)
        self.by_cell = _medians(times, scored, len(times.cells))


@dataclass(frozen=True, slots=True)
class KernelsOfWindow:
    """Kernels that belong to a window, and the end of their newest interval, the sender's clock."""

    medians: KernelMedians
    end_ns: int


CountedKernels: TypeAlias = Callable[[Sequence[Source], Ints, Ints, int], KernelsOfWindow | None]
"""Histograms of a window of ranks, from first start to last end (ns, the rank's clock), and its
number of steps."""


class HistogramKernels:
    """Compute kernels from histograms; of sections without rows only for the whole rank.

    Attributes:
        end_ns: end of the newest interval, sender's clock; None without any.
    """

    def __init__(self, result: KernelsOfWindow | None, sections: list[str], n_ranks: int) -> None:
        self._medians = medians = None if result is None else result.medians
        self.end_ns = None if result is None else result.end_ns
        self._n_ranks = n_ranks
        if medians is not None:
            indexes = {name: at for at, name in enumerate(sections)}
            known = [indexes.get(name, -1) for name in medians.section_of_cell]
            self._section = np.array(known, np.int64)[medians.by_cell.column]

    def of(self, section: int | None) -> NamedTimes | None:
        if self._medians is None:
            return None
        result = self._medians.by_kernel
        kernel = result.column
        if section is not None:
            result = self._medians.by_cell.take(self._section == section)
            kernel = self._medians.kernel_of_cell[result.column]
        if len(result.line) == 0:
            return None
        codes, column = np.unique(kernel, return_inverse=True)
        names = [self._medians.names[code] for code in codes.tolist()]
        return NamedTimes(names, result.table(column, (self._n_ranks, len(codes))))


Kernels: TypeAlias = RowKernels | HistogramKernels


@dataclass(frozen=True, slots=True)
class _Medians:
    """Times of some pairs of rank and column, each once: (m,)."""

    line: Ints
    column: Ints
    times: GroupedTimes

    def take(self, chosen: Bools) -> _Medians:
        times = self.times
        kept = GroupedTimes(times.median_s[chosen], times.total_s[chosen], times.count[chosen])
        return _Medians(self.line[chosen], self.column[chosen], kept)

    def table(self, column: Ints, shape: tuple[int, int]) -> GroupedTimes:
        """As tables with a column for each of ``column``."""
        median_s, total_s = np.full(shape, np.nan), np.zeros(shape)
        count = np.zeros(shape, np.int64)
        position = self.line, column
        median_s[position], total_s[position] = self.times.median_s, self.times.total_s
        count[position] = self.times.count
        return GroupedTimes(median_s, total_s, count)


_NO_INTS = np.empty(0, np.int64)
_NOTHING = _Medians(_NO_INTS, _NO_INTS, GroupedTimes(np.empty(0), np.empty(0), _NO_INTS))


def _medians(times: KernelTimes, column_of_cell: Ints, n_columns: int) -> _Medians:
    """By rank and column; cells of column -1 are left out."""
    result = [_NOTHING]
    for part in _by_ranks(times):
        column = column_of_cell[part.cell]
        if (column < 0).any():
            part, column = part.take(column >= 0), column[column >= 0]  # noqa: PLW2901
        key, group = np.unique(part.source * np.int64(n_columns) + column, return_inverse=True)
        if len(key):
            line, distinct = np.divmod(key, n_columns)
            result.append(_Medians(line, distinct, group_histograms(part, group, len(key))))
    columns = [
        (each.line, each.column, each.times.median_s, each.times.total_s, each.times.count)
        for each in result
    ]
    line, column, median_s, total_s, count = map(np.concatenate, zip(*columns, strict=True))
    return _Medians(line, column, GroupedTimes(median_s, total_s, count))


def _by_ranks(times: KernelTimes) -> Iterator[KernelTimes]:
    """Whole ranks, about as many buckets at a time as fit into the cache."""
    ends = np.append(np.flatnonzero(np.diff(times.source)) + 1, len(times))
    buckets = times.ends[ends - 1]
    first = 0
    while first < len(times):
        before = int(times.ends[first - 1]) if first else 0
        last = int(ends[np.searchsorted(buckets, before + _MAX_BUCKETS).clip(max=len(ends) - 1)])
        yield times.part(first, last)
        first = last


def is_scored(name: str, kernel_class: str) -> bool:
    """Whether a kernel shows how fast a GPU is."""
    return kernel_class == "compute" and name != OTHER_KERNEL


_SHORTEST_S = 1e-9
_FINEST = 62
_HIGHEST = 2**62
_MAX_PADDING = 16
"""Empty buckets per filled one, at most; beyond it they are sorted."""


def group_histograms(times: KernelTimes, group: Ints, n_groups: int) -> GroupedTimes:
    """Median, sum, and count of all kernels per ``group`` (n,); NaN, 0, and 0 for an empty one. A
    time is taken as the middle of its bucket, within the bounds of its group, so a median is off by
    half a bucket at most: 0.28 % at scale 7. Sum and count are exact. Cost: O(b) for b buckets; O(b
    log b) if they lie far apart."""
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
    """Kernels of every group by length, in one row: zeros, then bucket by bucket."""

    def __init__(self, times: KernelTimes, group: Ints, n_groups: int) -> None:
        sizes = times.sizes
        filled = np.flatnonzero(sizes)
        self._scale = np.full(n_groups, _FINEST, np.int64)
        np.minimum.at(self._scale, group[filled], times.scale[filled].astype(np.int64))
        self._min_s, self._max_s = _bounds(times, group, n_groups)
        index = self._at_scale(times, group, sizes)
        self._first, width = _ranges(index, group, times.ends, filled, n_groups)
        self._begin = np.cumsum(width + 1) - (width + 1)
        position = index + np.repeat(self._begin[group] + 1 - self._first[group], sizes)
        in_none = times.count - _sums(times.runs, times.ends, sizes)
        indexes = np.concatenate([self._begin, position])
        runs = np.concatenate([np.bincount(group, in_none, n_groups), times.runs])
        n_indexes = int(self._begin[-1] + width[-1] + 1)
        self._indexes: Ints | None = None
        row = self._begin
        if n_indexes > _MAX_PADDING * len(indexes):
            self._indexes, indexes = np.unique(indexes, return_inverse=True)
            n_indexes, row = len(self._indexes), np.searchsorted(self._indexes, self._begin)
        counted = np.bincount(indexes, runs, n_indexes).astype(np.int64)
        self._until = np.cumsum(counted)
        self._before_group = self._until[row] - counted[row]

    def _at_scale(self, times: KernelTimes, group: Ints, sizes: Ints) -> Ints:
        index = times.index.astype(np.int64)
        coarser = times.scale - self._scale[group]
        return index if not coarser.any() else index >> np.repeat(coarser, sizes)

    def time_s(self, groups: Ints, rank: Ints) -> Floats:
        """The time at ``rank``, from 0, in each group."""
        at = np.searchsorted(self._until, self._before_group[groups] + rank, side="right")
        position = (at if self._indexes is None else self._indexes[at]) - self._begin[groups]
        index = (position - 1 + self._first[groups]).astype(np.float64)
        width = np.exp2(-self._scale[groups].astype(np.float64))
        lower = np.maximum(np.exp2(index * width), self._min_s[groups])
        upper = np.minimum(np.exp2((index + 1.0) * width), self._max_s[groups])
        middle: Floats = np.where(position == 0, 0.0, (lower + upper) / 2)
        return middle


def _ranges(index: Ints, group: Ints, ends: Ints, filled: Ints, n_groups: int) -> tuple[Ints, Ints]:
    """First bucket and number of buckets of every group."""
    first, last = np.full(n_groups, _HIGHEST), np.full(n_groups, -_HIGHEST)
    begins = np.concatenate([[0], ends[:-1]])[filled]
    np.minimum.at(first, group[filled], index[begins])
    np.maximum.at(last, group[filled], index[ends[filled] - 1])
    has_any = last >= first
    return np.where(has_any, first, 0), np.where(has_any, last - first + 1, 0)


def _bounds(times: KernelTimes, group: Ints, n_groups: int) -> tuple[Floats, Floats]:
    """The shortest and longest time of every group; 0 and infinity if unknown."""
    minimum, maximum = np.full(n_groups, np.inf), np.zeros(n_groups)
    np.minimum.at(minimum, group, np.where(np.isnan(times.min_s), 0.0, times.min_s))
    np.maximum.at(maximum, group, np.where(np.isnan(times.max_s), np.inf, times.max_s))
    return minimum, maximum


def _sums(values: Ints, ends: Ints, sizes: Ints) -> Ints:
    running = np.concatenate([[0], np.cumsum(values)])
    sums: Ints = running[ends] - running[ends - sizes]
    return sums

"""Times of CUDA kernels: counts of one rank, and many histograms as columns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from otel_straggler.model.observation import Codes, Floats, Ints, Kernel
from otel_straggler.model.rank import Source
from otel_straggler.semconv import OTHER_KERNEL


@dataclass(frozen=True, slots=True)
class KernelCell:
    """One kernel in one section; an empty section: in none."""

    section: str
    kernel: Kernel


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class KernelTimes:
    """Times of kernels on some ranks, over intervals. A point is one cell of one rank.

    Times are in exponential buckets in seconds: bucket i ends at 2 ** ((i + 1) / 2 ** scale); zeros
    are in none. Columns of points have length n, those of buckets length b.

    Attributes:
        sources, cells: tables of names; ``source`` and ``cell`` (n,) index them.
        start_ns, end_ns: (n,) the interval on the sender's clock; start is 0 if unknown.
        count: (n,) kernels, > 0; sum_s: (n,) of all times.
        min_s, max_s: (n,) bounds of the times; NaN if unknown.
        scale: (n,) of the buckets.
        ends: (n,) end of the point's buckets in ``index`` and ``runs``.
        index: (b,) of a filled bucket, ascending within a point; runs: (b,) its kernels.
    """

    sources: tuple[Source, ...]
    cells: tuple[KernelCell, ...]
    source: Codes
    cell: Codes
    start_ns: Ints
    end_ns: Ints
    count: Ints
    sum_s: Floats
    min_s: Floats
    max_s: Floats
    scale: Codes
    ends: Ints
    index: Codes
    runs: Ints

    def __len__(self) -> int:
        return len(self.count)

    @property
    def sizes(self) -> Ints:
        """(n,) buckets of every point."""
        return np.diff(self.ends, prepend=0)

    @property
    def nbytes(self) -> int:
        return sum(column.nbytes for column in self.columns().values())

    def columns(self) -> dict[str, npt.NDArray[Any]]:
        """All but the tables of names."""
        return {name: getattr(self, name) for name in ("ends", *_OF_POINTS, *_OF_BUCKETS)}

    def part(self, first: int, last: int) -> KernelTimes:
        """Points from ``first`` to before ``last``, as views."""
        points = slice(first, last)
        begin = int(self.ends[first - 1]) if first else 0
        buckets = slice(begin, int(self.ends[last - 1]) if last else 0)
        return self._chosen(points, buckets, self.ends[points] - begin)

    def take(self, points: npt.NDArray[np.intp] | npt.NDArray[np.bool_]) -> KernelTimes:
        """The same tables with only these points."""
        chosen = np.flatnonzero(points) if points.dtype == bool else points
        sizes = self.sizes[chosen]
        ends = np.cumsum(sizes)
        shift = np.repeat((self.ends - self.sizes)[chosen] - (ends - sizes), sizes)
        bucket = np.arange(len(shift)) + shift
        return self._chosen(chosen, bucket, ends)

    def _chosen(self, points: Any, buckets: Any, ends: Ints) -> KernelTimes:
        columns: dict[str, Any] = {name: getattr(self, name)[points] for name in _OF_POINTS}
        columns |= {name: getattr(self, name)[buckets] for name in _OF_BUCKETS}
        return replace(self, ends=ends, **columns)


_OF_POINTS = (
    "source", "cell", "start_ns", "end_ns", "count", "sum_s", "min_s", "max_s", "scale",
)  # fmt: skip
_OF_BUCKETS = ("index", "runs")


def join_kernel_times(parts: Sequence[KernelTimes]) -> KernelTimes:
    """All points in order; codes of all parts (at least one) index the tables of the first."""
    if len(parts) == 1:
        return parts[0]
    buckets = np.cumsum([0, *(len(part.index) for part in parts[:-1])])
    columns: dict[str, Any] = {
        name: np.concatenate([getattr(part, name) for part in parts])
        for name in (*_OF_POINTS, *_OF_BUCKETS)
    }
    ends = np.concatenate([p.ends + at for p, at in zip(parts, buckets, strict=True)])
    return replace(parts[0], ends=ends, **columns)


class KernelTimesBuilder:
    """Collects points one by one, for decoders and tests."""

    def __init__(self) -> None:
        self._sources: dict[Source, int] = {}
        self._cells: dict[KernelCell, int] = {}
        self._points: list[tuple[int, int, int, int, int, float, float, float, int, int]] = []
        self._index: list[Codes] = []
        self._runs: list[Ints] = []

    def __len__(self) -> int:
        return len(self._points)

    def add(
        self,
        source: Source,
        cell: KernelCell,
        *,
        start_ns: int,
        end_ns: int,
        count: int,
        sum_s: float,
        min_s: float | None,
        max_s: float | None,
        scale: int,
        first: int,
        runs: Ints,
    ) -> None:
        """Append one point; ``runs`` are those of all buckets from ``first`` on."""
        filled = np.flatnonzero(runs)
        self._index.append((filled + first).astype(np.int32))
        self._runs.append(runs[filled])
        self._points.append(
            (
                self._sources.setdefault(source, len(self._sources)),
                self._cells.setdefault(cell, len(self._cells)),
                start_ns,
                end_ns,
                count,
                sum_s,
                float("nan") if min_s is None else min_s,
                float("nan") if max_s is None else max_s,
                scale,
                len(filled),
            )
        )

    def build(self) -> KernelTimes:
        columns = list(zip(*self._points, strict=True)) if self._points else [()] * 10
        *of_points, sizes = columns
        types = (*[np.int32] * 2, *[np.int64] * 3, *[np.float64] * 3, np.int32)
        named: dict[str, Any] = {
            name: np.array(column, kind)
            for name, column, kind in zip(_OF_POINTS, of_points, types, strict=True)
        }
        return KernelTimes(
            sources=tuple(self._sources),
            cells=tuple(self._cells),
            ends=np.cumsum(np.array(sizes, np.int64)),
            index=np.concatenate([np.empty(0, np.int32), *self._index]),
            runs=np.concatenate([np.empty(0, np.int64), *self._runs]),
            **named,
        )


TimedKernel: TypeAlias = tuple[str, int, int, int, int, int, int, int, int, bytes]
"""A kernel from a timer: name, class, section number, count, sum, shortest and longest in ns,
scale, index of the first bucket, buckets as 32-bit numbers."""

MAX_CELLS = 16_384
_MAX_PARTS = 8


@dataclass(slots=True)
class KernelCounts:
    """Times of a kernel in a section: exact count, sum, and bounds; buckets."""

    cell: KernelCell
    count: int = 0
    sum_ns: int = 0
    min_ns: int = 2**63 - 1
    max_ns: int = 0
    scale: int = 0
    first: int = 0
    runs: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    _parts: list[tuple[int, int, Ints]] = field(default_factory=list)

    def add(self, numbers: tuple[int, int, int, int], scale: int, first: int, runs: Ints) -> None:
        """Add ``numbers`` (count, sum, shortest, longest) and buckets counted elsewhere."""
        count, sum_ns, min_ns, max_ns = numbers
        self.count += count
        self.sum_ns += sum_ns
        self.min_ns = min(self.min_ns, min_ns)
        self.max_ns = max(self.max_ns, max_ns)
        self._parts.append((scale, first, runs))
        if len(self._parts) >= _MAX_PARTS:
            self.settle()

    def add_all(self, other: KernelCounts) -> None:
        other.settle()
        numbers = other.count, other.sum_ns, other.min_ns, other.max_ns
        self.add(numbers, other.scale, other.first, other.runs)

    def trimmed(self) -> tuple[int, Ints]:
        """Index of the first filled bucket, and the runs up to the last."""
        self.settle()
        filled = np.flatnonzero(self.runs)
        if len(filled) == 0:
            return 0, self.runs[:0]
        return self.first + int(filled[0]), self.runs[filled[0] : filled[-1] + 1]

    def settle(self) -> None:
        """Merge all buckets at the coarsest of their scales."""
        parts, self._parts = self._parts, []
        if len(self.runs):
            parts.append((self.scale, self.first, self.runs))
        parts = [part for part in parts if part[2].any()]
        if not parts:
            return
        scale = min(part[0] for part in parts)
        index = [(np.arange(len(r)) + at) >> (own - scale) for own, at, r in parts]
        first = min(int(each[0]) for each in index)
        last = max(int(each[-1]) for each in index)
        runs = np.zeros(last - first + 1, np.int64)
        for each, (_, _, counted) in zip(index, parts, strict=True):
            np.add.at(runs, each - first, counted)
        self.scale, self.first, self.runs = scale, first, runs


class KernelTally:
    """Adds up kernels from a timer; beyond ``max_cells`` as ``<other>`` of class and section."""

    def __init__(self, max_cells: int = MAX_CELLS) -> None:
        self._max_cells = max_cells
        self._cells: dict[KernelCell, KernelCounts] = {}

    def add(self, kernels: Iterable[tuple[KernelCell, TimedKernel]]) -> None:
        for cell, (_, _, _, *numbers, scale, first, buckets) in kernels:
            runs = np.frombuffer(buckets, np.uint32).astype(np.int64)
            count, sum_ns, min_ns, max_ns = numbers
            self._of(cell).add((count, sum_ns, min_ns, max_ns), scale, first, runs)

    def take(self) -> list[KernelCounts]:
        """All cells; counting starts over."""
        cells, self._cells = self._cells, {}
        return list(cells.values())

    def _of(self, cell: KernelCell) -> KernelCounts:
        result = self._cells.get(cell)
        if result is None:
            if len(self._cells) >= self._max_cells:
                cell = other_of(cell)
            result = self._cells.setdefault(cell, KernelCounts(cell))
        return result


def other_of(cell: KernelCell) -> KernelCell:
    """The cell that counts for this one where there is no room."""
    return KernelCell(cell.section, Kernel(OTHER_KERNEL, cell.kernel.kernel_class))


def longest_kernels(kernels: Sequence[KernelCounts], max_cells: int) -> list[KernelCounts]:
    """The kernels with most time, in at most ``max_cells`` cells, and the rest as ``<other>`` of
    their class and section. A kernel is kept with all its sections or not at all, so that its
    median is that of all its runs."""
    if len(kernels) <= max_cells:
        return list(kernels)
    by_kernel: dict[Kernel, list[KernelCounts]] = {}
    for each in kernels:
        by_kernel.setdefault(each.cell.kernel, []).append(each)
    others = {o.cell: o for o in kernels if o.cell.kernel.name == OTHER_KERNEL}
    named = [cells for kernel, cells in by_kernel.items() if kernel.name != OTHER_KERNEL]
    named.sort(key=lambda cells: -sum(each.sum_ns for each in cells))
    room = np.searchsorted(np.cumsum([len(cells) for cells in named]), max_cells, side="right")
    for each in chain.from_iterable(named[room:]):
        cell = other_of(each.cell)
        others.setdefault(cell, KernelCounts(cell)).add_all(each)
    return [*chain.from_iterable(named[:room]), *others.values()]


def times_of_counts(
    kernels: Iterable[KernelCounts], source: Source, start_ns: int, end_ns: int
) -> KernelTimes:
    """As columns, for scoring in process."""
    builder = KernelTimesBuilder()
    for each in kernels:
        first, runs = each.trimmed()
        if each.count:
            builder.add(
                source,
                each.cell,
                start_ns=start_ns,
                end_ns=end_ns,
                count=each.count,
                sum_s=each.sum_ns * 1e-9,
                min_s=each.min_ns * 1e-9,
                max_s=each.max_ns * 1e-9,
                scale=each.scale,
                first=first,
                runs=runs,
            )
    return builder.build()

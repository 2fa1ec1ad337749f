"""What a rank has counted of its kernels: what a timer gives, added up, the rarest put together."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import TypeAlias

import numpy as np

from otel_straggler.model.kernel_times import KernelCell, KernelTimes, KernelTimesBuilder
from otel_straggler.model.observation import Ints, Kernel
from otel_straggler.model.rank import Source
from otel_straggler.semconv import OTHER_KERNEL

Taken: TypeAlias = tuple[str, int, int, int, int, int, int, int, int, bytes]
"""A kernel as a timer gives it: name, class, section number, count, sum, shortest and longest in
ns, scale, index of the first bucket, buckets as 32-bit numbers."""

MOST_CELLS = 16_384
_MOST_PARTS = 8


@dataclass(slots=True)
class KernelCounts:
    """Times of one kernel in one section: exact count, sum and bounds, and exponential buckets
    in seconds, as in :class:`KernelTimes`; what took no time is in none."""

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
        """Add what was counted elsewhere.

        Args:
            numbers: count, sum, shortest, longest.
            scale, first, runs: its buckets.
        """
        count, sum_ns, min_ns, max_ns = numbers
        self.count += count
        self.sum_ns += sum_ns
        self.min_ns = min(self.min_ns, min_ns)
        self.max_ns = max(self.max_ns, max_ns)
        self._parts.append((scale, first, runs))
        if len(self._parts) >= _MOST_PARTS:
            self.settle()

    def add_all(self, other: KernelCounts) -> None:
        """Add another kernel's."""
        other.settle()
        numbers = other.count, other.sum_ns, other.min_ns, other.max_ns
        self.add(numbers, other.scale, other.first, other.runs)

    def trimmed(self) -> tuple[int, Ints]:
        """Index of the first bucket that holds something, and the runs up to the last such."""
        self.settle()
        filled = np.flatnonzero(self.runs)
        if len(filled) == 0:
            return 0, self.runs[:0]
        return self.first + int(filled[0]), self.runs[filled[0] : filled[-1] + 1]

    def settle(self) -> None:
        """Put all buckets together, at the coarsest of their scales."""
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
    """Adds up what a timer gives, a bounded number of cells: further ones count as ``<other>`` of
    their class and section."""

    def __init__(self, most_cells: int = MOST_CELLS) -> None:
        self._most_cells = most_cells
        self._cells: dict[KernelCell, KernelCounts] = {}

    def add(self, kernels: Iterable[tuple[KernelCell, Taken]]) -> None:
        """Add what was taken from a timer, with the cell of each."""
        for cell, (_, _, _, *numbers, scale, first, buckets) in kernels:
            runs = np.frombuffer(buckets, np.uint32).astype(np.int64)
            count, sum_ns, min_ns, max_ns = numbers
            self._of(cell).add((count, sum_ns, min_ns, max_ns), scale, first, runs)

    def take(self) -> list[KernelCounts]:
        """All cells; counting begins anew."""
        cells, self._cells = self._cells, {}
        return list(cells.values())

    def _of(self, cell: KernelCell) -> KernelCounts:
        found = self._cells.get(cell)
        if found is None:
            if len(self._cells) >= self._most_cells:
                cell = other_of(cell)
            found = self._cells.setdefault(cell, KernelCounts(cell))
        return found


def other_of(cell: KernelCell) -> KernelCell:
    """What stands for the cell where there is no room for it."""
    return KernelCell(cell.section, Kernel(OTHER_KERNEL, cell.kernel.kernel_class))


def longest_kernels(kernels: Sequence[KernelCounts], most_cells: int) -> list[KernelCounts]:
    """The kernels in which most time is spent, and all others together as ``<other>`` of their
    class and section. Counts, sums and bounds stay exact.

    A kernel is kept with all its sections or not at all, so that its median over all of them is
    that of all its runs.

    Args:
        kernels: each cell once.
        most_cells: kept, beside those of ``<other>``.
    """
    if len(kernels) <= most_cells:
        return list(kernels)
    by_kernel: dict[Kernel, list[KernelCounts]] = {}
    for each in kernels:
        by_kernel.setdefault(each.cell.kernel, []).append(each)
    others = {o.cell: o for o in kernels if o.cell.kernel.name == OTHER_KERNEL}
    named = [cells for kernel, cells in by_kernel.items() if kernel.name != OTHER_KERNEL]
    named.sort(key=lambda cells: -sum(each.sum_ns for each in cells))
    room = np.searchsorted(np.cumsum([len(cells) for cells in named]), most_cells, side="right")
    for each in chain.from_iterable(named[room:]):
        cell = other_of(each.cell)
        others.setdefault(cell, KernelCounts(cell)).add_all(each)
    return [*chain.from_iterable(named[:room]), *others.values()]


def times_of_counts(
    kernels: Iterable[KernelCounts], source: Source, start_ns: int, end_ns: int
) -> KernelTimes:
    """The same as columns, for scoring in process; what scored elsewhere is sent instead."""
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

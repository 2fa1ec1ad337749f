"""Kernels by name: how long and how often each ran on a rank, since the rank was first heard of.

Scores look at medians of windows; a person wants to see which kernel it is.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from otel_straggler.model.kernels import KernelTimes
from otel_straggler.model.observation import Kernel
from otel_straggler.model.rank import Source
from otel_straggler.semconv import OTHER_KERNEL

MOST_SHOWN: Final = 10
"""Kernels of a rank that are shown: those that took most."""
_MOST_KEPT: Final = 200
_Cell: TypeAlias = tuple[str, Kernel]
"""Section and kernel."""


@dataclass(slots=True)
class Total:
    """Of one kernel on one rank, over all sections."""

    seconds: float = 0.0
    runs: int = 0


@dataclass(slots=True)
class KernelsOfRank:
    """One process.

    Attributes:
        source: newest description.
        totals: by kernel.
    """

    source: Source
    totals: dict[Kernel, Total] = field(default_factory=dict)
    _told_until_ns: dict[_Cell, int] = field(default_factory=dict)

    def take(self, cell: _Cell, end_ns: int, seconds: float, runs: int) -> None:
        """Add an interval that was not told before; further kernels count as ``<other>``."""
        if end_ns <= self._told_until_ns.get(cell, 0):
            return
        kernel = cell[1]
        if kernel not in self.totals and len(self.totals) >= _MOST_KEPT:
            kernel = Kernel(OTHER_KERNEL, kernel.kernel_class)
        if cell in self._told_until_ns or len(self._told_until_ns) < 4 * _MOST_KEPT:
            self._told_until_ns[cell] = end_ns
        total = self.totals.setdefault(kernel, Total())
        total.seconds += seconds
        total.runs += runs

    def longest(self) -> list[tuple[Kernel, Total]]:
        """The kernels that took most, of those that have a name."""
        named = [item for item in self.totals.items() if item[0].name != OTHER_KERNEL]
        named.sort(key=lambda item: -item[1].seconds)
        return named[:MOST_SHOWN]


class KernelTotals:
    """Owned by the worker's thread. Memory: about 500 bytes a kernel of a rank."""

    def __init__(self) -> None:
        self._runs: dict[str, dict[tuple[str, int], KernelsOfRank]] = {}

    def take(self, times: KernelTimes) -> None:
        """Add points. A process that takes a rank over counts from 0, as Prometheus expects it."""
        columns = (times.source, times.cell, times.end_ns, times.sum_s, times.count)
        for source_code, cell_code, end_ns, seconds, runs in zip(
            *(column.tolist() for column in columns), strict=True
        ):
            cell = times.cells[cell_code]
            known = self._of(times.sources[source_code])
            if known is not None:
                known.take((cell.section, cell.kernel), end_ns, seconds, runs)

    def of_run(self, run_id: str) -> list[KernelsOfRank]:
        """By group and number of the rank."""
        return [rank for _, rank in sorted(self._runs.get(run_id, {}).items())]

    def forget(self, run_ids: Iterable[str]) -> None:
        for run_id in run_ids:
            self._runs.pop(run_id, None)

    def forget_group(self, run_id: str, group: str) -> None:
        ranks = self._runs.get(run_id, {})
        for key in [key for key in ranks if key[0] == group]:
            del ranks[key]

    def _of(self, source: Source) -> KernelsOfRank | None:
        ranks = self._runs.setdefault(source.run_id, {})
        key = source.group, source.rank
        known = ranks.get(key)
        if known is not None and source.attempt < known.source.attempt:
            return None
        if known is None or known.source.session_id != source.session_id:
            known = ranks[key] = KernelsOfRank(source)
        known.source = source
        return known

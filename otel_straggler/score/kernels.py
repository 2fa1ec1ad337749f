"""The kernels of a window, from rows or from histograms: median, time and count for each rank."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import numpy as np

from otel_straggler.model.kernel_times import KernelTimes
from otel_straggler.model.observation import NO_KERNEL, Ints
from otel_straggler.model.observation import ObservationBatch as Batch
from otel_straggler.model.rank import Source
from otel_straggler.score.kernel_medians import group_histograms
from otel_straggler.score.medians import GroupedTimes, group_times
from otel_straggler.semconv import OTHER_KERNEL

CountedKernels: TypeAlias = Callable[[Sequence[Source], Ints, Ints], KernelTimes | None]
"""Histograms that belong to a window: of ranks, from first start to last end of each (ns, the
rank's clock). The source codes of the answer are places among the ranks; None: there are none."""


@dataclass(frozen=True, slots=True)
class NamedTimes:
    """Times of K kernels on R ranks: names, and tables of shape (R, K)."""

    names: list[str]
    times: GroupedTimes


class Kernels(Protocol):
    """Kernels that compute; those of NCCL wait for others, and copies are no measure of speed."""

    def of(self, section: int | None) -> NamedTimes | None:
        """Kernels of a section, or over all; None if there are none."""


class RowKernels:
    """From rows, one for each run of a kernel."""

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
        return NamedTimes(names, _shaped(times, self._n_ranks))


class HistogramKernels:
    """From histograms; sections that have no rows in the window count for the whole rank only."""

    def __init__(self, times: KernelTimes | None, sections: list[str], n_ranks: int) -> None:
        self._n_ranks = n_ranks
        self._times = times
        self._names: list[str] = []
        if times is None:
            return
        numbers: dict[str, int] = {}
        places = {name: at for at, name in enumerate(sections)}
        kernel_of, section_of = np.full(len(times.cells), -1), np.full(len(times.cells), -1)
        for code, cell in enumerate(times.cells):
            if is_scored(cell.kernel.name, cell.kernel.kernel_class):
                kernel_of[code] = numbers.setdefault(cell.kernel.name, len(numbers))
                section_of[code] = places.get(cell.section, -1)
        self._names = list(numbers)
        self._kernel, self._section = kernel_of[times.cell], section_of[times.cell]

    def of(self, section: int | None) -> NamedTimes | None:
        if self._times is None:
            return None
        is_chosen = self._kernel >= 0
        if section is not None:
            is_chosen &= self._section == section
        chosen = np.flatnonzero(is_chosen)
        if len(chosen) == 0:
            return None
        times = self._times if len(chosen) == len(is_chosen) else self._times.take(chosen)
        codes, column = np.unique(self._kernel[chosen], return_inverse=True)
        group = times.source.astype(np.int64) * len(codes) + column
        found = group_histograms(times, group, self._n_ranks * len(codes))
        names = [self._names[code] for code in codes.tolist()]
        return NamedTimes(names, _shaped(found, self._n_ranks))


def is_scored(name: str, kernel_class: str) -> bool:
    """Whether a kernel says how fast a GPU is."""
    return kernel_class == "compute" and name != OTHER_KERNEL


def _shaped(times: GroupedTimes, n_ranks: int) -> GroupedTimes:
    shape = (n_ranks, -1)
    return GroupedTimes(
        times.median_s.reshape(shape), times.total_s.reshape(shape), times.count.reshape(shape)
    )

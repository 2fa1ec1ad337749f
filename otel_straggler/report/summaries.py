"""Times to the few numbers that a report needs of every section."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from otel_straggler.model.observation import Floats, Ints, Section
from otel_straggler.report.types import Statistic, Summary
from otel_straggler.score.medians import GroupedTimes, group_times, row_times

_S_PER_NS = 1e-9
_MS_PER_NS = 1e-6


@dataclass(frozen=True, slots=True)
class Times:
    """One number per name, all arrays of length N.

    Attributes:
        names: of sections or kernels, each once.
        median_s, total_s: seconds, > 0.
        count: runs.
    """

    names: tuple[str, ...]
    median_s: Floats
    total_s: Floats
    count: Ints


NO_TIMES = Times((), np.empty(0), np.empty(0), np.empty(0, np.int64))


def times_of(summaries: Mapping[str, Summary], unit_s: float) -> Times:
    """From statistics in units of ``unit_s`` seconds; names without a run are left out."""
    used = {name: each for name, each in summaries.items() if each[Statistic.NUM] > 0}
    if not used:
        return NO_TIMES
    median, mean, count = (
        np.array([each[key] for each in used.values()], np.float64)
        for key in (Statistic.MED, Statistic.AVG, Statistic.NUM)
    )
    return Times(tuple(used), median * unit_s, mean * count * unit_s, count.astype(np.int64))


class SectionStatistics(Mapping[str, Summary]):
    """All statistics of every section that ran, in milliseconds.

    A mapping whose entries are made when they are looked at: most reports are not.

    Args:
        samples: sections with their durations in nanoseconds, each name once, none empty.

    Attributes:
        sections: in the order given.
        times: the same for scoring, in seconds.

    Cost: O(n log n).
    """

    def __init__(self, samples: Sequence[tuple[Section, Ints]]) -> None:
        self.sections = [section for section, _ in samples]
        names = tuple(section.name for section in self.sections)
        self._place = {name: at for at, name in enumerate(names)}
        self._columns = _NO_COLUMNS
        self.times = NO_TIMES
        if names:
            self._fill(names, [lengths_ns for _, lengths_ns in samples])

    def __getitem__(self, name: str) -> Summary:
        at = self._place[name]
        return dict(zip(Statistic, self._columns[:, at].tolist(), strict=True))

    def __iter__(self) -> Iterator[str]:
        return iter(self._place)

    def __len__(self) -> int:
        return len(self._place)

    def __repr__(self) -> str:
        return repr(dict(self))

    def _fill(self, names: tuple[str, ...], samples_ns: list[Ints]) -> None:
        is_even = len({len(runs) for runs in samples_ns}) == 1
        grouped, least, most, deviation = (_of_table if is_even else _of_groups)(samples_ns)
        self.times = Times(
            names, grouped.median_s * _S_PER_NS, grouped.total_s * _S_PER_NS, grouped.count
        )
        mean = grouped.total_s / grouped.count
        lengths = np.stack([least, most, grouped.median_s, mean, deviation]) * _MS_PER_NS
        self._columns = np.concatenate([lengths, grouped.count[None].astype(np.float64)])


_NO_COLUMNS = np.empty((len(Statistic), 0))
_Found = tuple[GroupedTimes, Floats, Floats, Floats]


def _of_table(samples_ns: list[Ints]) -> _Found:
    """Every section ran equally often, as in most loops: several times as fast as groups."""
    table = np.concatenate(samples_ns).astype(np.float64).reshape(len(samples_ns), -1)
    table.sort(axis=1)
    grouped = row_times(table)
    off = table - (grouped.total_s / grouped.count)[:, None]
    squares: Floats = np.einsum("ij,ij->i", off, off)
    return grouped, table[:, 0], table[:, -1], _deviation(squares, grouped.count)


def _of_groups(samples_ns: list[Ints]) -> _Found:
    values = np.concatenate(samples_ns).astype(np.float64)
    count = np.fromiter(map(len, samples_ns), np.int64, len(samples_ns))
    starts = np.cumsum(count) - count
    grouped = group_times(np.repeat(np.arange(len(count)), count), values, len(count))
    off = values - np.repeat(grouped.total_s / count, count)
    squares: Floats = np.add.reduceat(off * off, starts)
    least, most = np.minimum.reduceat(values, starts), np.maximum.reduceat(values, starts)
    return grouped, least, most, _deviation(squares, count)


def _deviation(squares: Floats, count: Ints) -> Floats:
    """Of a sample; NaN for one run."""
    with np.errstate(invalid="ignore", divide="ignore"):
        deviation: Floats = np.sqrt(squares / (count - 1))
    return deviation

"""Section and kernel times of this rank since the last report, in bounded memory.

Records come in batches and are processed by column, because a report waits for them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from otel_straggler.client.native_records import FAILED, STEP_SPAN, NativeBatch
from otel_straggler.client.recorder import Record, SectionTimer, is_failure
from otel_straggler.client.recording import STEP_TIMER
from otel_straggler.detect.scores.kernels import group_histograms, is_scored
from otel_straggler.detect.scores.medians import GroupedTimes, group_times, row_times
from otel_straggler.model.kernels import KernelCounts, KernelTimes, times_of_counts
from otel_straggler.model.observation import Floats, Ints, Section
from otel_straggler.model.rank import Source
from otel_straggler.report.types import Statistic, Summary
from otel_straggler.semconv import OTHER_SECTION

MAX_RUNS = 8192
"""Runs kept per section, the newest; NVRx keeps as many."""
MAX_SECTIONS = 1000
_LOW = 2**32 - 1
_MAX_SMALL = 2**14


class _Runs:
    __slots__ = ("chunks", "count", "section")

    def __init__(self, section: Section) -> None:
        self.section = section
        self.chunks: list[Ints] = []
        self.count = 0

    def add(self, lengths_ns: Ints) -> None:
        self.chunks.append(lengths_ns)
        self.count += len(lengths_ns)
        if self.count > 2 * MAX_RUNS:
            self.chunks = [self.newest()]
            self.count = MAX_RUNS

    def newest(self) -> Ints:
        joined = self.chunks[0] if len(self.chunks) == 1 else np.concatenate(self.chunks)
        return joined[-MAX_RUNS:]


class SectionSamples:
    """Collects drained records by section. State: 8 bytes per run, at most 16,384 per section."""

    def __init__(self) -> None:
        self._runs: dict[str, _Runs] = {}
        self._sections: dict[_Opened, Section] = {}

    def add(self, records: Sequence[Record]) -> None:
        """Keep durations, except of runs that ended with an exception. Cost: about 0.3 µs per
        record, a tenth of that in native batches of a thousand."""
        if isinstance(records, NativeBatch):
            self._add_native(records)
        else:
            self._add_tuples(records)

    def _add_native(self, batch: NativeBatch) -> None:
        columns = batch.columns
        lengths_ns = columns["end_ns"] - columns["start_ns"]
        np.maximum(lengths_ns, 1, out=lengths_ns)
        keys = np.ascontiguousarray(columns["section"])
        phases = columns["phase"]
        if phases.any():
            keys = keys | phases.astype(np.uint64) << np.uint64(32)
        unused = columns["flags"] & (FAILED | STEP_SPAN)
        if unused.any():
            keys, lengths_ns = keys[unused == 0], lengths_ns[unused == 0]
        result, codes = _numbered(keys)
        recorder = batch.recorder
        names = recorder.phases
        opened = [(recorder.timer(k & _LOW), names[k >> 32]) for k in result]
        self._add(opened, codes, lengths_ns)

    def _add_tuples(self, records: Sequence[Record]) -> None:
        lengths_ns: dict[_Opened, list[int]] = {}
        for (timer, _, start_ns, context, _), _, end_ns, error, _ in records:
            if timer is not STEP_TIMER and (error is None or not is_failure(error)):
                lengths = lengths_ns.setdefault((timer, context.phase), [])
                lengths.append(max(1, end_ns - start_ns))
        for opened, lengths in lengths_ns.items():
            self._of(opened).add(np.array(lengths, np.int64))

    def _add(self, opened: list[_Opened], codes: Ints, lengths_ns: Ints) -> None:
        """``codes``: index of each run in ``opened``."""
        if len(opened) == 1:
            self._of(opened[0]).add(lengths_ns)
            return
        order = np.argsort(codes, kind="stable")
        bounds = np.searchsorted(codes[order], np.arange(len(opened) + 1))
        lengths_ns = lengths_ns[order]
        for each, first, last in zip(opened, bounds.tolist(), bounds[1:].tolist(), strict=False):
            if last > first:
                self._of(each).add(lengths_ns[first:last])

    def lengths_ns(self, name: str) -> Ints:
        """Of the newest runs of a section since the last :meth:`take`, oldest first."""
        runs = self._runs.get(name)
        return np.empty(0, np.int64) if runs is None else runs.newest()

    def take(self) -> list[tuple[Section, Ints]]:
        """Every scored section once with its durations in nanoseconds, oldest first; then start
        over. The first kind of a section counts."""
        taken, self._runs = self._runs, {}
        return [(runs.section, runs.newest()) for runs in taken.values()]

    def _of(self, opened: _Opened) -> _Runs:
        section = self._sections.get(opened) or self._scored(opened)
        runs = self._runs.get(section.name)
        if runs is None:
            if len(self._runs) >= MAX_SECTIONS:
                section = _OTHER
            runs = self._runs.setdefault(section.name, _Runs(section))
        return runs

    def _scored(self, opened: _Opened) -> Section:
        timer, phase = opened
        if len(self._sections) > 2 * MAX_SECTIONS:
            self._sections.clear()
        section = Section(timer.name, timer.kind).in_phase(phase)  # type: ignore[arg-type]
        return self._sections.setdefault(opened, section)


_Opened = tuple[SectionTimer, str]
"""A timer and its phase."""
_OTHER = Section(OTHER_SECTION, "other")


def _numbered(keys: npt.NDArray[np.unsignedinteger[Any]]) -> tuple[list[int], Ints]:
    """Distinct keys, ascending, and the index of each key among them. Cost: O(n) for small keys."""
    maximum = int(keys.max(initial=0))
    if maximum > _MAX_SMALL:
        result, codes = np.unique(keys, return_inverse=True)
        return result.tolist(), codes.astype(np.int64)
    is_there = np.zeros(maximum + 1, bool)
    is_there[keys] = True
    index = np.cumsum(is_there, dtype=np.uint16) - np.uint16(1)
    return np.flatnonzero(is_there).tolist(), index[keys]


_S_PER_NS = 1e-9
_MS_PER_NS = 1e-6


@dataclass(frozen=True, slots=True)
class Times:
    """One number per name, arrays of length N.

    Attributes:
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


class SectionStatistics(dict[str, Summary]):
    """Statistics of every section that ran, in milliseconds.

    Args:
        samples: sections with their durations in nanoseconds, each name once, none empty.

    Attributes:
        sections: in the order given.
        times: for scoring, in seconds.

    Cost: O(n log n).
    """

    def __init__(self, samples: Sequence[tuple[Section, Ints]]) -> None:
        super().__init__()
        self.sections = [section for section, _ in samples]
        self.times = NO_TIMES
        if samples:
            names = tuple(section.name for section in self.sections)
            self._fill(names, [lengths_ns for _, lengths_ns in samples])

    def _fill(self, names: tuple[str, ...], samples_ns: list[Ints]) -> None:
        is_even = len({len(runs) for runs in samples_ns}) == 1
        grouped, minimum, maximum, deviation = (_of_table if is_even else _of_groups)(samples_ns)
        self.times = Times(
            names, grouped.median_s * _S_PER_NS, grouped.total_s * _S_PER_NS, grouped.count
        )
        mean = grouped.total_s / grouped.count
        lengths = np.stack([minimum, maximum, grouped.median_s, mean, deviation]) * _MS_PER_NS
        self.update(summaries_of(names, lengths, grouped.count))


def summaries_of(names: Iterable[str], lengths: Floats, count: Ints) -> dict[str, Summary]:
    """Of rows of :class:`Statistic`, without their last, the count."""
    keys, columns = tuple(Statistic), zip(*lengths.tolist(), count.tolist(), strict=True)
    return {
        name: dict(zip(keys, column, strict=True))
        for name, column in zip(names, columns, strict=True)
    }


_Result = tuple[GroupedTimes, Floats, Floats, Floats]


def _of_table(samples_ns: list[Ints]) -> _Result:
    """Every section ran equally often, as in most loops: several times as fast as groups."""
    table = np.concatenate(samples_ns).astype(np.float64).reshape(len(samples_ns), -1)
    table.sort(axis=1)
    grouped = row_times(table)
    off = table - (grouped.total_s / grouped.count)[:, None]
    squares: Floats = np.einsum("ij,ij->i", off, off)
    return grouped, table[:, 0], table[:, -1], _deviation(squares, grouped.count)


def _of_groups(samples_ns: list[Ints]) -> _Result:
    values = np.concatenate(samples_ns).astype(np.float64)
    count = np.fromiter(map(len, samples_ns), np.int64, len(samples_ns))
    starts = np.cumsum(count) - count
    grouped = group_times(np.repeat(np.arange(len(count)), count), values, len(count))
    off = values - np.repeat(grouped.total_s / count, count)
    squares: Floats = np.add.reduceat(off * off, starts)
    minimum, maximum = np.minimum.reduceat(values, starts), np.maximum.reduceat(values, starts)
    return grouped, minimum, maximum, _deviation(squares, count)


def _deviation(squares: Floats, count: Ints) -> Floats:
    """Of a sample; NaN for one run."""
    with np.errstate(invalid="ignore", divide="ignore"):
        deviation: Floats = np.sqrt(squares / (count - 1))
    return deviation


_US_PER_S = 1e6
_SELF = Source(run_id="", rank=0)


def kernel_summaries(kernels: Sequence[KernelCounts]) -> dict[str, Summary]:
    """Statistics of scored kernels, in microseconds, by name. Minimum, maximum, mean, and count are
    exact. The median is within 0.28 % if the longest run of a kernel takes at most 16 times as long
    as the shortest. The deviation takes every time as the middle of its bucket."""
    scored = [k for k in kernels if is_scored(k.cell.kernel.name, k.cell.kernel.kernel_class)]
    times = times_of_counts(scored, _SELF, 0, 1)
    numbers: dict[str, int] = {}
    name_of = [numbers.setdefault(cell.kernel.name, len(numbers)) for cell in times.cells]
    group = np.array(name_of, np.int64)[times.cell]
    result = group_histograms(times, group, len(numbers))
    minimum, maximum = np.full(len(numbers), np.inf), np.zeros(len(numbers))
    np.minimum.at(minimum, group, times.min_s)
    np.maximum.at(maximum, group, times.max_s)
    mean = result.total_s / np.maximum(result.count, 1)
    deviation = _timed_kernels_deviation(times, group, mean, result.count)
    lengths = np.stack([minimum, maximum, result.median_s, mean, deviation]) * _US_PER_S
    return summaries_of(numbers, lengths, result.count.astype(np.int64))


def _timed_kernels_deviation(times: KernelTimes, group: Ints, mean: Floats, count: Ints) -> Floats:
    """Of a sample; NaN for one run."""
    sizes = times.sizes
    width = np.exp2(-np.repeat(times.scale, sizes).astype(float))
    of_bucket = np.repeat(group, sizes)
    off = np.exp2((times.index + 0.5) * width) - mean[of_bucket]
    squares = np.bincount(of_bucket, times.runs * off * off, len(mean))
    in_none = count - np.bincount(of_bucket, times.runs, len(mean))
    with np.errstate(invalid="ignore", divide="ignore"):
        deviation: Floats = np.sqrt((squares + in_none * mean * mean) / (count - 1))
    return deviation

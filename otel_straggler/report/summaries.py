"""Times to the few numbers that a report needs of every section."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from otel_straggler.model.observation import Floats, Ints, Section
from otel_straggler.report.types import Statistic, Summary
from otel_straggler.score.medians import group_times

_MS_PER_S = 1e3


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
    """The same from statistics in units of ``unit_s`` seconds; names without a run are left out."""
    used = {name: each for name, each in summaries.items() if each[Statistic.NUM] > 0}
    median, mean, count = (
        np.array([each[key] for each in used.values()], np.float64)
        for key in (Statistic.MED, Statistic.AVG, Statistic.NUM)
    )
    return Times(tuple(used), median * unit_s, mean * count * unit_s, count.astype(np.int64))


def section_summaries(durations_s: Mapping[Section, Floats]) -> dict[str, Summary]:
    """All statistics of every section that ran, in milliseconds. Cost: O(n log n)."""
    used = {section.name: runs * _MS_PER_S for section, runs in durations_s.items() if len(runs)}
    if not used:
        return {}
    values = np.concatenate(list(used.values()))
    lengths = np.array([len(runs) for runs in used.values()])
    starts = np.cumsum(lengths) - lengths
    grouped = group_times(np.repeat(np.arange(len(used)), lengths), values, len(used))
    mean = grouped.total_s / lengths
    off = values - np.repeat(mean, lengths)
    with np.errstate(invalid="ignore", divide="ignore"):
        deviation = np.sqrt(np.add.reduceat(off * off, starts) / (lengths - 1))
    columns: Sequence[Sequence[float]] = (
        np.minimum.reduceat(values, starts).tolist(),
        np.maximum.reduceat(values, starts).tolist(),
        grouped.median_s.tolist(),
        mean.tolist(),
        deviation.tolist(),
        lengths.tolist(),
    )
    return {
        name: dict(zip(Statistic, numbers, strict=True))
        for name, numbers in zip(used, zip(*columns, strict=True), strict=True)
    }

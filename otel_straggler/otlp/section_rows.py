"""Section histograms -> what each adds to the ones before it -> rows to score.

Rows are placed within their bucket: evenly around one relative position, the same in all buckets,
that makes their sum the sum that the sender measured. So times that lie close together, all in one
wide bucket, keep their mean.

**Error.** The median of the rows lies within the bucket that holds the median of the times, so it
is off by at most the width of that bucket; where it is exponential with scale 7 or more, by at most
0.5 %. Times above the last explicit bound have no bucket's width: without a maximum they lie
between the bound and what the sum allows for.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from otel_straggler.model.observation import (
    NO_KERNEL,
    NO_SEQ,
    NO_STEP,
    Floats,
    Ints,
    ObservationBatch,
    Section,
)
from otel_straggler.model.rank import Source
from otel_straggler.model.rank_metrics import Buckets, SectionTimes

ADDED = "added"
BASELINE = "baseline"
REPEATED = "repeated"
EMPTY = "empty"
OVER_LIMIT = "over_limit"

Process = tuple[str, str, int, int, str, str]
_MAX_SERIES = 250_000


@dataclass(slots=True)
class _Newest:
    """The newest point of one series; buckets only if it is cumulative."""

    start_ns: int
    end_ns: int
    buckets: Buckets | None


NewestPoints: TypeAlias = dict[tuple[Process, str], _Newest]
"""By process and section."""


class HistogramDeltas:
    """Compares every point with the newest one of its series.

    A cumulative point adds what it has more than the one before; one that began later is a reset
    and adds all. Repeated and late points add nothing. The first point of a cumulative series adds
    all if it began at most ``fresh_s`` before its end; an older one is only the baseline of the
    next.

    ``n_series`` are remembered; whoever drops some sets it.
    """

    def __init__(self, fresh_s: float) -> None:
        self._fresh_ns = fresh_s * 1e9
        self.n_series = 0
        self.counts: Counter[str] = Counter()

    def observe(self, times: SectionTimes, newest: NewestPoints) -> SectionTimes | None:
        """The part of a point that is new; None if nothing. ``counts`` has its outcome."""
        outcome, added = self._observe(times, newest)
        self.counts[outcome] += 1
        return added

    def _observe(self, times: SectionTimes, known: NewestPoints) -> tuple[str, SectionTimes | None]:
        key = process_of(times.source), times.section.name
        before = known.get(key)
        if before is None:
            if self.n_series >= _MAX_SERIES:
                return OVER_LIMIT, None
            self.n_series += 1
        elif times.end_ns <= before.end_ns or (
            times.is_cumulative and 0 < times.start_ns < before.start_ns  # from before a reset
        ):
            return REPEATED, None
        kept = times.buckets if times.is_cumulative else None
        known[key] = _Newest(times.start_ns, times.end_ns, kept)
        added = self._added(times, before)
        if added is None:
            return BASELINE, None
        return (ADDED, added) if len(added.buckets) else (EMPTY, None)

    def _added(self, times: SectionTimes, before: _Newest | None) -> SectionTimes | None:
        if not times.is_cumulative:
            return times
        if before is None or before.buckets is None:
            is_fresh = times.start_ns > 0 and times.end_ns - times.start_ns <= self._fresh_ns
            return times if is_fresh else None
        if times.start_ns > before.start_ns:
            return times
        buckets = times.buckets.minus(before.buckets)
        return None if buckets is None else replace(times, start_ns=before.end_ns, buckets=buckets)


def process_of(source: Source) -> Process:
    identity = source.run_id, source.group, source.attempt, source.rank
    return *identity, source.session_id, source.node


MAX_ROWS = 255
"""Rows of one histogram. Odd, so that the one in the middle is the median of all its runs."""
MIN_ROWS = 5
_MIN_S = 1e-9
_MARGIN = 0.08
"""Rows keep off the edges of exponential buckets by this part of their width: at scale 7 a bucket
is 0.543 % wide, and 0.92 of that is under 0.5 %."""
_ROUNDING = 1e-9
_GOLDEN = 0.6180339887498949


def rows_within(histograms: int, total: int) -> int:
    """Rows of each of so many histograms, for about ``total`` rows together; odd.

    >>> rows_within(10, 1_000_000), rows_within(10_000, 1_000_000), rows_within(10**6, 10**6)
    (255, 99, 5)
    """
    each = min(MAX_ROWS, max(MIN_ROWS, total // max(histograms, 1)))
    return each if each % 2 else each - 1


def run_times_s(times: SectionTimes, max_rows: int = MAX_ROWS) -> Floats:
    """Times of executions, ascending: as many as were counted, or the ``max_rows`` (odd) at evenly
    spaced ranks among them if there are more."""
    lower, width, counts = _filled(times)
    runs = int(counts.sum())
    if runs == 0:
        return np.empty(0)
    middle, spread = _placement(times, lower, width, counts)
    wanted = min(runs, max_rows)
    ranks = (np.arange(wanted) + 0.5) * (runs / wanted) - 0.5
    before = np.floor(ranks)

    def time_of(rank: Floats) -> Floats:
        ends = np.cumsum(counts)
        bucket = np.searchsorted(ends, rank, side="right")
        index = (rank - (ends[bucket] - counts[bucket]) + 0.5) / counts[bucket]
        time_s: Floats = lower[bucket] + width[bucket] * (middle + (2.0 * index - 1.0) * spread)
        return time_s

    low, high = time_of(before), time_of(np.ceil(ranks))
    times_s: Floats = np.maximum(low + (high - low) * (ranks - before), _MIN_S)
    return times_s


def _filled(times: SectionTimes) -> tuple[Floats, Floats, Floats]:
    """Lower edges, widths and counts of the buckets that hold something, cut to what is known."""
    lower, upper, counts = times.buckets.edges()
    if times.min_s is not None:
        lower = np.maximum(lower, np.minimum(times.min_s, upper))
    if times.max_s is not None:
        upper = np.minimum(upper, np.maximum(times.max_s, lower))
    if len(upper) and not np.isfinite(upper[-1]):
        upper[-1] = _upper_by_sum(times.buckets.sum_s, lower, counts)
    return lower, upper - lower, counts.astype(float)


def _upper_by_sum(sum_s: float | None, lower: Floats, counts: Ints) -> float:
    """The average end of the last bucket, if all others are as short as they can be."""
    if sum_s is None:
        return float(lower[-1])
    rest = sum_s - float((lower[:-1] * counts[:-1]).sum())
    return max(float(lower[-1]), rest / float(counts[-1]))


def _placement(
    times: SectionTimes, lower: Floats, width: Floats, counts: Floats
) -> tuple[float, float]:
    """Relative position around which rows lie in their bucket, and how far on either side."""
    room = float((width * counts).sum())
    sum_s = times.buckets.sum_s
    middle = 0.5
    if sum_s is not None and room > 0.0:
        exact = (sum_s - float((lower * counts).sum())) / room
        middle = exact if -_ROUNDING <= exact <= 1.0 + _ROUNDING else 0.5
    margin = 0.0 if times.buckets.scale is None else _MARGIN
    middle = min(max(middle, margin), 1.0 - margin)
    return middle, min(middle - margin, 1.0 - margin - middle)


def rows_of(times: list[SectionTimes], max_rows: int, at_ns: int | None = None) -> ObservationBatch:
    """Rows without a step, of histograms that count nothing twice.

    Args:
        max_rows: of each; odd.
        at_ns: start of all rows; None spreads those of each histogram over its interval, long and
            short ones alike.
    """
    sources: dict[Source, int] = {}
    sections: dict[Section, int] = {}
    durations = [run_times_s(t, max_rows) for t in times]
    sizes = [len(d) for d in durations]
    source_codes = [sources.setdefault(t.source, len(sources)) for t in times]
    section_codes = [sections.setdefault(t.section, len(sections)) for t in times]
    total = sum(sizes)
    starts = [
        np.full(n, at_ns, np.int64) if at_ns is not None else _spread(t, n)
        for t, n in zip(times, sizes, strict=True)
    ]
    return ObservationBatch(
        sources=tuple(sources),
        sections=tuple(sections),
        source=np.repeat(np.array(source_codes, np.int32), sizes),
        section=np.repeat(np.array(section_codes, np.int32), sizes),
        kernel=np.full(total, NO_KERNEL, np.int32),
        step=np.full(total, NO_STEP, np.int64),
        start_ns=np.concatenate([np.empty(0, np.int64), *starts]),
        duration_s=np.concatenate([np.empty(0), *durations]),
        seq=np.full(total, NO_SEQ, np.int64),
    )


def _spread(times: SectionTimes, rows: int) -> Ints:
    """Starts over the interval; neighbours in length lie far apart."""
    length_ns = times.end_ns - times.start_ns if times.start_ns else 0
    order = np.argsort((np.arange(rows) * _GOLDEN) % 1.0, kind="stable")
    indexes = np.empty(rows)
    indexes[order] = (np.arange(rows) + 0.5) / max(rows, 1)
    starts: Ints = times.end_ns - length_ns + (indexes * length_ns).astype(np.int64)
    return starts

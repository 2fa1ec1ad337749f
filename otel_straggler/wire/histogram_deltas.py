"""Histograms as they are sent -> what each adds to the ones before it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace

from otel_straggler.model.rank import Source
from otel_straggler.model.section_times import Buckets, SectionTimes

ADDED = "added"
BASELINE = "baseline"
REPEATED = "repeated"
EMPTY = "empty"
OVER_LIMIT = "over_limit"

_Process = tuple[str, str, int, int, str, str]
_MOST_SERIES = 250_000


@dataclass(slots=True)
class _Newest:
    """The newest point of one series; buckets only if it is cumulative."""

    start_ns: int
    end_ns: int
    buckets: Buckets | None


class HistogramDeltas:
    """Remembers the newest point of every rank's sections.

    A cumulative point adds what it has more than the one before; one that began later than the one
    before is a reset and adds all it has. What is delivered again or late adds nothing. The first
    point of a cumulative series adds all if it began at most ``fresh_s`` before its end; an older
    one is history, from before this process listened, and only the baseline of the next.

    Args:
        fresh_s: see above.
    """

    def __init__(self, fresh_s: float) -> None:
        self._fresh_ns = fresh_s * 1e9
        self._newest: dict[str, dict[tuple[_Process, str], _Newest]] = {}
        self._series = 0
        self.counts: Counter[str] = Counter()

    def take(self, times: SectionTimes) -> SectionTimes | None:
        """What the point adds; None if nothing. ``counts`` says what became of it."""
        fate, added = self._take(times)
        self.counts[fate] += 1
        return added

    def forget(self, run_ids: Iterable[str]) -> None:
        for run_id in run_ids:
            self._series -= len(self._newest.pop(run_id, ()))

    def forget_group(self, run_id: str, group: str) -> None:
        known = self._newest.get(run_id, {})
        for key in [key for key in known if key[0][1] == group]:
            del known[key]
            self._series -= 1

    def _take(self, times: SectionTimes) -> tuple[str, SectionTimes | None]:
        known = self._newest.setdefault(times.source.run_id, {})
        key = process_of(times.source), times.section.name
        before = known.get(key)
        if before is None:
            if self._series >= _MOST_SERIES:
                return OVER_LIMIT, None
            self._series += 1
        elif times.end_ns <= before.end_ns or _began_earlier(times, before):
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


def _began_earlier(times: SectionTimes, before: _Newest) -> bool:
    """Whether a cumulative point is of the time before a reset; a start of 0 is unknown."""
    return times.is_cumulative and 0 < times.start_ns < before.start_ns


def process_of(source: Source) -> _Process:
    """What tells two processes apart."""
    identity = source.run_id, source.group, source.attempt, source.rank
    return *identity, source.session_id, source.node

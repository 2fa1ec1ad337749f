"""Section histograms on their way to the scorer: spans win, ranks are brought together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from otel_straggler.collector.rounds import Rounds
from otel_straggler.model.observation import ObservationBatch
from otel_straggler.model.rank import Source
from otel_straggler.model.rank_metrics import SectionTimes
from otel_straggler.wire.section_rows import ADDED, HistogramDeltas

SPANS_WIN = "spans_win"
_FRESH_S = 300.0
_MOST_PROCESSES = 1_000_000
_MOST_NAMES = 4_096
_Process = tuple[str, int, int, str, str]


class Histograms:
    """Owned by the worker's thread; time is an argument.

    A section that a process sends spans of is scored from its spans alone: a run must not count
    twice.

    Args:
        grace_s: how long a round waits beyond the longest interval of its points.
    """

    def __init__(self, grace_s: float) -> None:
        self._deltas = HistogramDeltas(_FRESH_S)
        self._rounds = Rounds(grace_s)
        self._spans = SectionsInSpans()
        self._won = 0

    def note_spans(self, batch: ObservationBatch) -> None:
        """Remember which sections of which processes come as spans."""
        self._spans.note(batch)

    def take(self, times: SectionTimes, now_ns: int) -> bool:
        """Take one data point; whether it tells of runs that were not told of before."""
        if self._spans.has(times.source, times.section.name):
            self._won += 1
            return False
        added = self._deltas.take(times)
        if added is None:
            return False
        self._rounds.take(added, now_ns)
        return True

    def due(self, now_ns: int) -> list[ObservationBatch]:
        """Rows that can be scored now."""
        return self._rounds.due(now_ns)

    def all(self, now_ns: int) -> list[ObservationBatch]:
        """All rows that are held (end of input)."""
        return self._rounds.all(now_ns)

    def forget(self, run_ids: tuple[str, ...]) -> None:
        self._deltas.forget(run_ids)
        self._rounds.forget(run_ids)
        self._spans.forget(run_ids)

    def forget_group(self, run_id: str, group: str) -> None:
        for each in (self._deltas, self._rounds, self._spans):
            each.forget_group(run_id, group)

    def counts(self) -> dict[str, int]:
        """Data points by what became of them."""
        counts: Counter[str] = Counter(self._deltas.counts)
        counts["scored"] = counts.pop(ADDED, 0)
        counts[SPANS_WIN] = self._won
        return dict(counts)


class SectionsInSpans:
    """Which sections every process sends as spans: a bit per section, so that a hundred thousand
    ranks cost some tens of MB. Of more than a million processes, or 4,096 names, it begins anew."""

    def __init__(self) -> None:
        self._bits: dict[str, int] = {}
        self._of: dict[str, dict[_Process, int]] = {}
        self._processes = 0

    def has(self, source: Source, section: str) -> bool:
        sent = self._of.get(source.run_id, {}).get(_process(source), 0)
        return bool(sent & self._bits.get(section, 0))

    def note(self, batch: ObservationBatch) -> None:
        for source, section in batch.pairs():
            known = self._of.setdefault(source.run_id, {})
            process = _process(source)
            self._make_room(process not in known, section.name not in self._bits)
            if process not in known:
                self._processes += 1
            bit = self._bits.setdefault(section.name, 1 << len(self._bits))
            known[process] = known.get(process, 0) | bit

    def forget(self, run_ids: Iterable[str]) -> None:
        for run_id in run_ids:
            self._processes -= len(self._of.pop(run_id, ()))
        if not self._of:
            self._bits = {}

    def forget_group(self, run_id: str, group: str) -> None:
        known = self._of.get(run_id, {})
        for process in [process for process in known if process[0] == group]:
            del known[process]
            self._processes -= 1

    def _make_room(self, is_new_process: bool, is_new_name: bool) -> None:
        too_many = is_new_process and self._processes >= _MOST_PROCESSES
        if too_many or (is_new_name and len(self._bits) >= _MOST_NAMES):
            self._bits, self._processes = {}, 0
            for known in self._of.values():
                known.clear()


def _process(source: Source) -> _Process:
    return source.group, source.attempt, source.rank, source.session_id, source.node

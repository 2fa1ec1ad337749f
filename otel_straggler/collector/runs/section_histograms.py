"""Section histograms on their way to the scorer: spans win, and ranks are aligned.

Ranks export histograms every minute or so, each at its own time. Unaligned, the window of the first
rank would close before the last has reported it. So their growth is held until every rank has
reported once more, and is then scored together, as rows that begin now: one round. A rank that fell
silent is waited for once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from statistics import median
from typing import Final

from otel_straggler.model.observation import ObservationBatch
from otel_straggler.model.rank import Source
from otel_straggler.model.rank_metrics import SectionTimes
from otel_straggler.otlp.section_rows import (
    ADDED,
    HistogramDeltas,
    NewestPoints,
    process_of,
    rows_of,
    rows_within,
)

SPANS_WIN: Final = "spans_win"
_FRESH_S = 300.0
_MAX_PROCESSES = 1_000_000
_MAX_NAMES = 4_096
_MAX_ROWS = 1_000_000
_MAX_HELD = 200_000
_MAX_INTERVAL_S = 120.0
_Process = tuple[str, str, int, int, str, str]


@dataclass(slots=True)
class _Round:
    """Reports of one attempt's ranks since the round before."""

    expected: frozenset[_Process] | None = None
    """Processes of the round before; None if there was none."""
    interval_ns: float = 0.0
    opened_at_ns: int = 0
    reported: set[_Process] = field(default_factory=set)
    times: list[SectionTimes] = field(default_factory=list)
    ahead_ns: list[int] = field(default_factory=list)
    """Sender's clock at the end of a point minus our clock at its arrival."""
    world_size: int = 0

    def add(self, times: SectionTimes, now_ns: int) -> None:
        if not self.times:
            self.opened_at_ns = now_ns
        if times.start_ns:
            self.interval_ns = max(self.interval_ns, times.end_ns - times.start_ns)
        self.reported.add(process_of(times.source))
        self.world_size = max(self.world_size, times.source.world_size)
        self.times.append(times)
        self.ahead_ns.append(times.end_ns - now_ns)

    def is_due(self, now_ns: int, grace_ns: float) -> bool:
        """Whether every live rank has reported, or had time to."""
        if not self.times or len(self.times) >= _MAX_HELD:
            return bool(self.times)
        if self.expected is None:
            is_complete = 0 < self.world_size <= len(self.reported)
        else:
            is_complete = self.expected <= self.reported
        longest_ns = min(self.interval_ns, _MAX_INTERVAL_S * 1e9)
        return is_complete or now_ns - self.opened_at_ns >= longest_ns + grace_ns

    def rows(self, now_ns: int) -> ObservationBatch:
        max_rows = rows_within(len(self.times), _MAX_ROWS)
        return rows_of(self.times, max_rows, at_ns=now_ns + int(median(self.ahead_ns)))


@dataclass(slots=True)
class WorldHistograms:
    """The newest points of one world, the open round of each attempt, and which sections every
    process sends as spans, a bit each."""

    newest: NewestPoints = field(default_factory=dict)
    rounds: dict[int, _Round] = field(default_factory=dict)
    in_spans: dict[_Process, int] = field(default_factory=dict)
    generation: int = 0
    """Of the bits; see :meth:`SectionHistograms._in_spans`."""


class SectionHistograms:
    """The histograms of all worlds. One thread owns it; time is an argument.

    A section that a process sends as spans is scored from them alone: an execution must not count
    twice. Beyond a million processes, or 4,096 names, these sections are learned again.

    Args:
        grace_s: how long a round waits beyond the longest interval of its points.
    """

    def __init__(self, grace_s: float) -> None:
        self._grace_ns = grace_s * 1e9
        self._deltas = HistogramDeltas(_FRESH_S)
        self._bits: dict[str, int] = {}
        self._processes = self._generation = 0
        self._won = 0

    def observe_spans(
        self, batch: ObservationBatch, world_of: Callable[[Source], WorldHistograms]
    ) -> None:
        """Record which sections of which processes come as spans."""
        for source, section in batch.pairs():
            process, world = process_of(source), world_of(source)
            is_new = process not in self._in_spans(world)
            if (is_new and self._processes >= _MAX_PROCESSES) or (
                section.name not in self._bits and len(self._bits) >= _MAX_NAMES
            ):
                self._bits, self._processes = {}, 0
                self._generation += 1
            known = self._in_spans(world)
            self._processes += process not in known
            bit = self._bits.setdefault(section.name, 1 << len(self._bits))
            known[process] = known.get(process, 0) | bit

    def _in_spans(self, world: WorldHistograms) -> dict[_Process, int]:
        """Bits of the present generation only."""
        if world.generation != self._generation:
            world.in_spans, world.generation = {}, self._generation
        return world.in_spans

    def observe(self, world: WorldHistograms, times: SectionTimes, now_ns: int) -> bool:
        """Hold one data point; whether it has new executions."""
        in_spans = self._in_spans(world).get(process_of(times.source), 0)
        if in_spans & self._bits.get(times.section.name, 0):
            self._won += 1
            return False
        added = self._deltas.observe(times, world.newest)
        if added is None:
            return False
        world.rounds.setdefault(times.source.attempt, _Round()).add(added, now_ns)
        return True

    def drain(
        self, worlds: Iterable[WorldHistograms], now_ns: int, *, is_end: bool = False
    ) -> Iterator[ObservationBatch]:
        """Rows that can be scored now; all of them at the end of input."""
        for world in worlds:
            for attempt, held in world.rounds.items():
                if held.times and (is_end or held.is_due(now_ns, self._grace_ns)):
                    world.rounds[attempt] = _Round(frozenset(held.reported), held.interval_ns)
                    yield held.rows(now_ns)

    def recount(self, worlds: Iterable[WorldHistograms]) -> None:
        """Recount after an eviction; ``worlds`` are left."""
        left = list(worlds)
        self._deltas.n_series = sum(len(world.newest) for world in left)
        self._processes = sum(len(self._in_spans(world)) for world in left)

    def counts(self) -> dict[str, int]:
        """Data points by outcome."""
        counts: Counter[str] = Counter(self._deltas.counts)
        counts["scored"] = counts.pop(ADDED, 0)
        counts[SPANS_WIN] = self._won
        return dict(counts)

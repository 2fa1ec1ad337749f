"""Flight records of one world that hangs: who was asked, who has answered, and what they say."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from otel_straggler.collector.runs.liveness import WorldStatus
from otel_straggler.collector.runs.rank_status import RankStatus
from otel_straggler.detect.hangs.collectives import HangFindings, find_hang
from otel_straggler.model.flight_records import FlightRecord

AGAIN_S: Final = 20.0
"""Ranks are asked again, and then after twice that time, and so on: some had not come yet to the
collective in which they wait by now."""
SILENT_S: Final = 15.0
"""Three heartbeats: a rank that could answer has done so by then."""


@dataclass(slots=True)
class WorldCollectives:
    """Of the present hang. One thread owns it; times are of the collector's clock.

    Attributes:
        records: by rank; None for a rank that has none to give.
    """

    records: dict[int, FlightRecord | None] = field(default_factory=dict)
    _asked_at_s: dict[int, float] = field(default_factory=dict)
    _last_asked_s: float = 0.0
    _pause_s: float = AGAIN_S
    _version: int = 0
    _compared: tuple[object, ...] = ()
    _findings: HangFindings | None = None
    _before: HangFindings | None = None
    _found_at_s: float = 0.0

    def mark_asked(self, ranks: Sequence[int], now_s: float) -> None:
        for rank in ranks:
            self._asked_at_s.setdefault(rank, now_s)
        if ranks:
            self._last_asked_s = now_s

    def is_due(self, now_s: float) -> bool:
        """Whether to ask again. If so, the next time is later."""
        if not self._asked_at_s or now_s - self._last_asked_s < self._pause_s:
            return False
        self._pause_s *= 2.0
        return True

    def observe(self, rank: int, record: FlightRecord | None) -> None:
        """An answer; of ranks that were not asked in this hang, too: a person may ask."""
        self.records[rank] = record
        self._version += 1

    def resume(self, before: HangFindings | None, found_at_s: float) -> None:
        """Go on from what the last process found, until as many ranks have answered again: the
        records themselves are not kept. ``found_at_s``: nobody had moved by then."""
        self._before, self._found_at_s = before, found_at_s

    def clear(self) -> None:
        """The hang is over."""
        self._before = None
        self.records.clear()
        self._asked_at_s.clear()
        self._last_asked_s, self._pause_s = 0.0, AGAIN_S
        self._compared, self._findings = (), None

    def findings(
        self, world: WorldStatus, now_s: float, lost_after_s: float
    ) -> HangFindings | None:
        """What the records of ranks that have not moved since say; None without any. Cost:
        O(ranks), and that of :func:`find_hang` where something has changed."""
        records = [
            record
            for rank, record in self.records.items()
            if record is not None and not _has_moved(world.ranks.get(rank), record)
        ]
        before = self._found_before(world, len(records))
        if before is not None:
            return before
        if not records:
            self._compared, self._findings = (), None
            return None
        silent = frozenset(self._silent(world, now_s, lost_after_s))
        compared = (self._version, silent, tuple(record.rank for record in records))
        if compared != self._compared:
            self._compared = compared
            self._findings = find_hang(records, silent=silent)
        return self._findings

    def _found_before(self, world: WorldStatus, n_records: int) -> HangFindings | None:
        """While it holds: no rank has moved since."""
        before = self._before
        if before is None:
            return None
        at_s = self._found_at_s
        has_moved = any(_moved_after(world.ranks.get(rank), at_s) for rank in before.ranks)
        if has_moved or n_records >= len(before.ranks):
            self._before = before = None
        return before

    def _silent(self, world: WorldStatus, now_s: float, lost_after_s: float) -> Iterable[int]:
        """Ranks that do not answer: asked in vain for a while, lost, or ended."""
        for rank, status in world.ranks.items():
            is_lost = status.silent_s(now_s) > lost_after_s
            asked_at_s = self._asked_at_s.get(rank, now_s)
            is_mute = rank not in self.records and now_s - asked_at_s > SILENT_S
            if is_mute or is_lost or status.finished_at_s is not None:
                yield rank


def _has_moved(status: RankStatus | None, record: FlightRecord) -> bool:
    """Whether a rank has made progress, or was replaced, since its record was read."""
    return _moved_after(status, record.read_at_s)


def _moved_after(status: RankStatus | None, after_s: float) -> bool:
    if status is None:
        return True
    times = status.here(status.progress_at_s), status.here(status.first_sent_at_s)
    return any(at_s is not None and at_s > after_s for at_s in times)

"""Who has launched a collective, and who has not, by the flight records of several ranks.

Records of live ranks were read one after the other, while ranks may still have moved: a rank that
had not launched a call when it was read keeps another one waiting only if that one had been in the
call for a while by then. Records in files are of one moment.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from otel_straggler.model.flight_records import Collective, FlightRecord

MIN_WAIT_S = 2.0
"""Shorter waits of a live rank are part of training."""
_SEEN_S = 1.0
"""NCCL's watchdog sees a completion some 0.1 s late."""


@dataclass(frozen=True, slots=True)
class Members:
    """The members of a call's group.

    Attributes:
        silent: no record, and none to come.
        unjoined: have not launched it.
        unread: no record yet.
        unknown: their records do not say.
        through: have completed it.
    """

    silent: tuple[int, ...] = ()
    unjoined: tuple[int, ...] = ()
    unread: tuple[int, ...] = ()
    unknown: tuple[int, ...] = ()
    through: tuple[int, ...] = ()

    @property
    def is_complete(self) -> bool:
        """Whether it is known of every member that it has joined, and nobody is through."""
        return not (self.silent or self.unjoined or self.unread or self.unknown or self.through)


class Launches:
    """The records of several ranks.

    Args:
        silent: ranks that have no record, and will not have one; None: all without a record, as in
            a folder of dumps.
    """

    def __init__(
        self, records: Iterable[FlightRecord], silent: Collection[int] | None = None
    ) -> None:
        self.by_rank = {record.rank: record for record in records}
        self._silent = None if silent is None else frozenset(silent)
        self._members: dict[Collective, Members] = {}

    @property
    def is_live(self) -> bool:
        return self._silent is not None

    @property
    def missing(self) -> tuple[int, ...]:
        """Members of any group that are silent."""
        groups = {group for record in self.by_rank.values() for group in record.groups}
        ranks = {rank for group in groups for rank in group.ranks}
        return tuple(sorted(rank for rank in ranks if self.is_silent(rank)))

    def is_silent(self, rank: int) -> bool:
        return rank not in self.by_rank and (self._silent is None or rank in self._silent)

    def members_of(self, call: Collective) -> Members:
        """Cost: O(members), once for a call."""
        known = self._members.get(call)
        if known is None:
            known = self._members[call] = self._members_of(call)
        return known

    def _members_of(self, call: Collective) -> Members:
        states: dict[str, list[int]] = {}
        for rank in call.group.ranks:
            states.setdefault(self._state_of(rank, call), []).append(rank)
        states.pop("joined", None)
        return Members(**{name: tuple(ranks) for name, ranks in states.items()})

    def _state_of(self, rank: int, call: Collective) -> str:
        record = self.by_rank.get(rank)
        if record is None:
            return "silent" if self.is_silent(rank) else "unread"
        if record.completed.get(call.group, -math.inf) >= call.sequence:
            return "through"
        enqueued = record.enqueued.get(call.group)
        if enqueued is None:
            return "unknown"
        return "unjoined" if enqueued < call.sequence else "joined"

    def keeps_waiting(self, rank: int, call: Collective, waiting: FlightRecord) -> bool:
        """Whether ``waiting`` was in the call for long enough when ``rank`` was read; for a silent
        rank, when it was read itself."""
        if math.isnan(waiting.read_at_s):
            return True
        awaited = self.by_rank.get(rank)
        read_at_s = waiting.read_at_s if awaited is None else awaited.read_at_s
        return read_at_s - (waiting.read_at_s - call.age_s) >= MIN_WAIT_S

    def is_overtaken(self, record: FlightRecord) -> bool:
        """Whether another member has completed the collective in which this rank still is."""
        for call in record.pending[:1]:
            through = () if call.is_point_to_point else self.members_of(call).through
            return any(
                self._is_behind(record, self.by_rank[r]) for r in through if r != record.rank
            )
        return False

    @staticmethod
    def _is_behind(record: FlightRecord, other: FlightRecord) -> bool:
        return not record.read_at_s - other.read_at_s < _SEEN_S


def waits_long(record: FlightRecord, call: Collective) -> bool:
    """Whether a rank is in a call for long enough to be stuck in it."""
    return math.isnan(record.read_at_s) or call.age_s >= MIN_WAIT_S


def reached(ranks: Iterable[int], edges: dict[int, set[int]]) -> set[int]:
    """All that can be reached from some ranks, themselves included."""
    result: set[int] = set()
    newest = set(ranks)
    while newest:
        result |= newest
        newest = {to for each in newest for to in edges.get(each, ())} - result
    return result


def reversed_edges(edges: dict[int, set[int]]) -> dict[int, set[int]]:
    result: dict[int, set[int]] = {}
    for start, ends in edges.items():
        for end in ends:
            result.setdefault(end, set()).add(start)
    return result


def circles_in(edges: dict[int, set[int]], but: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    """Circles of ranks, in order, that do not lead to any of ``but``."""
    seen = reached(but, reversed_edges(edges))
    circles: list[tuple[int, ...]] = []
    for start in sorted(edges):
        path: list[int] = []
        rank = start
        while rank in edges and rank not in seen and rank not in path:
            path.append(rank)
            rank = min(edges[rank])
        if rank in path:
            circles.append(tuple(path[path.index(rank) :]))
        seen.update(path)
    return tuple(circles)

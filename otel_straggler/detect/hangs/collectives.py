"""Which ranks did not join which collective: from the flight records of a hang.

Every rank waits for the oldest call that it has launched and not seen completed. It waits

- for the members that have not launched that call: they *never joined*;
- if all have, for those that are still in it although another member is through: *their GPU* makes
no progress;
- of a send or receive, for the rank at the other end.

A rank that is waited for and waits for nobody is the cause. Ranks that wait in a circle, or all in
one call that all have joined, are reported as such: the network, or calls in different order. Where
it is not known of a member whether it has joined, that is said, and nobody is blamed.

Source: PyTorch's flight recorder and its analysis of missing and mismatched ranks; MegaScale for
following the chain instead of counting complaints.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from otel_straggler.detect.hangs.launches import (
    Launches,
    circles_in,
    reached,
    reversed_edges,
    waits_long,
)
from otel_straggler.model.flight_records import Collective, FlightRecord, ProcessGroup

Why = Literal["no_dump", "not_through", "never_joined", "other_end"]
_TELLING: tuple[Why, ...] = ("no_dump", "not_through", "never_joined", "other_end")
"""The strongest first."""


@dataclass(frozen=True, slots=True)
class Wait:
    """``rank`` waits in ``call`` for ``awaited``, which is absent in the way of ``why``."""

    rank: int
    awaited: int
    call: Collective
    why: Why


@dataclass(frozen=True, slots=True)
class Cause:
    """A rank that is to blame.

    Attributes:
        why: as the ranks that wait for it directly see it.
        call: in which they wait.
        waiting: all ranks that wait for it, directly or behind others.
        is_silent: its record is missing or empty.
        section, step: where it is by its heartbeats; empty and None if unknown.
    """

    rank: int
    why: Why
    call: Collective
    waiting: tuple[int, ...]
    is_silent: bool
    section: str = ""
    step: int | None = None


@dataclass(frozen=True, slots=True)
class Mismatch:
    """Members of one group called different things under one number."""

    group: ProcessGroup
    sequence: int
    names: Mapping[int, str]


@dataclass(frozen=True, slots=True)
class Uncertain:
    """A call in which ranks wait, and members of which nobody can say whether they have joined."""

    call: Collective
    ranks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class HangFindings:
    """Analysis of the records of a hang.

    Attributes:
        ranks: with records; missing: ranks that must exist and have none.
        causes: ranks that all others wait for, most awaited first.
        stuck_together: calls that all members have joined and none has completed.
        circles: ranks that wait for each other, in order.
        mismatches: different calls under one number.
        uncertain: calls of which it is not known who has not joined.
        ignored: entries of the records that say nothing, by reason.
        is_live: the records were read from live processes.
    """

    ranks: tuple[int, ...]
    causes: tuple[Cause, ...] = ()
    waits: tuple[Wait, ...] = ()
    stuck_together: tuple[Collective, ...] = ()
    circles: tuple[tuple[int, ...], ...] = ()
    mismatches: tuple[Mismatch, ...] = ()
    missing: tuple[int, ...] = ()
    uncertain: tuple[Uncertain, ...] = ()
    ignored: Mapping[str, int] = field(default_factory=dict)
    is_live: bool = False

    @property
    def has_any(self) -> bool:
        """Whether anything is said about the hang."""
        parts = self.causes, self.stuck_together, self.circles, self.mismatches, self.uncertain
        return any(parts)


def find_hang(
    records: Sequence[FlightRecord], *, silent: Collection[int] | None = None
) -> HangFindings:
    """Analyze the records of all ranks.

    Args:
        silent: of live ranks, those that do not answer; None: the records are those of a folder of
            dumps, and who has none is missing.

    Cost: O(waiting ranks * ranks that they wait for, and members of each call).
    """
    launches = Launches(records, silent)
    states = [_State.of(record, launches) for record in records]
    waits = [wait for state in states for wait in state.waits]
    awaited: dict[int, set[int]] = {}
    for wait in waits:
        awaited.setdefault(wait.rank, set()).add(wait.awaited)
    undecided = {state.rank for state in states if state.is_undecided}
    causes = _causes(waits, awaited, undecided, launches)
    blamed = {cause.rank for cause in causes}
    together = dict.fromkeys(state.joint for state in states if state.joint is not None)
    ignored = sum((Counter(record.ignored) for record in records), Counter())
    return HangFindings(
        ranks=tuple(sorted(launches.by_rank)),
        causes=causes,
        waits=tuple(waits),
        stuck_together=tuple(call for call in together if not blamed & {*call.group.ranks}),
        circles=circles_in(awaited, sorted(blamed | undecided)),
        mismatches=_mismatches(records),
        missing=launches.missing,
        uncertain=_uncertain(states, launches),
        ignored=dict(ignored),
        is_live=launches.is_live,
    )


@dataclass(frozen=True, slots=True)
class _State:
    """Of one rank: for whom it waits; the call that all have joined; or that nobody can say."""

    rank: int
    waits: tuple[Wait, ...] = ()
    joint: Collective | None = None
    is_undecided: bool = False
    uncertain: Collective | None = None

    @classmethod
    def of(cls, record: FlightRecord, launches: Launches) -> _State:
        for call in record.pending[:1]:
            if call.is_point_to_point:
                return cls._in_transfer(record, call, launches)
            return cls._in_collective(record, call, launches)
        return cls(record.rank)

    @classmethod
    def _in_transfer(cls, record: FlightRecord, call: Collective, launches: Launches) -> _State:
        rank, peer = record.rank, call.peer
        if peer is None or peer == rank:
            return cls(rank)
        is_known = peer in launches.by_rank or launches.is_silent(peer)
        if not (is_known and launches.keeps_waiting(peer, call, record)):
            return cls(rank, is_undecided=True)
        return cls(rank, (Wait(rank, peer, call, "other_end"),))

    @classmethod
    def _in_collective(cls, record: FlightRecord, call: Collective, launches: Launches) -> _State:
        rank, members = record.rank, launches.members_of(call)
        unjoined = tuple(
            Wait(rank, other, call, "never_joined")
            for other in members.unjoined
            if launches.keeps_waiting(other, call, record)
        )
        silent = tuple(
            Wait(rank, other, call, "no_dump")
            for other in members.silent
            if launches.keeps_waiting(other, call, record)
        )
        if launches.is_live and members.unjoined:
            silent = ()  # it may have joined
        if unjoined or silent:
            return cls(rank, (*silent, *unjoined))
        if members.is_complete and waits_long(record, call):
            return cls(rank, joint=call)
        if members.through and launches.is_overtaken(record):
            return cls(rank)
        is_uncertain = not (members.unread or members.unjoined or members.through)
        uncertain = call if is_uncertain and waits_long(record, call) else None
        return cls(rank, is_undecided=True, uncertain=uncertain)


def _causes(
    waits: Iterable[Wait],
    awaited: Mapping[int, set[int]],
    undecided: Collection[int],
    launches: Launches,
) -> tuple[Cause, ...]:
    direct: dict[int, Wait] = {}
    for wait in waits:
        known = direct.get(wait.awaited)
        if known is None or _TELLING.index(wait.why) < _TELLING.index(known.why):
            direct[wait.awaited] = wait
    waiting_for = reversed_edges(dict(awaited))
    causes = []
    for rank in sorted(direct.keys() - awaited.keys() - set(undecided)):
        record = launches.by_rank.get(rank)
        why, call = direct[rank].why, direct[rank].call
        if record is not None and launches.is_overtaken(record):
            why, call = "not_through", record.pending[0]
        waiting = tuple(sorted(reached([rank], waiting_for) - {rank}))
        causes.append(Cause(rank, why, call, waiting, record is None or not record.calls))
    return tuple(sorted(causes, key=lambda cause: (-len(cause.waiting), cause.rank)))


def _mismatches(records: Iterable[FlightRecord]) -> tuple[Mismatch, ...]:
    names: dict[tuple[ProcessGroup, int], dict[int, str]] = {}
    for record in records:
        for call in record.calls:
            if not call.is_point_to_point:
                names.setdefault((call.group, call.sequence), {})[record.rank] = call.name
    return tuple(
        Mismatch(group, sequence, of_call)
        for (group, sequence), of_call in names.items()
        if len(set(of_call.values())) > 1
    )


def _uncertain(states: Iterable[_State], launches: Launches) -> tuple[Uncertain, ...]:
    calls = dict.fromkeys(state.uncertain for state in states if state.uncertain is not None)
    return tuple(Uncertain(call, launches.members_of(call).unknown) for call in calls)

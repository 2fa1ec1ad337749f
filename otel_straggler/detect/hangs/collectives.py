"""Which ranks did not join which collective: from the flight records of a hang.

Every rank waits for the oldest call that it has launched and not seen completed. It waits

- for the members that have not launched that call: they *never joined*;
- if all have, for those that are still in it although another member is through: *their GPU* makes
no progress;
- of a send or receive, for the rank at the other end.

A rank that is waited for and waits for nobody is the cause. Ranks that wait in a circle, or all in
one call that all have joined, are reported as such: the network, or calls in different order.

Source: PyTorch's flight recorder and its analysis of missing and mismatched ranks; MegaScale for
following the chain instead of counting complaints.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from otel_straggler.model.diagnostics import Collective, FlightRecord, ProcessGroup

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
    """

    rank: int
    why: Why
    call: Collective
    waiting: tuple[int, ...]
    is_silent: bool


@dataclass(frozen=True, slots=True)
class Mismatch:
    """Members of one group called different things under one number."""

    group: ProcessGroup
    sequence: int
    names: Mapping[int, str]


@dataclass(frozen=True, slots=True)
class HangFindings:
    """Analysis of the records of a hang.

    Attributes:
        ranks: with records; missing: ranks that must exist and have none.
        causes: ranks that all others wait for, most awaited first.
        stuck_together: calls that all members have joined and none has completed.
        circles: ranks that wait for each other, in order.
        mismatches: different calls under one number.
    """

    ranks: tuple[int, ...]
    causes: tuple[Cause, ...] = ()
    waits: tuple[Wait, ...] = ()
    stuck_together: tuple[Collective, ...] = ()
    circles: tuple[tuple[int, ...], ...] = ()
    mismatches: tuple[Mismatch, ...] = ()
    missing: tuple[int, ...] = ()


def find_hang(records: Sequence[FlightRecord]) -> HangFindings:
    """Analyze the records of all ranks. Cost: O(ranks * members of a group)."""
    by_rank = {record.rank: record for record in records}
    expected = {rank for record in records for group in record.groups for rank in group.ranks}
    waits: list[Wait] = []
    together: list[Collective] = []
    for record in records:
        for call in record.pending[:1]:
            result = _waits_of(record, call, by_rank)
            waits += result
            is_joint = not result and not call.is_point_to_point
            if is_joint and not _is_overtaken(record, by_rank):
                together.append(call)
    awaited = _awaited_by(waits)
    causes = _causes(waits, awaited, by_rank)
    blamed = {cause.rank for cause in causes}
    return HangFindings(
        ranks=tuple(sorted(by_rank)),
        causes=causes,
        waits=tuple(waits),
        stuck_together=tuple(
            dict.fromkeys(call for call in together if not blamed.intersection(call.group.ranks))
        ),
        circles=_circles(awaited, blamed),
        mismatches=_mismatches(records),
        missing=tuple(sorted(expected - set(by_rank))),
    )


def _waits_of(
    record: FlightRecord, call: Collective, by_rank: Mapping[int, FlightRecord]
) -> list[Wait]:
    if call.is_point_to_point:
        peer = record.rank if call.peer is None else call.peer
        return [Wait(record.rank, peer, call, "other_end")] if peer != record.rank else []
    others = [rank for rank in call.group.ranks if rank != record.rank]
    absent = [rank for rank in others if rank not in by_rank]
    unjoined = [r for r in others if _count(by_rank, r, call.group, "enqueued") < call.sequence]
    return [
        *(Wait(record.rank, rank, call, "no_dump") for rank in absent),
        *(Wait(record.rank, rank, call, "never_joined") for rank in unjoined),
    ]


def _count(
    by_rank: Mapping[int, FlightRecord], rank: int, group: ProcessGroup, which: str
) -> float:
    """The newest collective of the group that a rank has launched or completed. If its record lacks
    the group, nobody can be said to wait for it."""
    record = by_rank.get(rank)
    if record is None:
        return float("inf")
    newest: Mapping[ProcessGroup, int] = getattr(record, which)
    return newest.get(group, float("inf") if which == "enqueued" else float("-inf"))


def _awaited_by(waits: Sequence[Wait]) -> dict[int, set[int]]:
    awaited: dict[int, set[int]] = {}
    for wait in waits:
        awaited.setdefault(wait.rank, set()).add(wait.awaited)
    return awaited


def _causes(
    waits: Sequence[Wait], awaited: Mapping[int, set[int]], by_rank: Mapping[int, FlightRecord]
) -> tuple[Cause, ...]:
    ends = {wait.awaited for wait in waits} - set(awaited)
    causes = []
    for rank in sorted(ends):
        direct = min(
            (wait for wait in waits if wait.awaited == rank), key=lambda w: _TELLING.index(w.why)
        )
        record = by_rank.get(rank)
        is_silent = record is None or not record.calls
        why, call = direct.why, direct.call
        if record is not None and _is_overtaken(record, by_rank):
            why, call = "not_through", record.pending[0]
        causes.append(Cause(rank, why, call, _waiting_for(rank, awaited), is_silent))
    return tuple(sorted(causes, key=lambda cause: (-len(cause.waiting), cause.rank)))


def _is_overtaken(record: FlightRecord, by_rank: Mapping[int, FlightRecord]) -> bool:
    """Whether another member has completed the collective in which this rank still is."""
    for call in record.pending[:1]:
        others = (rank for rank in call.group.ranks if rank != record.rank)
        if call.is_point_to_point:
            return False
        return any(_count(by_rank, r, call.group, "completed") >= call.sequence for r in others)
    return False


def _waiting_for(rank: int, awaited: Mapping[int, set[int]]) -> tuple[int, ...]:
    waiting: dict[int, set[int]] = {}
    for who, whom in awaited.items():
        for one in whom:
            waiting.setdefault(one, set()).add(who)
    return tuple(sorted(_reached(rank, waiting) - {rank}))


def _reached(rank: int, edges: Mapping[int, set[int]]) -> set[int]:
    """All that can be reached from a rank, itself included."""
    result: set[int] = set()
    newest = {rank}
    while newest:
        result |= newest
        newest = {to for each in newest for to in edges.get(each, ())} - result
    return result


def _circles(awaited: Mapping[int, set[int]], blamed: set[int]) -> tuple[tuple[int, ...], ...]:
    """Circles of ranks of which nobody waits for a rank that is to blame."""
    led = {rank for rank in awaited if _reached(rank, awaited) & blamed}
    circles: list[tuple[int, ...]] = []
    seen: set[int] = set(led)
    for start in sorted(awaited):
        path: list[int] = []
        rank = start
        while rank in awaited and rank not in seen and rank not in path:
            path.append(rank)
            rank = min(awaited[rank])
        if rank in path:
            circles.append(tuple(path[path.index(rank) :]))
        seen.update(path)
    return tuple(circles)


def _mismatches(records: Sequence[FlightRecord]) -> tuple[Mismatch, ...]:
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

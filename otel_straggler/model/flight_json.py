"""Flight records on their way from a rank to its collector: the part that tells who waits where.

Untrusted where it is read: types, lengths and numbers are checked.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

from otel_straggler.model.flight_dumps import MAX_SEQUENCE, MAX_TEXT, text_of
from otel_straggler.model.flight_records import Collective, FlightRecord, ProcessGroup
from otel_straggler.strict_json import parse_json

VERSION = 1
MAX_BYTES = 256 * 1024
MAX_GROUPS = 256
MAX_RUNS = 4_096
"""Runs of ranks, of all groups together."""
MAX_MEMBERS = 131_072
MAX_PENDING = 16
MAX_CALLS = MAX_PENDING + 2 * MAX_GROUPS
MAX_RANK = 2**31 - 1
_MAX_REASONS = 20

Json = dict[str, Any]
Runs = tuple[tuple[int, int, int], ...]


def flight_record_json(record: FlightRecord) -> Json:
    """The oldest pending calls, the newest call of each group, and the counts of the groups; those
    with calls first, as far as they fit."""
    calls = _telling(record)
    groups = _fitting(dict.fromkeys((*(call.group for call in calls), *record.groups)))
    numbers = {group: number for number, group in enumerate(groups)}
    return {
        "version": VERSION,
        "groups": [_group_json(group, record) for group in groups],
        "calls": [_call_json(call, numbers) for call in calls if call.group in numbers],
        "ignored": dict(list(record.ignored.items())[:_MAX_REASONS]),
    }


def _telling(record: FlightRecord) -> list[Collective]:
    newest = {(call.group, call.is_point_to_point): call for call in record.calls}
    kept = {*map(id, record.pending[:MAX_PENDING]), *map(id, list(newest.values())[:MAX_GROUPS])}
    return [call for call in record.calls if id(call) in kept]


def _fitting(groups: Iterable[ProcessGroup]) -> list[ProcessGroup]:
    result: list[ProcessGroup] = []
    left = MAX_RUNS
    for group in groups:
        left -= len(_runs_of(group.ranks))
        if left >= 0 and len(result) < MAX_GROUPS and len(group.ranks) <= MAX_MEMBERS:
            result.append(group)
    return result


def _group_json(group: ProcessGroup, record: FlightRecord) -> Json:
    return {
        "name": group.name,
        "description": group.description,
        "backend": group.backend,
        "ranks": _runs_of(group.ranks),
        "enqueued": record.enqueued.get(group),
        "completed": record.completed.get(group),
    }


def _call_json(call: Collective, numbers: Mapping[ProcessGroup, int]) -> Json:
    return {
        "group": numbers[call.group],
        "sequence": call.sequence,
        "name": call.name,
        "is_point_to_point": call.is_point_to_point,
        "peer": call.peer,
        "is_done": call.is_done,
        "age_s": None if math.isnan(call.age_s) else round(call.age_s, 3),
    }


def _runs_of(ranks: Sequence[int]) -> Runs:
    """Ranks as (first, number, distance): groups are regular.

    >>> _runs_of((0, 1, 2, 3, 8, 16, 24))
    ((0, 4, 1), (8, 3, 8))
    """
    runs: list[tuple[int, int, int]] = []
    for rank in ranks:
        first, number, distance = runs[-1] if runs else (rank, 0, 1)
        if number == 1:
            distance = rank - first
        if number and distance > 0 and rank == first + number * distance:
            runs[-1] = first, number + 1, distance
        else:
            runs.append((rank, 1, 1))
    return tuple(runs)


# --- from JSON -----------------------------------------------------------------------------------


def read_flight_record(body: Any, rank: int) -> FlightRecord:
    """The record of ``rank``, from decoded JSON.

    Raises:
        ValueError: it is none.
    """
    try:
        return _record(body, rank)
    except (AttributeError, IndexError, KeyError, OverflowError, TypeError) as error:
        raise ValueError(f"no flight record: {type(error).__name__}: {error}") from error


def _record(body: Json, rank: int) -> FlightRecord:
    if body["version"] != VERSION:
        raise ValueError(f"a flight record of version {str(body['version'])[:20]}")
    rows = _listed(body["groups"], MAX_GROUPS)
    groups = list(_groups(rows))
    reasons = list(body["ignored"].items())[:_MAX_REASONS]
    return FlightRecord(
        rank=rank,
        groups=tuple(groups),
        enqueued=_counts(groups, rows, "enqueued"),
        completed=_counts(groups, rows, "completed"),
        calls=tuple(_call(row, groups) for row in _listed(body["calls"], MAX_CALLS)),
        ignored={text_of(why): _number(n, 0, MAX_SEQUENCE) for why, n in reasons},
    )


def _counts(
    groups: Sequence[ProcessGroup], rows: Sequence[Json], which: str
) -> dict[ProcessGroup, int]:
    return {
        group: _number(row[which], -1, MAX_SEQUENCE)
        for group, row in zip(groups, rows, strict=True)
        if row[which] is not None
    }


def _groups(rows: Sequence[Json]) -> Iterator[ProcessGroup]:
    left = MAX_RUNS
    for row in rows:
        left -= len(row["ranks"])
        if left < 0:
            raise ValueError(f"more than {MAX_RUNS} runs of ranks")
        runs = tuple((int(first), int(n), int(distance)) for first, n, distance in row["ranks"])
        texts = (row[name] for name in ("description", "name", "backend"))
        description, name, backend = (text_of(text)[:MAX_TEXT] for text in texts)
        yield ProcessGroup(description, _ranks_in(runs), name, backend)


@lru_cache(maxsize=64)
def _ranks_in(runs: Runs) -> tuple[int, ...]:
    """Shared by the records of all members, whose groups are compared often."""
    if any(n < 1 or distance < 1 for _, n, distance in runs):
        raise ValueError("a run of ranks without a rank")
    if sum(n for _, n, _ in runs) > MAX_MEMBERS:
        raise ValueError(f"a group of more than {MAX_MEMBERS} ranks")
    if any(first < 0 or first + (n - 1) * distance > MAX_RANK for first, n, distance in runs):
        raise ValueError("a rank that is none")
    return tuple(
        rank for first, n, distance in runs for rank in range(first, first + n * distance, distance)
    )


def _call(row: Json, groups: Sequence[ProcessGroup]) -> Collective:
    age_s, peer = row["age_s"], row["peer"]
    return Collective(
        group=groups[_number(row["group"], 0, MAX_GROUPS)],
        sequence=_number(row["sequence"], 0, MAX_SEQUENCE),
        name=text_of(row["name"])[:MAX_TEXT],
        is_point_to_point=row["is_point_to_point"] is True,
        peer=None if peer is None else _number(peer, 0, MAX_RANK),
        is_done=row["is_done"] is True,
        age_s=_age_s(age_s),
    )


def _listed(value: Any, limit: int) -> list[Json]:
    if not isinstance(value, list) or len(value) > limit:
        raise ValueError(f"a list of up to {limit} is expected")
    return value


def _number(value: Any, lowest: int, highest: int) -> int:
    if type(value) is not int or not lowest <= value <= highest:
        raise ValueError(f"{str(value)[:20]} where a number is expected")
    return value


def _age_s(value: Any) -> float:
    if value is None:
        return math.nan
    if type(value) not in (int, float) or not 0.0 <= value < math.inf:
        raise ValueError(f"{str(value)[:20]} where an age is expected")
    return float(value)


def decoded(body: bytes) -> Any:
    """The JSON of a request.

    Raises:
        ValueError: it is none, or larger than 256 KiB.
    """
    if len(body) > MAX_BYTES:
        raise ValueError(f"{len(body)} bytes of at most {MAX_BYTES}")
    return parse_json(body)

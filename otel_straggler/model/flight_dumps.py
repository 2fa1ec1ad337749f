"""Dumps of PyTorch's flight recorder, once decoded, to flight records.

What the recorder of each backend writes differs: NCCL's has a status by group, with the newest
collective that was launched and completed. Gloo's status counts sends and receives too, and its
entries never become "completed", only "retired": there, entries alone are used.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from otel_straggler.model.flight_records import Collective, FlightRecord, ProcessGroup
from otel_straggler.model.names import clean_name
from otel_straggler.strict_json import parse_json, whole_number

FOREIGN_GROUP = "of a group that is not known"
REPLACED_GROUP = "of an earlier group of the same name"
UNORDERED = "of a group whose sequence numbers go back"
IMPOSSIBLE = "with an impossible sequence number"
MAX_TEXT = 200
MAX_SEQUENCE = 2**63 - 1
_PEERS = re.compile(r"(send|recv) (\d+)(->|<-)(\d+)")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]+")
_ERRORS = (AttributeError, IndexError, KeyError, OverflowError, RecursionError, TypeError)

Entry = Mapping[str, Any]
Groups = Mapping[str, ProcessGroup]


def flight_record_of(
    dump: Mapping[str, Any], rank: int, *, backend: str = "", now_ns: int | None = None
) -> FlightRecord:
    """The record of ``rank``, from its dump.

    Args:
        backend: whose recorder it is; empty if unknown.
        now_ns: the rank's wall clock when it was read, for the age of calls.

    Raises:
        ValueError: the dump is malformed. Entries that only say nothing are counted instead.
    """
    try:
        return _record(dump, rank, backend, now_ns)
    except _ERRORS as error:
        raise ValueError(f"{type(error).__name__}: {error}") from error


def _record(dump: Entry, rank: int, backend: str, now_ns: int | None) -> FlightRecord:
    groups = {
        text_of(name): ProcessGroup(
            text_of(config.get("desc", "")), _ranks(config["ranks"]), text_of(name), backend
        )
        for name, config in dump["pg_config"].items()
    }
    all_entries = list(dump.get("entries") or ())
    status = dump.get("pg_status") or {}
    entries, ignored = _telling(all_entries, groups)
    calls = tuple(_call(entry, groups, rank, now_ns) for entry in entries)
    enqueued = _from_start(all_entries, status, groups) | _newest_calls(calls)
    completed = _newest_completed(calls)
    if not any(_is_gloo(entry) for entry in entries):
        by_number = _groups_by_number(groups, status, entries)
        enqueued |= _newest(by_number, status, "last_enqueued_collective")
        completed |= _newest(by_number, status, "last_completed_collective")
    return FlightRecord(
        rank=rank,
        groups=tuple(groups.values()),
        enqueued=enqueued,
        completed=completed,
        calls=calls,
        ignored=ignored,
    )


def text_of(value: Any) -> str:
    """Of a text or a number. Nested lists that share their parts may be endless as text."""
    if not isinstance(value, str | int | float | None):
        msg = f"a {type(value).__name__} where a text is expected"
        raise TypeError(msg)
    return clean_name(_CONTROL.sub(" ", str(value)), MAX_TEXT)


def _ranks(value: Any) -> tuple[int, ...]:
    numbers = parse_json(value) if isinstance(value, str) else value
    return tuple(int(number) for number in numbers)


# --- which entries count -------------------------------------------------------------------------


def _telling(entries: Sequence[Entry], groups: Groups) -> tuple[list[Entry], dict[str, int]]:
    """Entries of the groups of now, whose sequence numbers ascend; the others counted by reason."""
    number_of = {_name(entry): text_of(entry["pg_id"]) for entry in entries}
    reasons = [_reason(entry, groups, number_of) for entry in entries]
    unordered = _unordered(entry for entry, why in zip(entries, reasons, strict=True) if not why)
    result: list[Entry] = []
    ignored: Counter[str] = Counter()
    for entry, reason in zip(entries, reasons, strict=True):
        why = reason or (UNORDERED if _name(entry) in unordered else "")
        if why:
            ignored[why] += 1
        else:
            result.append(entry)
    return result, dict(ignored)


def _reason(entry: Entry, groups: Groups, number_of: Mapping[str, str]) -> str:
    name = _name(entry)
    if name not in groups:
        return FOREIGN_GROUP
    if text_of(entry["pg_id"]) != number_of[name]:
        return REPLACED_GROUP
    return "" if 0 <= _sequence(entry) <= MAX_SEQUENCE else IMPOSSIBLE


def _unordered(entries: Iterable[Entry]) -> set[str]:
    """Names of groups whose numbers go back: which of them are of now, nobody can say."""
    newest: dict[tuple[str, bool], int] = {}
    result: set[str] = set()
    for entry in entries:
        key, sequence = (_name(entry), bool(entry.get("is_p2p"))), _sequence(entry)
        if sequence < newest.get(key, sequence):
            result.add(key[0])
        newest[key] = sequence
    return result


def _name(entry: Entry) -> str:
    return text_of(entry["process_group"][0])


def _sequence(entry: Entry) -> int:
    return int(entry["p2p_seq_id" if entry.get("is_p2p") else "collective_seq_id"])


def _is_gloo(entry: Entry) -> bool:
    return text_of(entry.get("profiling_name", "")).startswith("gloo:")


# --- the newest of each group --------------------------------------------------------------------


def _from_start(
    entries: Sequence[Entry], status: Mapping[Any, Any], groups: Groups
) -> dict[ProcessGroup, int]:
    """Zero for every group, if the recorder still has all since its beginning: a group without an
    entry has launched nothing. Else an entry may have been overwritten, or reset."""
    if not entries:
        return {} if status else dict.fromkeys(groups.values(), 0)
    first: dict[str, int] = {}
    for entry in entries:
        if not entry.get("is_p2p"):
            first.setdefault(_name(entry), _sequence(entry))
    is_whole = entries[0].get("record_id") == 0 and all(n <= 1 for n in first.values())
    return dict.fromkeys(groups.values(), 0) if is_whole else {}


def _newest_calls(calls: Iterable[Collective]) -> dict[ProcessGroup, int]:
    newest: dict[ProcessGroup, int] = {}
    for call in calls:
        if not call.is_point_to_point:
            newest[call.group] = max(call.sequence, newest.get(call.group, call.sequence))
    return newest


def _newest_completed(calls: Sequence[Collective]) -> dict[ProcessGroup, int]:
    """Of each group, the newest up to which all are done: gloo's threads overtake each other."""
    newest = _newest_calls(call for call in calls if call.is_done)
    for call in calls:
        if not (call.is_done or call.is_point_to_point):
            newest[call.group] = min(newest.get(call.group, call.sequence), call.sequence - 1)
    return newest


def _newest(by_number: Groups, status: Mapping[Any, Any], which: str) -> dict[ProcessGroup, int]:
    newest = {text_of(number): its.get(which) for number, its in status.items()}
    result = {
        group: int(newest[number])
        for number, group in by_number.items()
        if newest.get(number) is not None
    }
    return {group: n for group, n in result.items() if -1 <= n <= MAX_SEQUENCE}


def _groups_by_number(
    groups: Groups, status: Mapping[Any, Any], entries: Iterable[Entry]
) -> dict[str, ProcessGroup]:
    """Groups by the number of their status. Entries say which is which; in a dump without any it is
    the order: both are counted up as groups are made."""
    known = {text_of(entry["pg_id"]): groups[_name(entry)] for entry in entries}
    by_order = dict(
        zip(
            sorted((text_of(number) for number in status), key=_as_number),
            (groups[name] for name in sorted(groups, key=_as_number)),
            strict=False,
        )
    )
    is_ordered = len(status) == len(groups) and all(
        by_order.get(number) == group for number, group in known.items()
    )
    return by_order if is_ordered else known


def _as_number(name: str) -> tuple[int, str]:
    number = whole_number(name)
    return (2**62, name) if number is None else (number, "")


# --- one entry -----------------------------------------------------------------------------------


def _call(entry: Entry, groups: Groups, rank: int, now_ns: int | None) -> Collective:
    group = groups[_name(entry)]
    is_point_to_point = bool(entry.get("is_p2p"))
    name = text_of(entry.get("profiling_name", "")).rpartition(":")[2]
    is_retired = bool(entry.get("retired")) and _is_gloo(entry)
    return Collective(
        group=group,
        sequence=_sequence(entry),
        name=name.split(" ")[0].strip("_") or "call",
        is_point_to_point=is_point_to_point,
        peer=_peer(name, group, rank) if is_point_to_point else None,
        is_done=is_retired or entry.get("state") == "completed",
        age_s=_age_s(entry.get("time_created_ns"), now_ns),
        sizes=tuple(tuple(int(n) for n in size) for size in entry.get("input_sizes") or ()),
        dtypes=tuple(map(text_of, entry.get("input_dtypes") or ())),
    )


def _age_s(created_ns: Any, now_ns: int | None) -> float:
    """NaN for a time that is absent, not positive, or still to come."""
    if now_ns is None or type(created_ns) is not int or not 0 < created_ns <= now_ns:
        return math.nan
    return (now_ns - created_ns) / 1e9


def _peer(name: str, group: ProcessGroup, rank: int) -> int | None:
    """From ``recv 0<-3``: indexes in the group of the rank itself and of its peer."""
    match = _PEERS.search(name)
    if match is None:
        return None
    own, other = int(match.group(2)), int(match.group(4))
    if max(own, other) >= len(group.ranks) or group.ranks[own] != rank:
        return None
    return group.ranks[other]

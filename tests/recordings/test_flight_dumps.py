"""What counts of a flight recorder's dump, and what says nothing and is counted by reason."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_straggler.model.flight_dumps import (
    FOREIGN_GROUP,
    IMPOSSIBLE,
    REPLACED_GROUP,
    UNORDERED,
    flight_record_of,
)
from otel_straggler.model.flight_records import FlightRecord

NOW_NS = 2_000_000_000_000


def entry(number: int, sequence: int, **changes: Any) -> dict[str, Any]:
    """As gloo's recorder writes it: retired, and still "scheduled"."""
    return {
        "record_id": number,
        "pg_id": 0,
        "process_group": ["0", "default_pg"],
        "collective_seq_id": sequence,
        "p2p_seq_id": 0,
        "is_p2p": False,
        "profiling_name": "gloo:all_reduce",
        "state": "scheduled",
        "retired": True,
        "time_created_ns": NOW_NS - 3_000_000_000,
        **changes,
    }


def dump(*entries: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """Of rank 1; gloo's status counts sends and receives as well."""
    return {
        "pg_config": {
            "0": {"desc": "default_pg", "ranks": [0, 1, 2]},
            "1": {"desc": "pair", "ranks": [0, 1]},
        },
        "pg_status": {"0": {"last_enqueued_collective": "9", "last_completed_collective": "9"}},
        "entries": list(entries),
        **changes,
    }


def read(*entries: dict[str, Any], **changes: Any) -> FlightRecord:
    return flight_record_of(dump(*entries, **changes), 1, backend="cpu", now_ns=NOW_NS)


def counts(record: FlightRecord) -> dict[str, tuple[int | None, int | None]]:
    """Enqueued and completed, by group."""
    return {
        str(group): (record.enqueued.get(group), record.completed.get(group))
        for group in record.groups
    }


def test_what_gloo_has_retired_is_done_and_its_status_is_not_used() -> None:
    """Its entries never become "completed", and its status counts sends too."""
    record = read(entry(0, 1), entry(1, 2), entry(2, 3, retired=False))
    assert counts(record) == {"default_pg": (3, 2), "pair": (0, None)}
    [call] = record.pending
    assert (call.sequence, call.age_s) == (3, 3.0)


def test_a_retired_entry_of_nccl_has_timed_out() -> None:
    """It is not done."""
    name = "nccl:all_reduce"
    record = read(
        entry(0, 1, profiling_name=name), entry(1, 2, profiling_name=name, state="completed")
    )
    assert [call.sequence for call in record.pending] == [1]
    assert counts(record)["default_pg"] == (9, 9)


def test_what_is_done_out_of_order_completes_nothing_before_it() -> None:
    """Two threads of gloo: the second collective is done before the first."""
    record = read(entry(0, 1), entry(1, 2, retired=False), entry(2, 3))
    assert counts(record)["default_pg"] == (3, 1)


def test_a_full_ring_says_nothing_of_groups_that_have_left_it() -> None:
    """A group without an entry has launched nothing only if no entry was overwritten or reset."""
    assert counts(read(entry(500, 501), entry(501, 502)))["pair"] == (None, None)
    assert counts(read(entry(0, 501), entry(1, 502)))["pair"] == (None, None)
    assert counts(read(entry(0, 1)))["pair"] == (0, None)


def test_an_empty_recorder_is_of_a_rank_that_has_launched_nothing() -> None:
    """Unless its status says otherwise: then it was reset."""
    assert counts(read(pg_status={})) == {"default_pg": (0, None), "pair": (0, None)}
    assert counts(read(pg_status={"7": {}})) == {"default_pg": (None, None), "pair": (None, None)}


def test_entries_of_a_replaced_group_do_not_count_for_the_one_of_its_name() -> None:
    """As after a restart in the process: the same name, another number, and again from 1."""
    record = read(entry(0, 70), entry(1, 71, retired=False), entry(2, 1, pg_id=4))
    assert counts(record)["default_pg"] == (1, 1)
    assert record.pending == ()
    assert record.ignored == {REPLACED_GROUP: 2}


def test_two_groups_of_the_same_ranks_and_description_are_two() -> None:
    """Told apart by PyTorch's name for them."""
    same = {"desc": "dp", "ranks": [0, 1]}
    groups = {"3": same, "4": same}
    first = entry(0, 5, process_group=["3", "dp"], pg_id=1)
    second = entry(1, 2, process_group=["4", "dp"], pg_id=2)
    record = flight_record_of(dump(first, second, pg_config=groups), 1)
    assert sorted(record.enqueued.values()) == [2, 5]


def test_numbers_that_go_back_make_the_whole_group_say_nothing() -> None:
    """Which of them are of now, nobody can say; other groups count."""
    pair = {"process_group": ["1", "pair"], "pg_id": 1}
    record = read(entry(7, 5), entry(8, 2), entry(9, 6), entry(10, 4, **pair))
    assert counts(record) == {"default_pg": (None, None), "pair": (4, 4)}
    assert record.ignored == {UNORDERED: 3}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"process_group": ["99", "gone"], "pg_id": 9}, FOREIGN_GROUP),
        ({"collective_seq_id": -3}, IMPOSSIBLE),
        ({"collective_seq_id": 10**30}, IMPOSSIBLE),
    ],
)
def test_an_entry_that_says_nothing_is_counted_by_reason(
    changes: dict[str, Any], reason: str
) -> None:
    """And the others count."""
    record = read(entry(5, 4), entry(6, 5, **changes))
    assert record.ignored == {reason: 1}
    assert counts(record)["default_pg"] == (4, 4)


@pytest.mark.parametrize("created", [None, -5, 0, NOW_NS + 1, 1.5, "1", True])
def test_a_time_that_is_absent_or_impossible_is_no_age(created: Any) -> None:
    """Nor is the entry left out."""
    [call] = read(entry(5, 4, time_created_ns=created)).calls
    assert math.isnan(call.age_s)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)
KEYS = sorted({*entry(0, 1), "entries", "pg_config", "pg_status", "ranks", "desc"})


@given(st.data())
def test_whatever_a_dump_has_it_is_read_or_refused(data: st.DataObject) -> None:
    """Values changed anywhere: no other error than that it is none."""
    whole = dump(entry(3, 4), entry(4, 5, is_p2p=True))
    parts: list[dict[str, Any]] = [whole, *whole["entries"], *whole["pg_config"].values()]
    for _ in range(data.draw(st.integers(1, 3))):
        part = data.draw(st.sampled_from(parts))
        part[data.draw(st.sampled_from(KEYS))] = data.draw(JSON)
    try:
        record = flight_record_of(whole, 1, now_ns=NOW_NS)
    except ValueError:
        return
    assert all(call.sequence >= 0 for call in record.calls)
    assert all(call.group in record.groups for call in record.calls)

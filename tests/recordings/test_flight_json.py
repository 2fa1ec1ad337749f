"""Flight records arrive at a collector as far as they matter, and nothing else does."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_straggler.model.flight_json import (
    MAX_BYTES,
    MAX_PENDING,
    decoded,
    flight_record_json,
    read_flight_record,
)
from otel_straggler.model.flight_records import Collective, FlightRecord, ProcessGroup

RANKS = st.lists(st.integers(0, 5_000), min_size=1, max_size=12, unique=True).map(tuple)
GROUPS = st.builds(ProcessGroup, st.sampled_from(["", "dp"]), RANKS, st.text("ab0", max_size=3))


@st.composite
def records(draw: st.DrawFn) -> FlightRecord:
    """Any record of up to four groups."""
    groups = tuple(dict.fromkeys(draw(st.lists(GROUPS, min_size=1, max_size=4))))
    calls = st.builds(
        Collective,
        group=st.sampled_from(groups),
        sequence=st.integers(0, 50),
        name=st.sampled_from(["all_reduce", "barrier"]),
        is_done=st.booleans(),
        age_s=st.floats(0.0, 1e6) | st.just(math.nan),
    )
    newest = st.dictionaries(st.sampled_from(groups), st.integers(-1, 50))
    return FlightRecord(
        rank=3,
        groups=groups,
        enqueued=draw(newest),
        completed=draw(newest),
        calls=tuple(draw(st.lists(calls, max_size=40))),
        ignored=draw(
            st.dictionaries(st.text(max_size=9, alphabet="ab "), st.integers(0, 9), max_size=9)
        ),
    )


def sent(record: FlightRecord) -> FlightRecord:
    body = json.dumps(flight_record_json(record)).encode()
    assert len(body) < MAX_BYTES
    return read_flight_record(decoded(body), record.rank)


@given(records())
def test_what_is_sent_arrives(record: FlightRecord) -> None:
    """Groups and counts; the oldest pending calls, and the newest of each group."""
    arrived = sent(record)
    assert set(arrived.groups) <= set(record.groups)
    assert arrived.enqueued == record.enqueued
    assert arrived.completed == record.completed
    assert arrived.pending[:MAX_PENDING] == record.pending[:MAX_PENDING]
    assert {call.group for call in arrived.calls} == {call.group for call in record.calls}
    assert arrived.ignored == record.ignored


def test_a_large_run_fits() -> None:
    """200 groups of a thousand ranks at some distance, and a thousand pending calls."""
    strided = [ProcessGroup("dp", tuple(range(n, 16_000, 16)), str(n)) for n in range(200)]
    odd = [ProcessGroup("odd", tuple(n * n for n in range(1, 900)), str(n)) for n in range(20)]
    calls = [Collective(group=g, sequence=n, name="x" * 90) for n in range(5) for g in strided]
    record = FlightRecord(rank=0, groups=(*strided, *odd), calls=tuple(calls))
    assert [call.sequence for call in sent(record).pending[:MAX_PENDING]] == [0] * MAX_PENDING
    assert set(strided) <= set(sent(record).groups)


def good() -> dict[str, Any]:
    group = ProcessGroup("default_pg", (0, 1, 2, 3), "0", "cpu")
    call = Collective(group=group, sequence=7, name="all_reduce", age_s=2.5)
    record = FlightRecord(rank=1, groups=(group,), enqueued={group: 7}, calls=(call,))
    return json.loads(json.dumps(flight_record_json(record)))  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("where", "value"),
    [
        ("version", 2),
        ("groups", {}),
        ("groups.0.ranks", [[0, 10**12, 1]]),
        ("groups.0.ranks", [[0, -1, 1]]),
        ("groups.0.ranks", [[0, 2, 0]]),
        ("groups.0.ranks", [[-1, 2, 1]]),
        ("groups.0.ranks", [[0, 1, 1]] * 5_000),
        ("groups.0.ranks", "0-3"),
        ("groups.0.enqueued", 1e300),
        ("groups.0.enqueued", True),
        ("groups.0.name", [[]]),
        ("calls", [{}] * 5_000),
        ("calls.0.group", 1),
        ("calls.0.group", -1),
        ("calls.0.sequence", -1),
        ("calls.0.sequence", 2**70),
        ("calls.0.age_s", -0.5),
        ("calls.0.age_s", math.inf),
        ("calls.0.age_s", math.nan),
        ("calls.0.peer", "1"),
        ("ignored", None),
        ("ignored", {"why": -1}),
    ],
)
def test_what_is_no_record_is_refused(where: str, value: Any) -> None:
    """Numbers out of range, wrong types, lists without an end."""
    body: Any = good()
    part, *path = where.split(".")
    target = body
    for key in path:
        target, part = target[int(part) if part.isdecimal() else part], key
    target[part] = value
    with pytest.raises(ValueError, match=r"."):
        read_flight_record(body, 1)


def test_texts_are_bounded_and_have_no_control_characters() -> None:
    """They are printed, by people's terminals as well."""
    body = good()
    body["groups"][0]["description"] = "a\x1b[31m" + "b" * 5_000
    [group] = read_flight_record(body, 1).groups
    assert "\x1b" not in group.description
    assert len(group.description) <= 200


@given(st.recursive(st.none() | st.integers() | st.floats() | st.text(max_size=4),
                    lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=9), inner)),
       st.sampled_from(["version", "groups", "calls", "ignored", ""]))  # fmt: skip
def test_any_json_is_read_or_refused(value: Any, where: str) -> None:
    """With no other error."""
    body = {**good(), where: value} if where else value
    try:
        read_flight_record(body, 1)
    except ValueError:
        pass
    else:
        assert where in {"ignored", "calls", "groups", "version"}


@pytest.mark.parametrize("body", [b"", b"{", b"[" * 100_000, b"\xff", b" " * (MAX_BYTES + 1)])
def test_a_body_that_is_no_json_is_refused(body: bytes) -> None:
    """Cut off, too deep, too large."""
    with pytest.raises(ValueError, match=r"."):
        decoded(body)

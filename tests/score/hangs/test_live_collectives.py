"""Ranks that are read one after the other while they may still move: nothing false is said."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_straggler.collector.views.collective_json import findings_lines
from otel_straggler.detect.hangs.collectives import HangFindings, find_hang
from otel_straggler.detect.hangs.launches import MIN_WAIT_S
from otel_straggler.model.flight_records import Collective, FlightRecord, ProcessGroup

WORLD = ProcessGroup("world", (0, 1, 2, 3), "0")
PAIR = ProcessGroup("pair", (2, 3), "1")


def record(
    rank: int, launched: int, *, age_s: float | None = None, read_at_s: float = 100.0,
    group: ProcessGroup = WORLD,
) -> FlightRecord:  # fmt: skip
    """A rank that is in the newest collective that it has launched for ``age_s``, or through."""
    is_in = age_s is not None
    call = Collective(
        group=group, sequence=launched, name="all_reduce", age_s=age_s or 0.0, is_done=not is_in
    )
    return FlightRecord(
        rank=rank,
        groups=tuple(dict.fromkeys((WORLD, group))),
        enqueued={group: launched},
        completed={group: launched - is_in},
        calls=(call,),
        read_at_s=read_at_s,
    )


def culprits(result: HangFindings) -> list[tuple[int, str]]:
    return [(cause.rank, cause.why) for cause in result.causes]


def test_a_rank_that_had_not_come_while_others_waited_is_named() -> None:
    """However they were read."""
    waiting = [record(r, 7, age_s=30.0, read_at_s=100.0 + r) for r in (0, 2, 3)]
    for read_at_s in (80.0, 101.0):
        result = find_hang([*waiting, record(1, 6, read_at_s=read_at_s)], silent=())
        assert culprits(result) == [(1, "never_joined")]


def test_a_rank_that_was_read_before_the_others_came_is_not_named() -> None:
    """It may have come with them, or before them."""
    waiting = [record(r, 7, age_s=30.0) for r in (0, 2, 3)]
    assert not find_hang([*waiting, record(1, 6, read_at_s=69.0)], silent=()).has_any


def test_a_wait_that_is_part_of_training_is_none() -> None:
    """A rank that is a moment behind in a run that goes on."""
    waiting = [record(r, 7, age_s=MIN_WAIT_S / 2) for r in (0, 2, 3)]
    assert not find_hang([*waiting, record(1, 6)], silent=()).has_any


def test_a_call_without_a_usable_time_blames_nobody() -> None:
    """How long it lasts is not known."""
    waiting = [record(r, 7, age_s=math.nan) for r in (0, 2, 3)]
    assert not find_hang([*waiting, record(1, 6)], silent=()).has_any


def test_ranks_that_are_not_read_yet_are_not_named() -> None:
    """Nor is it said that all have come; those that do not answer are named."""
    waiting = [record(r, 7, age_s=30.0) for r in (0, 2)]
    assert not find_hang(waiting, silent=()).has_any
    result = find_hang([*waiting, record(3, 7, age_s=20.0)], silent={1})
    assert culprits(result) == [(1, "no_dump")]
    assert not find_hang(waiting, silent=()).missing


def test_a_silent_rank_is_not_named_where_another_has_not_come() -> None:
    """It may have come itself."""
    waiting = [record(r, 7, age_s=30.0) for r in (0, 2)]
    result = find_hang([*waiting, record(1, 6)], silent={3})
    assert culprits(result) == [(1, "never_joined")]


def test_a_rank_whose_own_wait_is_not_understood_is_not_named() -> None:
    """Rank 2 has not come, as it waits for rank 3, which was not read."""
    waiting = [record(r, 7, age_s=30.0) for r in (0, 1)]
    held_up = record(2, 5, age_s=40.0, group=PAIR)
    held_up = FlightRecord(
        rank=2, groups=(WORLD, PAIR), enqueued={WORLD: 6, PAIR: 5}, completed={WORLD: 6, PAIR: 4},
        calls=held_up.calls, read_at_s=100.0,
    )  # fmt: skip
    assert culprits(find_hang([*waiting, held_up], silent=())) == []
    other = FlightRecord(
        rank=3, groups=(WORLD, PAIR), enqueued={WORLD: 6, PAIR: 4}, read_at_s=101.0
    )
    assert culprits(find_hang([*waiting, held_up, other], silent=())) == [(3, "never_joined")]


def test_a_record_that_does_not_say_is_mentioned_and_blames_nobody() -> None:
    """Its ring has overwritten the group."""
    waiting = [record(r, 7, age_s=30.0) for r in (0, 1, 2)]
    unknown = FlightRecord(rank=3, groups=(WORLD,), read_at_s=100.0)
    result = find_hang([*waiting, unknown], silent=())
    assert culprits(result) == []
    assert [(one.call.sequence, one.ranks) for one in result.uncertain] == [(7, (3,))]
    assert result.stuck_together == ()
    assert "whether rank 3 has entered is not in the flight record" in next(findings_lines(result))


def test_all_in_one_call_is_said_only_of_a_long_one() -> None:
    """And only if all were read."""
    for age_s, together in ((30.0, 1), (0.1, 0)):
        result = find_hang([record(r, 7, age_s=age_s) for r in range(4)], silent=())
        assert (len(result.stuck_together), result.causes) == (together, ())


@pytest.mark.parametrize(("later_s", "named"), [(5.0, True), (-5.0, False)])
def test_a_rank_is_behind_only_if_another_was_through_before_it_was_read(
    later_s: float, named: bool
) -> None:
    """Else both may have come through since."""
    others = [record(r, 8, age_s=40.0) for r in (0, 2, 3)]
    late = record(1, 7, age_s=50.0, read_at_s=100.0 + later_s)
    result = find_hang([*others, late], silent=())
    assert culprits(result) == ([(1, "not_through")] if named else [])


# --- runs with a known course ---------------------------------------------------------------------


@st.composite
def courses(draw: st.DrawFn) -> tuple[list[list[float]], list[float], list[float]]:
    """When each rank comes to each collective of a group, when each is over, and when each rank is
    read. A collective is over once all have come; then a rank works, and comes to the next."""
    n_ranks, n_calls = draw(st.integers(2, 5)), draw(st.integers(1, 6))
    work_s = st.floats(0.001, 1.5)
    came_s: list[list[float]] = [[] for _ in range(n_ranks)]
    over_s: list[float] = []
    now_s = 0.0
    for _ in range(n_calls):
        for rank in range(n_ranks):
            came_s[rank].append(now_s + draw(work_s))
        now_s = max(came[-1] for came in came_s)
        over_s.append(now_s)
    read_at_s = draw(st.lists(st.floats(0.0, now_s + 1), min_size=n_ranks, max_size=n_ranks))
    return came_s, over_s, read_at_s


def as_read(
    rank: int, came_s: Sequence[float], over_s: Sequence[float], now_s: float, group: ProcessGroup
) -> FlightRecord:
    calls = tuple(
        Collective(group=group, sequence=n, name="all_reduce", is_done=end_s <= now_s,
                   age_s=now_s - start_s)
        for n, (start_s, end_s) in enumerate(zip(came_s, over_s, strict=True), 1)
        if start_s <= now_s
    )  # fmt: skip
    return FlightRecord(
        rank=rank,
        groups=(group,),
        enqueued={group: len(calls)},
        completed={group: sum(call.is_done for call in calls)},
        calls=calls,
        read_at_s=now_s,
    )


@given(courses())
def test_in_a_run_that_goes_on_nobody_is_ever_named(
    course: tuple[list[list[float]], list[float], list[float]],
) -> None:
    """Whenever its ranks are read: no rank waits for another for long."""
    came_s, over_s, read_at_s = course
    group = ProcessGroup("dp", tuple(range(len(came_s))), "0")
    ranks = enumerate(zip(came_s, read_at_s, strict=True))
    records = [as_read(rank, came, over_s, at_s, group) for rank, (came, at_s) in ranks]
    result = find_hang(records, silent=())
    assert not result.has_any, result


@given(courses(), st.data())
def test_in_a_run_that_is_stuck_only_those_that_have_not_come_are_named(
    course: tuple[list[list[float]], list[float], list[float]], data: st.DataObject
) -> None:
    """Some ranks do not come to the last collective; read at any time after, they are all named."""
    came_s, over_s, read_at_s = course
    n_ranks = len(came_s)
    absent = data.draw(st.sets(st.integers(0, n_ranks - 1), min_size=1, max_size=n_ranks - 1))
    stuck_s = over_s[-1]
    over_s[-1] = math.inf
    for rank in absent:
        came_s[rank][-1] = math.inf
    group = ProcessGroup("dp", tuple(range(n_ranks)), "0")
    for later_s, must_name in ((0.0, False), (stuck_s + 2 * MIN_WAIT_S, True)):
        records = [
            as_read(rank, came, over_s, at_s + later_s, group)
            for rank, (came, at_s) in enumerate(zip(came_s, read_at_s, strict=True))
        ]
        named = {cause.rank for cause in find_hang(records, silent=()).causes}
        assert named <= absent
        assert named == absent or not must_name

"""The first steps of a run and of its attempts; and intervals of time where there are no steps."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from otel_straggler.detect.scores.settings import VerdictSettings
from otel_straggler.detect.verdicts.blocks import AT_ONCE, TimedBlocks, WarmUp
from otel_straggler.model.step_table import StepTable

from .worlds import by_hand, take_ranks, take_sections, usual, with_sources


def let_through(tables: tuple[StepTable, ...]) -> list[int]:
    """Steps that are judged."""
    opening = WarmUp(VerdictSettings())
    ready = [one for table in tables for one in opening.admit(table)]
    ready += opening.finish()
    return [int(step) for table in ready for step in table.steps]


def starting(slow_steps: int, n_steps: int = 60, first_step: int = 0) -> tuple[StepTable, ...]:
    seconds = usual(n_steps, 4)
    seconds[:slow_steps] *= 3.0
    return by_hand(seconds, first_step=first_step)


@pytest.mark.parametrize("first_step", [0, 1])
def test_a_slow_start_is_left_out(first_step: int) -> None:
    """Twenty steps of compilation."""
    steps = let_through(starting(20, first_step=first_step))
    assert steps == list(range(first_step + 20, first_step + 60))


@pytest.mark.parametrize("slow_steps", [0, 60])
def test_that_a_recording_begins_is_no_warm_up(slow_steps: int) -> None:
    """First steps that are like the others count."""
    assert let_through(starting(slow_steps)) == list(range(60))


@pytest.mark.parametrize("first_step", [2, 500])
def test_a_recording_from_the_middle_of_a_run_begins_at_once(first_step: int) -> None:
    """Nobody saw a start, however slow its first steps are."""
    tables = starting(20, first_step=first_step)
    assert WarmUp(VerdictSettings()).admit(tables[0]) == [tables[0]]
    assert let_through(tables) == list(range(first_step, first_step + 60))


def test_ranks_that_were_not_heard_for_a_while_are_known_all_the_same() -> None:
    """Half of the ranks say nothing for some steps, and come back as other processes: a restart,
    although of those that were heard meanwhile nobody is new."""
    (whole,) = by_hand(usual(5, 8))
    opening = WarmUp(VerdictSettings())
    assert not opening.begins_again(whole)
    assert not opening.begins_again(take_ranks(whole, range(4)))
    others = take_ranks(whole, range(4, 8))
    assert not opening.begins_again(others)
    assert not opening.begins_again(take_ranks(whole, range(4)))
    assert opening.begins_again(with_sources(others, lambda s: replace(s, session_id="new")))


def test_of_a_short_run_only_the_slow_steps_are_left_out() -> None:
    """It is over before the warm-up is."""
    assert let_through(starting(5, n_steps=15)) == list(range(5, 15))
    assert let_through(starting(0, n_steps=15)) == list(range(15))


def test_nothing_is_lost_but_the_empty() -> None:
    """Tables without steps or without ranks."""
    opening = WarmUp(VerdictSettings())
    table = starting(0)[0]
    assert opening.admit(take_ranks(table, [])) == []
    assert opening.finish() == []


def restarted(tables: tuple[StepTable, ...], who: range = range(8)) -> list[StepTable]:
    """These ranks are new processes."""
    return [
        with_sources(t, lambda s: replace(s, session_id=f"new{s.rank}") if s.rank in who else s)
        for t in tables
    ]


def test_new_processes_of_most_ranks_are_a_restart_with_a_warm_up() -> None:
    """Of twenty steps; one process that was replaced is none."""
    tables = by_hand(usual(60, 8))
    opening = WarmUp(VerdictSettings())
    assert not opening.begins_again(tables[0])
    assert not opening.is_warming_up(tables[0])
    assert not opening.begins_again(restarted(tables, range(3))[1])
    again = restarted(tables)[2:]
    assert [opening.begins_again(table) for table in again[:2]] == [True, False]
    assert [opening.is_warming_up(t) for t in again[:6]] == [True] * 4 + [False] * 2


def test_a_new_attempt_is_a_restart_also_without_sessions() -> None:
    """Files have no sessions."""
    tables = [with_sources(t, lambda s: replace(s, session_id="")) for t in by_hand(usual(20, 8))]
    opening = WarmUp(VerdictSettings())
    assert not any(opening.begins_again(table) for table in tables)
    assert opening.begins_again(with_sources(tables[0], lambda s: replace(s, attempt=1)))


def test_ranks_that_join_are_no_restart() -> None:
    """However many they are."""
    tables = by_hand(usual(20, 8))
    opening = WarmUp(VerdictSettings())
    seen = [take_ranks(table, range(1 + 2 * at)) for at, table in enumerate(tables)]
    assert not any(opening.begins_again(table) for table in seen)


# --- intervals ------------------------------------------------------------------------------------


def intervals(n: int) -> list[StepTable]:
    return list(by_hand(usual(n, 4), block_steps=1, is_timed=True))


def test_intervals_are_joined_to_blocks() -> None:
    """Three of ten seconds; what is left comes at the end."""
    result, reported = TimedBlocks(), intervals(8)
    blocks = [block for table in reported for block in result.add(table)]
    blocks += result.finish()
    assert [len(block) for block in blocks] == [AT_ONCE, AT_ONCE, 2]
    joined = np.concatenate([block.seconds for block in blocks])
    np.testing.assert_array_equal(joined, np.concatenate([table.seconds for table in reported]))
    assert result.finish() == []


def test_intervals_of_other_ranks_or_sections_are_not_joined() -> None:
    """A block has one set of names."""
    one, two, three, four = intervals(4)
    result = TimedBlocks()
    reported = [one, take_ranks(two, range(3)), take_sections(three, [0, 1]), four]
    blocks = [block for table in reported for block in result.add(table)] + result.finish()
    assert [len(block) for block in blocks] == [1, 1, 1, 1]


def test_where_a_run_has_steps_what_lies_outside_is_left_out() -> None:
    """A step and an interval are no equal lengths of time."""
    result = TimedBlocks()
    (steps,) = by_hand(usual(5, 4))
    assert result.add(intervals(1)[0]) == []
    assert result.add(steps) == [steps]
    assert [result.add(table) for table in intervals(4)] == [[]] * 4
    assert result.finish() == []

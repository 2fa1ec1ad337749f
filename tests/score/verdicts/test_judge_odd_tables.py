"""Whatever the tables hold: no exception, no warning, and nobody is confirmed for nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

import numpy as np
import pytest

from otel_straggler.model.step_table import StepTable

from .worlds import (
    USUAL,
    active,
    by_hand,
    cut,
    ever_confirmed,
    made,
    ranks,
    run_verdicts,
    silent,
    slower,
    take_ranks,
    take_sections,
    usual,
    with_seconds,
    with_sources,
)

STEPS = 60
Change = Callable[[np.ndarray], np.ndarray]
CHANGES: dict[str, Change] = {
    "zeros": lambda s: 0.0 * s,
    "all equal": np.ones_like,
    "nothing known": lambda s: np.nan * s,
    "a step nobody told": lambda s: put(s, np.s_[10:13], np.nan),
    "blocks nobody told": lambda s: put(s, np.s_[20:30], np.nan),
    "sections of no time": lambda s: put(s, np.s_[:, :, 1:], 0.0),
    "blocks of no time": lambda s: put(s, np.s_[20:40], 0.0),
    "one rank with time": lambda s: put(0.0 * s, np.s_[:, 0], 1.0),
    "one cell of twenty lost": lambda s: lost(s, 0.05),
    "one cell of ten lost": lambda s: lost(s, 0.1),
    "one step of ten lost": lambda s: np.where(lost(s, 0.1)[..., :1] > 0, s, np.nan),
    "in years": lambda s: 1e9 * s,
    "in femtoseconds": lambda s: 1e-15 * s,
}


def put(seconds: np.ndarray, where: object, value: float) -> np.ndarray:
    seconds = seconds.copy()
    seconds[where] = value  # type: ignore[call-overload]
    return seconds


def lost(seconds: np.ndarray, part: float) -> np.ndarray:
    rng = np.random.default_rng(seconds.shape[1])
    return np.where(rng.random(seconds.shape) < part, np.nan, seconds)


def assert_nothing_is_confirmed(tables: Iterable[StepTable]) -> None:
    judge = run_verdicts(tables)
    judge.state()
    judge.summary()
    assert ever_confirmed(judge) == set()


@pytest.mark.parametrize("is_reported", [True, False])
@pytest.mark.parametrize("n_ranks", [1, 3, 8])
@pytest.mark.parametrize("change", CHANGES)
def test_odd_times_confirm_nobody(change: str, n_ranks: int, is_reported: bool) -> None:
    """Holes, zeros, one rank, all equal: where there is nothing to compare, nothing is said."""
    sources = ranks(n_ranks) if is_reported else [silent(source) for source in ranks(n_ranks)]
    seconds = CHANGES[change](usual(STEPS, n_ranks))
    assert_nothing_is_confirmed(by_hand(seconds, sources=sources, first_step=0))


@pytest.mark.parametrize("block_steps", [1, 2, 3, 4, 6, 7, 30])
def test_tables_of_any_length_are_judged(block_steps: int) -> None:
    """A healthy run is healthy, and the slow rank is the slow rank."""
    healthy = usual(STEPS, 8)
    assert_nothing_is_confirmed(by_hand(healthy, block_steps=block_steps))
    slow = run_verdicts(by_hand(slower(healthy, 3, 1.5, 20), block_steps=block_steps))
    assert set(active(slow)) == {"rank/node-0/3"}


@pytest.mark.parametrize("world_size", [0, 8])
def test_the_size_of_the_world_need_not_be_known(world_size: int) -> None:
    """Those who were seen are expected then."""
    slow = run_verdicts(by_hand(slower(usual(STEPS, 8), 3, 1.5, 20), world_size=world_size))
    assert set(active(slow)) == {"rank/node-0/3"}


def test_nothing_is_said_while_less_than_four_fifths_of_the_ranks_report() -> None:
    """Who is missing may be the slow one. Coverage is told all the same."""
    slow = slower(usual(STEPS, 8), 3, 1.5)
    few, enough = (run_verdicts(by_hand(slow, world_size=size)) for size in (11, 10))
    assert few.changes == ()
    assert few.summary() is not None
    assert few.summary().coverage == pytest.approx(8 / 11)  # type: ignore[union-attr]
    assert set(active(enough)) == {"rank/node-0/3"}


@pytest.mark.parametrize("column", [0, 1, 2])
def test_one_section_is_enough(column: int) -> None:
    """Also if it is the one that waits."""
    healthy = by_hand(usual(STEPS, 8))
    assert_nothing_is_confirmed(take_sections(table, [column]) for table in healthy)
    slow = run_verdicts(take_sections(t, [1]) for t in by_hand(slower(usual(STEPS, 8), 3, 1.5, 20)))
    assert set(active(slow)) == {"rank/node-0/3"}


@pytest.mark.parametrize("is_reported", [True, False])
def test_empty_tables_between_others_change_nothing(is_reported: bool) -> None:
    """No steps, no ranks or no sections."""
    tables = by_hand(slower(usual(STEPS, 8), 3, 1.5, 20))
    if not is_reported:
        tables = tuple(with_sources(table, silent) for table in tables)
    empty = [cut(tables[0], 0, 0), take_ranks(tables[0], [])]
    result = run_verdicts(part for table in tables for part in (*empty, table))
    assert result.changes == run_verdicts(tables).changes
    assert_nothing_is_confirmed(take_sections(table, []) for table in tables)


@pytest.mark.parametrize("at", [5, 8])
def test_a_rank_that_appears_late_is_no_straggler(at: int) -> None:
    """And one that is slow is found, after it has come."""
    healthy = by_hand(usual(100, 8))
    assert_nothing_is_confirmed(late_rank(healthy, at))
    slow = by_hand(slower(usual(100, 8), 7, 1.5))
    assert set(active(run_verdicts(late_rank(slow, at)))) == {"rank/node-0/7"}


def late_rank(tables: tuple[StepTable, ...], at: int) -> list[StepTable]:
    """The last of 8 is not there in the first tables."""
    return [take_ranks(t, range(7)) if i < at else t for i, t in enumerate(tables)]


def test_a_rank_that_vanishes_is_unknown_and_not_healthy() -> None:
    """A slow one that is gone stays accused; a healthy one is not accused for being gone."""
    healthy, slow = by_hand(usual(100, 8)), by_hand(slower(usual(100, 8), 7, 1.5, 20))
    assert_nothing_is_confirmed(without_the_last(healthy, 10))
    assert set(active(run_verdicts(without_the_last(slow, 10)))) == {"rank/node-0/7"}


def without_the_last(tables: tuple[StepTable, ...], at: int) -> list[StepTable]:
    """The last of 8 is gone from this table on."""
    return [t if i < at else take_ranks(t, range(7)) for i, t in enumerate(tables)]


def test_a_section_that_appears_late_accuses_nobody() -> None:
    """Nor does it hide the rank that is slow in it."""
    slow = by_hand(slower(usual(100, 8), 3, 1.5, 20))
    assert_nothing_is_confirmed(without_data(by_hand(usual(STEPS, 8)), 6))
    assert set(active(run_verdicts(without_data(slow, 6)))) == {"rank/node-0/3"}


def without_data(tables: tuple[StepTable, ...], until: int) -> list[StepTable]:
    """Data loading is not measured in the first tables."""
    return [take_sections(t, [1, 2]) if i < until else t for i, t in enumerate(tables)]


def test_a_section_that_comes_and_goes_accuses_nobody() -> None:
    """Spikes of a rank in it are remembered while nobody runs it."""
    seconds = usual(STEPS, 8)
    seconds[::7, 0, 0] += 2.0
    for gone, value in ((np.s_[40:45, :, 0], np.nan), (np.s_[50:55, :, 0], 0.0)):
        seconds[gone] = value
    judge = run_verdicts(by_hand(seconds))
    assert ever_confirmed(judge) <= {"rank/node-0/0"}
    assert all(np.isfinite(verdict.slowdown) for verdict in judge.changes)


def test_numbers_of_steps_may_have_gaps() -> None:
    """A sampled run: every 17th step. The onset is the step that it was."""
    tables = by_hand(slower(usual(STEPS, 8), 3, 1.5, 20), first_step=0)
    sparse = [replace(table, steps=17 * table.steps) for table in tables]
    (result,) = active(run_verdicts(sparse)).values()
    assert result.since_step is not None
    assert abs(result.since_step - 17 * 20) <= 2 * 17
    assert result.confirmed_step is not None
    assert result.confirmed_step % 17 == 0


def test_without_steps_a_verdict_names_none() -> None:
    """Intervals of ten seconds stand for steps; their numbers mean nothing to anybody."""
    tables = by_hand(slower(usual(100, 8), 3, 1.5, 40), block_steps=1, is_timed=True)
    (result,) = active(run_verdicts(tables)).values()
    assert result.subject_id == "rank/node-0/3"
    assert (result.since_step, result.confirmed_step, result.at_step) == (None, None, None)
    assert result.at_ns > 0
    assert "step" not in result.sentence


def test_a_run_without_sessions_or_nodes_is_judged_by_rank() -> None:
    """Plain spans of somebody else's program tell neither."""
    tables = by_hand(slower(usual(STEPS, 8), 3, 1.5, 20))
    plain = [
        with_sources(t, lambda s: replace(silent(s), node="", local_rank=-1, session_id=""))
        for t in tables
    ]
    assert set(active(run_verdicts(plain))) == {"rank/3"}


def test_telemetry_that_is_lost_in_parts_neither_accuses_nor_hides() -> None:
    """A step of which some sections are lost is not a fast step."""
    for seed in range(2):
        rng = np.random.default_rng(seed)
        lossy = [
            with_seconds(t, np.where(rng.random(t.seconds.shape) < 0.1, np.nan, t.seconds))
            for t in made("dp8", "compute:1.5@rank2:step60", seed=seed)
        ]
        assert ever_confirmed(run_verdicts(lossy)) == {"rank/node-0/2"}


def test_a_new_section_in_steps_that_do_not_count_is_survived() -> None:
    """As an evaluation that nobody declared: its steps take everyone much longer than usual."""
    before = by_hand(usual(60, 6))
    pause = np.full((5, 6, len(USUAL) + 1), 20.0)
    after = by_hand(pause, (*USUAL, ("evaluate", "compute")), first_step=160)
    assert not run_verdicts((*before, *after)).changes

"""Where the time of a step goes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from otel_straggler.detect.verdicts.summary import OUTSIDE, exposed_ledger
from otel_straggler.model.observation import Floats

from .step_tables import step_table

times = st.one_of(st.just(float("nan")), st.just(0.0), st.floats(1e-12, 1e3))
tables = st.tuples(st.integers(1, 6), st.integers(1, 5), st.integers(1, 4)).flatmap(
    lambda shape: arrays(np.float64, shape, elements=times)
)


def sections(seconds: Floats) -> dict[str, str]:
    return {f"section-{s}": "compute" for s in range(seconds.shape[2])}


def slowest_step_s(seconds: Floats) -> float:
    reported = np.isfinite(seconds).any(axis=(1, 2))
    return float(np.nansum(seconds[reported], axis=2).max(axis=1).mean()) if reported.any() else 0.0


@given(tables)
def test_the_lines_add_up_to_the_slowest_ranks_step(seconds: Floats) -> None:
    """Nothing is counted twice, nothing is lost; unknown times are no obstacle."""
    lines = exposed_ledger(step_table(seconds, sections(seconds), wall_s=0.0))
    assert sum(line.exposed_s for line in lines) == pytest.approx(slowest_step_s(seconds))
    assert all(line.exposed_s >= -1e-9 for line in lines)


@given(tables, st.floats(0.001, 1000.0))
def test_the_ledger_does_not_depend_on_the_unit_of_time(seconds: Floats, unit: float) -> None:
    """All seconds scale; the leaders stay."""
    lines = exposed_ledger(step_table(seconds, sections(seconds), wall_s=0.0))
    scaled = exposed_ledger(step_table(seconds * unit, sections(seconds), wall_s=0.0))
    for line, other in zip(lines, scaled, strict=True):
        assert other.exposed_s == pytest.approx(line.exposed_s * unit, abs=1e-9 * unit)
        assert other.typical_s == pytest.approx(line.typical_s * unit, nan_ok=True)


@given(tables, st.randoms(use_true_random=False))
def test_ranks_may_come_in_any_order(seconds: Floats, random: st.DrawFn) -> None:
    """What a section adds does not depend on who is called rank 0."""
    order = list(range(seconds.shape[1]))
    random.shuffle(order)  # type: ignore[attr-defined]
    lines = exposed_ledger(step_table(seconds, sections(seconds)))
    moved = exposed_ledger(step_table(seconds[:, order], sections(seconds)))
    assert [line.exposed_s for line in moved] == pytest.approx([line.exposed_s for line in lines])


def noisy(ranks: int, *means: float) -> Floats:
    random = np.random.default_rng(7)
    return np.array(means) * random.lognormal(0.0, 0.02, (20, ranks, len(means)))


def test_the_rank_that_is_late_leads_from_the_section_that_made_it_late() -> None:
    """Rank 3 is slow in backward; the wait of the others is charged to nobody."""
    seconds = noisy(8, 1.0, 2.0, 0.0)
    seconds[:, 3, 1] *= 1.5
    seconds[:, :, 2] = seconds.sum(axis=2).max(axis=1, keepdims=True) - seconds.sum(axis=2)
    names = {"forward": "compute", "backward": "compute", "all_reduce": "wait"}
    forward, backward, wait = exposed_ledger(step_table(seconds, names, wall_s=0.0))
    assert forward.leader_rank is None  # all alike
    assert backward.leader_rank == 3
    assert backward.exposed_s - backward.typical_s == pytest.approx(1.0, rel=0.1)
    assert wait.exposed_s == pytest.approx(0.0, abs=1e-9)
    assert wait.typical_s == pytest.approx(1.0, rel=0.1)


def test_two_ranks_within_noise_are_no_leader() -> None:
    """Ranks 2 and 5 are slow alike."""
    seconds = noisy(8, 1.0)
    seconds[:, [2, 5]] *= 1.5
    (line,) = exposed_ledger(step_table(seconds, {"forward": "compute"}, wall_s=0.0))
    assert line.leader_rank is None


def test_healthy_ranks_more_do_not_change_the_leader() -> None:
    """Nor what the slow rank adds."""
    few, many = noisy(8, 1.0), noisy(64, 1.0)
    for seconds in (few, many):
        seconds[:, 1] = 1.5
    lines = [exposed_ledger(step_table(s, {"f": "compute"}, wall_s=0.0))[0] for s in (few, many)]
    assert [line.leader_rank for line in lines] == [1, 1]
    assert [line.exposed_s for line in lines] == pytest.approx([1.5, 1.5])


def test_time_in_no_section_is_a_line_of_its_own() -> None:
    """A step of 3 s of which 2 s were measured."""
    table = step_table(np.ones((4, 3, 2)), {"f": "compute", "b": "compute"}, wall_s=3.0)
    lines = exposed_ledger(table)
    assert [(line.section, line.exposed_s) for line in lines] == [
        ("f", 1.0), ("b", 1.0), (OUTSIDE, pytest.approx(1.0)),
    ]  # fmt: skip


def test_a_rank_of_whom_a_step_says_nothing_takes_no_part_in_it() -> None:
    """Rank 1 is the slow one and was heard in three steps of four."""
    seconds = np.ones((4, 2, 1))
    seconds[:, 1] = 2.0
    seconds[0, 1] = np.nan
    (line,) = exposed_ledger(step_table(seconds, {"f": "compute"}, wall_s=0.0))
    assert line.exposed_s == 1.75
    assert line.leader_rank == 1


def test_a_leader_heard_in_some_steps_is_compared_in_those() -> None:
    """Unknown is not early: rank 1 told 9 steps of 20, and came last in them."""
    seconds = noisy(8, 1.0)
    seconds[:9, 1] = 1.5
    seconds[9:, 1] = np.nan
    (line,) = exposed_ledger(step_table(seconds, {"f": "compute"}, wall_s=0.0))
    assert line.leader_rank == 1


def test_a_typical_time_is_the_median_of_the_means_of_those_who_ran_the_section() -> None:
    """Over the steps in which each was heard, be it one."""
    seconds = np.array([[[1.0, 2.0], [3.0, np.nan], [8.0, np.nan]]])
    first, second = exposed_ledger(step_table(seconds, {"f": "compute", "b": "compute"}, wall_s=0))
    assert (first.typical_s, second.typical_s) == (3.0, 2.0)
    more = np.concatenate([seconds, np.full((1, 3, 2), np.nan)])
    more[1, 0] = [5.0, 4.0]
    first, second = exposed_ledger(step_table(more, {"f": "compute", "b": "compute"}, wall_s=0))
    assert (first.typical_s, second.typical_s) == (3.0, 3.0)


def test_nothing_told_is_no_ledger() -> None:
    """No step, no rank, nothing known."""
    for shape in ((0, 2, 1), (2, 0, 1), (2, 2, 1)):
        table = step_table(np.full(shape, np.nan), {"f": "compute"}, wall_s=0.0)
        assert exposed_ledger(table) == ()


def test_one_rank_and_equal_ranks_have_no_leader() -> None:
    """There is nobody to be later than."""
    for ranks in (1, 4):
        table = step_table(np.ones((5, ranks, 1)), {"f": "compute"}, wall_s=0.0)
        assert [line.leader_rank for line in exposed_ledger(table)] == [None]


def test_where_nothing_is_added_nobody_is_last() -> None:
    """A section that only the first to arrive runs: who comes last after it came last before."""
    seconds = np.zeros((40, 4, 2))
    seconds[:, :, 0] = [[1.0, 1.0, 2.0, 1.0]] * 40
    seconds[:, 0, 1] = 0.1
    own, alone, *_ = exposed_ledger(step_table(seconds, {"own": "compute", "alone": "compute"}))
    assert (own.leader_rank, alone.exposed_s, alone.leader_rank) == (2, 0.0, None)

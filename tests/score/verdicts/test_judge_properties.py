"""What must hold of all verdicts, whoever is slow, in whatever unit, called whatever."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from otel_straggler.detect.verdicts.engine import VerdictEngine
from otel_straggler.model.rank import Source

from .worlds import (
    active,
    by_hand,
    ever_confirmed,
    made,
    newest,
    ranks,
    run_verdicts,
    silent,
    slower,
    story,
    take_ranks,
    usual,
    with_seconds,
    with_sources,
)

FEW = settings(max_examples=6)
SEEDS = st.integers(0, 2**16)
RUNS = {
    "a slow rank": ("dp8", "compute:1.3@rank2:step60"),
    "a slow host": ("dp32", "compute:1.15@host1:step60"),
    "late arrivals": ("dp8", "late:0.5@rank2:step60"),
    "slow data loading": ("dp8", "data:0.3@rank5:step60"),
    "all slower": ("dp8", "uniform:1.3:step60"),
    "a slow link": ("dp8", "link:5@rank1:step60"),
    "a pipeline": ("tp1,pp2,dp8", "compute:1.3@rank2:step60"),
}


@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize("factor", [1e-3, 2.0**20])
def test_verdicts_do_not_depend_on_the_unit_of_time(run: str, factor: float) -> None:
    """Every quantity is a ratio."""
    tables = made(*RUNS[run])
    scaled = run_verdicts(with_seconds(t, factor * t.seconds) for t in tables)
    here = run_verdicts(tables)
    assert len(here.changes) > 0
    assert story(scaled) == story(here)


@FEW
@given(SEEDS, st.sampled_from(sorted(RUNS)))
def test_verdicts_do_not_depend_on_the_order_in_which_ranks_are_told(seed: int, run: str) -> None:
    """The same devices are accused of the same."""
    tables = made(*RUNS[run])
    order = np.random.default_rng(seed).permutation(len(tables[0].sources)).tolist()
    assert sorted_story(run_verdicts(take_ranks(t, order) for t in tables)) == sorted_story(
        run_verdicts(tables)
    )


@FEW
@given(SEEDS)
def test_verdicts_go_with_the_device_whatever_its_rank_is(seed: int) -> None:
    """Ranks dealt out anew over the same machines."""
    number = np.random.default_rng(seed).permutation(8).tolist()

    def renumbered(source: Source) -> Source:
        return replace(source, rank=number[source.rank], parallel=(("data", number[source.rank]),))

    tables = made(*RUNS["a slow rank"])
    there = run_verdicts(with_sources(table, renumbered) for table in tables)
    assert story(there) == story(run_verdicts(tables))
    (result,) = active(there).values()
    assert result.rank == number[2]


def sorted_story(judge: VerdictEngine) -> list[str]:
    return sorted(map(str, story(judge)))


@pytest.mark.parametrize("seed", range(3))
def test_a_rank_made_slower_is_confirmed_no_later_and_with_no_smaller_slowdown(seed: int) -> None:
    """The same run with ever larger faults of the same rank."""
    healthy, seen = usual(100, 8, seed=seed), []
    for factor in (1.02, 1.06, 1.1, 1.2, 1.5, 3.0, 30.0):
        verdict = newest(run_verdicts(by_hand(slower(healthy, 3, factor, 50)))).get("rank/node-0/3")
        is_active = verdict is not None and verdict.state == "confirmed"
        at = verdict.confirmed_step if is_active else None  # type: ignore[union-attr]
        seen.append((-(at or 10**6), verdict.slowdown if is_active else 0.0))  # type: ignore[union-attr]
    assert seen == sorted(seen)
    assert seen[0][1] == 0.0
    assert seen[2][1] == pytest.approx(1.1, rel=0.03)
    assert seen[-1][1] == pytest.approx(30.0, rel=0.05)


@pytest.mark.parametrize("more", [8, 56])
def test_more_healthy_peers_are_not_accused_and_do_not_hide_the_slow_one(more: int) -> None:
    """Nor do they change by how much it is slow."""
    few, many = usual(100, 8), usual(100, 8 + more)
    many[:, :8, :2] = few[:, :8, :2]
    result = [run_verdicts(by_hand(slower(s, 3, 1.2, 50))) for s in (few, many)]
    assert [ever_confirmed(judge) for judge in result] == [{"rank/node-0/3"}] * 2
    here, there = (active(judge)["rank/node-0/3"] for judge in result)
    assert there.slowdown == pytest.approx(here.slowdown, rel=0.02)
    assert there.confirmed_step == here.confirmed_step


@FEW
@given(SEEDS, st.sampled_from([0.0, 0.01, 0.05, 0.2]), st.sampled_from([3, 4, 8, 16]))
def test_nobody_is_confirmed_in_a_healthy_run(seed: int, noise: float, n_ranks: int) -> None:
    """However loud its times are, whether roles are told or not, whether it begins or goes on."""
    seconds = usual(80, n_ranks, noise=noise, seed=seed)
    for sources in (ranks(n_ranks), [silent(source) for source in ranks(n_ranks)]):
        judge = run_verdicts(by_hand(seconds, sources=sources, first_step=seed % 2 * 100))
        assert ever_confirmed(judge) == set()


@FEW
@given(SEEDS, st.floats(1.12, 3.0), st.integers(0, 7))
def test_every_verdict_is_in_order(seed: int, factor: float, rank: int) -> None:
    """Its numbers fit each other: steps, sizes, what a person reads."""
    judge = run_verdicts(by_hand(slower(usual(100, 8, seed=seed), rank, factor, 40)))
    for verdict in judge.changes:
        assert 0.0 <= verdict.confidence <= 1.0
        assert verdict.slowdown >= 1.0
        assert verdict.own_s == pytest.approx(verdict.slowdown * verdict.peers_s)
        assert 0.0 <= verdict.gpu_seconds_lost_per_hour <= 8 * 3600.0
        assert str(verdict.rank) in verdict.sentence
        if verdict.state == "confirmed":
            assert verdict.since_step is not None
            assert verdict.confirmed_step is not None
            assert verdict.since_step <= verdict.confirmed_step
            assert verdict.gpu_seconds_lost_per_hour > 0.0
    assert set(active(judge)) == {f"rank/node-0/{rank}"}


def test_a_summary_is_told_from_the_first_block_on() -> None:
    """Step, coverage and what can be resolved; not before."""
    judge = VerdictEngine()
    assert judge.summary() is None
    tables = by_hand(usual(20, 8))
    for table in tables:
        judge.observe(table)
        summary = judge.summary()
        assert summary is not None
        assert summary.coverage == 1.0
        assert summary.step_s == pytest.approx(1.18, rel=0.05)
    assert 1.0 < summary.resolvable_slowdown < 1.25


def test_quieter_times_resolve_smaller_slowdowns() -> None:
    """What cannot be seen yet is said."""
    result = [
        run_verdicts(by_hand(usual(60, 8, noise=noise))).summary() for noise in (0.01, 0.05, 0.2)
    ]
    resolvable = [summary.resolvable_slowdown for summary in result if summary]
    assert resolvable == sorted(resolvable)
    assert 1.03 < resolvable[0] < 1.1 < 1.2 < resolvable[2]

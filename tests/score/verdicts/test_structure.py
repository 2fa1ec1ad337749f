"""How work is spread over the layout: imbalances of a run, which blame no rank."""

from __future__ import annotations

from dataclasses import replace

import pytest

from otel_straggler.score.verdicts.judge import Judge

from .worlds import active, ever_confirmed, judged, made, with_seconds, with_sources


def imbalances(judge: Judge) -> dict[str, str]:
    return {v.subject_id: v.scope for v in active(judge).values()}


@pytest.mark.parametrize("factor", [1.25, 2.0])
def test_a_heavy_last_stage_is_a_stage_imbalance(factor: float) -> None:
    """In proportion to what it has more to do; in any unit of time."""
    tables = made("tp1,pp4,dp4", stage_factor=factor)
    judge = judged(tables)
    assert imbalances(judge) == {"role/pipeline 3/stage_imbalance": "role"}
    (found,) = active(judge).values()
    scaled = judged(with_seconds(table, 1e-3 * table.seconds) for table in tables)
    assert active(scaled)[found.subject_id].slowdown == pytest.approx(found.slowdown)
    assert "of rank time per hour" in found.sentence


def test_a_run_loses_gpu_time_if_any_rank_told_of_a_gpu() -> None:
    """Its imbalances and its summary say so."""
    tables = [with_sources(table, lambda s: replace(s, device_model="H200" * (s.rank == 9)))
              for table in made("tp1,pp4,dp4", stage_factor=2.0)]  # fmt: skip
    judge = judged(tables)
    (found,) = active(judge).values()
    assert "of GPU time per hour" in found.sentence
    summary = judge.summary()
    assert summary is not None
    assert summary.on_gpu


def test_a_heavier_stage_costs_more() -> None:
    """And is no less slow."""
    found = [
        next(iter(active(judged(made("tp1,pp4,dp4", stage_factor=factor))).values()))
        for factor in (1.2, 1.5, 2.0)
    ]
    slowdowns = [verdict.slowdown for verdict in found]
    costs = [verdict.gpu_seconds_lost_per_hour for verdict in found]
    assert slowdowns == sorted(slowdowns)
    assert costs == sorted(costs)


def test_a_slow_rank_of_the_last_stage_is_no_stage_imbalance() -> None:
    """To mend the stage would win less than to mend the rank."""
    judge = judged(made("tp1,pp2,dp4", "compute:2@rank5:step0"))
    assert ever_confirmed(judge) == {"rank/node-0/5"}


@pytest.mark.parametrize("layout", ["dp8", "tp1,pp4,dp4", "tp2,pp2,dp8"])
def test_equal_work_is_no_imbalance(layout: str) -> None:
    """Whatever the layout is; the summary says how much balance would win."""
    judge = judged(made(layout))
    assert ever_confirmed(judge) == set()
    summary = judge.summary()
    assert summary is not None
    assert 1.0 <= summary.slowdown < 1.05
    assert 0.0 <= summary.waste < 0.05


def test_sequences_of_unequal_length_are_the_runs() -> None:
    """The rank that has the long ones changes from step to step."""
    judge = judged(made("dp16", sequence_cv=0.6, steps=160))
    assert imbalances(judge) == {"run/sequence_imbalance": "run"}


def test_experts_of_unequal_load_are_the_runs() -> None:
    """The hot expert is named; no rank is."""
    judge = judged(made("dp16,ep4", expert_cv=0.5, steps=160))
    assert imbalances(judge) == {"run/expert_imbalance": "run"}
    said = next(v.sentence for v in judge.changes if v.cause == "expert_imbalance")
    assert "experts of unequal load, expert 0 the longest in 100 % of the steps." in said


def test_every_worker_has_a_place_in_the_heat_map() -> None:
    """Stage and data rank; a slow one is hot."""
    judge = judged(made("tp1,pp2,dp4", "compute:2@rank5:step0", steps=60))
    summary = judge.summary()
    assert summary is not None
    heat = {(stage, data): value for stage, data, value in summary.heat}
    assert sorted(heat) == [(stage, data) for stage in range(2) for data in range(4)]
    assert max(heat, key=heat.__getitem__) == (1, 1)


def test_without_a_layout_there_is_no_heat_map() -> None:
    """Nobody told who belongs where."""
    tables = made("dp8", tells_topology=False)
    summary = judged(tables).summary()
    assert summary is not None
    assert len(tables) > 0
    assert ever_confirmed(judged(with_sources(t, lambda s: s) for t in tables)) == set()


def test_a_stage_that_was_rebalanced_recovers() -> None:
    """Within the hundred steps that are looked at."""
    heavy, even = (
        made("tp1,pp2,dp4", stage_factor=1.5, steps=100),
        made("tp1,pp2,dp4", stage_factor=1.0, steps=240),
    )
    judge = judged([*heavy, *even[20:]])
    states = [v.state for v in judge.changes if v.cause == "stage_imbalance"]
    assert states[-2:] == ["confirmed", "recovered"]

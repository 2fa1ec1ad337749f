"""The numbers in a verdict, and what keeps a rank from being blamed for others' work."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from otel_straggler.detect.verdicts.engine import VerdictEngine

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
    take_ranks,
    usual,
    with_waiting,
)

STEP_S = 0.05 + 1.0 + 0.1


@pytest.mark.parametrize("n_ranks", [5, 16])
def test_a_verdict_says_by_how_much_over_how_many_and_what_that_costs(n_ranks: int) -> None:
    """A rank takes 1.5 s where its peers take 1 s, and all wait for it."""
    seconds = slower(usual(140, n_ranks, noise=0.005), 3, 1.5, 50)
    (verdict,) = active(run_verdicts(by_hand(seconds))).values()
    assert verdict.section == "forward"
    assert verdict.n_peers == n_ranks - 1
    assert verdict.slowdown == pytest.approx(1.5, rel=0.02)
    assert verdict.own_s == pytest.approx(1.5, rel=0.02)
    assert verdict.peers_s == pytest.approx(1.0, rel=0.02)
    assert verdict.loss_share == pytest.approx(0.5 / (STEP_S + 0.5), rel=0.05)
    cost = verdict.loss_share * n_ranks * 3600.0
    assert verdict.gpu_seconds_lost_per_hour == pytest.approx(cost, rel=0.01)
    assert verdict.since_step in (149, 150, 151)
    assert verdict.confidence > 0.8
    assert verdict.pages


def test_what_taking_steps_returns_is_what_has_changed() -> None:
    """One after the other, each change once: others are told of these."""
    tables = made("dp32", "compute:1.3@rank2:step40", "data:0.4@rank20:step70")
    judge = VerdictEngine()
    reported = [change for table in tables for change in judge.observe(table)]
    reported += judge.finish()
    key = [(v.subject_id, v.state, v.at_step) for v in reported]
    assert key == [(v.subject_id, v.state, v.at_step) for v in judge.changes]
    assert len(key) >= 2


@pytest.mark.parametrize(("reports", "is_named"), [(True, False), (False, True)])
def test_a_rank_that_is_dealt_more_work_is_not_slow(reports: bool, is_named: bool) -> None:
    """If the tokens are told: half as many again, in half as much time again. That tokens cost
    time is learnt from steps that differ."""
    rng = np.random.default_rng(0)
    tokens = rng.uniform(800.0, 1_200.0, (200, 8))
    tokens[100:, 3] *= 1.5
    work_s = usual(200, 8, noise=0.005)[..., :2]
    work_s[..., 1] *= tokens / 1_000.0
    reported = {"tokens": tokens} if reports else {}
    judge = run_verdicts(by_hand(with_waiting(work_s), **reported))
    slow = {v.subject_id for v in judge.changes if v.scope in ("rank", "host")}
    assert slow == ({"rank/node-0/3"} if is_named else set())


def test_where_a_tensor_group_waits_for_itself_nobody_in_it_is_named() -> None:
    """All four take what the slowest takes: each is a suspect, and nobody is called."""
    tables = made("tp4,dp8", "compute:1.3@rank5:step60", timing="synchronised", steps=160)
    judge = run_verdicts(tables)
    assert not [v for v in judge.changes if v.pages]
    assert not {name for name in ever_confirmed(judge) if name.startswith("rank/")}
    suspects = [v for v in newest(judge).values() if v.scope == "rank" and v.state == "suspect"]
    assert {v.rank for v in suspects} <= {4, 5, 6, 7}
    assert suspects
    assert all(v.evidence == "synchronised" and not v.is_localised for v in suspects)


def test_a_host_that_was_always_slower_may_have_other_work_where_nobody_told() -> None:
    """It is shown as a host, not as ranks; nobody is called for it."""
    work_s = usual(100, 24, noise=0.005)[..., :2]
    work_s[:, 8:16, 1] *= 1.4
    sources = [silent(source) for source in ranks(24)]
    judge = run_verdicts(by_hand(with_waiting(work_s), sources=sources))
    assert ever_confirmed(judge) == set()
    assert {(v.scope, v.node) for v in judge.changes} == {("host", "node-1")}
    verdict = newest(judge)["host/node-1"]
    assert verdict.n_peers == 16
    assert (verdict.cause, verdict.is_localised, verdict.pages) == ("unknown", False, False)
    reported = [replace(source, session_id="") for source in ranks(24)]
    assert ever_confirmed(run_verdicts(by_hand(with_waiting(work_s), sources=reported))) == {
        "host/node-1"
    }


def test_how_the_work_is_spread_is_known_after_twenty_steps() -> None:
    """And looked at anew every twenty, before the run has ended."""
    tables = by_hand(usual(45, 8))
    looks = []
    judge = VerdictEngine()
    for table in tables:
        judge.observe(table)
        summary = judge.summary()
        assert summary is not None
        looks.append(summary.slowdown)
    assert np.isnan(looks[:3]).all()
    assert np.isfinite(looks[3:]).all()
    assert len(set(looks[3:7])) == 1
    assert looks[7] != looks[6]


def test_ranks_that_join_have_their_place_in_how_the_work_is_spread() -> None:
    """Eight of sixteen begin later: the heat map has all of them."""
    tables = by_hand(usual(120, 16))
    judge = VerdictEngine()
    for table in (take_ranks(one, range(8)) for one in tables[:12]):
        judge.observe(replace(table, world_size=8))
    few = judge.summary()
    for table in tables[12:]:
        judge.observe(table)
    all_of_them = judge.summary()
    assert few is not None
    assert all_of_them is not None
    assert [len(result.heat) for result in (few, all_of_them)] == [8, 16]


def test_a_slow_rank_of_a_smaller_world_is_not_carried_over_by_its_row() -> None:
    """Where ranks are others, memory by row belongs to nobody; by device it goes on."""
    tables = by_hand(slower(usual(200, 9), 8, 1.4, 20))
    judge = VerdictEngine()
    for table in tables[:20]:
        judge.observe(table)
    assert set(active(judge)) == {"rank/node-1/0"}
    moved = [replace(rank, rank=8 - rank.rank) for rank in ranks(9)]
    for table in tables[20:]:
        judge.observe(replace(table, sources=tuple(moved)))
    assert ever_confirmed(judge) == {"rank/node-1/0"}
    assert newest(judge)["rank/node-1/0"].rank == 0


def test_a_last_step_without_data_is_not_how_long_steps_take() -> None:
    """A loop that calls step() and then finds no more data ends in a step of microseconds, which
    may stand alone in the last block."""
    seconds = usual(141, 4, noise=0.005)
    seconds[-1] = 2e-5
    judge = VerdictEngine()
    for table in by_hand(seconds):
        judge.observe(table)
    judge.finish()
    summary = judge.summary()
    assert summary is not None
    assert summary.step_s == pytest.approx(STEP_S, rel=0.02)
    assert summary.slowest_step_s == pytest.approx(STEP_S, rel=0.02)

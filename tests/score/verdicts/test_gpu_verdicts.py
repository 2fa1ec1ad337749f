"""Verdicts where ranks tell their GPU times: who is named, and what the sentence rests on."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from otel_straggler.detect.scores.step_tables import StepEnds
from otel_straggler.detect.verdicts.engine import VerdictEngine
from otel_straggler.model.step_table import StepTable
from otel_straggler.model.verdict import Verdict

from .gpu_worlds import reordered, scaled, timed, untold, with_gpu, with_holes
from .worlds import (
    USUAL,
    active,
    by_hand,
    ever_confirmed,
    newest,
    run_verdicts,
    slower,
    story,
    usual,
    with_log,
)

FEW = settings(max_examples=6)
SEEDS = st.integers(0, 2**16)
SLOW = "compute:1.25@rank2:step60"
RUNS = {
    "a slow GPU": ("dp8", SLOW),
    "slow in backward": ("pp2,dp8", "backward:1.25@rank3:step60"),
    "slow data loading": ("dp8", "data:0.4@rank5:step60"),
    "all slower": ("dp8", "uniform:1.3:step60"),
    "a slow link": ("dp8", "link:8@rank1:step60"),
    "one of a tensor group": ("tp2,dp8", "compute:1.25@rank2:step60"),
}


def only(judge: VerdictEngine) -> Verdict:
    [verdict] = active(judge).values()
    return verdict


def test_a_slow_gpu_behind_asynchronous_launches_is_named_by_its_kernels() -> None:
    """The host's times say that somebody is slow, and cannot say who."""
    verdict = only(run_verdicts(timed("dp8", SLOW)))
    assert (verdict.rank, verdict.cause, verdict.evidence) == (2, "slow_gpu", "cupti")
    assert verdict.slowdown == pytest.approx(1.25, abs=0.03)
    assert verdict.is_localised
    assert verdict.pages
    assert "slow GPU (cupti)" in verdict.sentence
    host = run_verdicts(timed("dp8", SLOW, gpu_timing="off"))
    assert not active(host)
    assert [v.is_localised for v in newest(host).values()] == [False]


def test_a_section_that_peers_do_not_run_is_no_slow_gpu_by_its_kernels_either() -> None:
    """One rank writes the log, by the host's clock; the kernels of all are alike."""
    sections = (*USUAL[:2], ("logging", "other"), USUAL[2])
    forward = np.arange(4) == 1
    tables = [
        with_gpu(
            t, np.where(forward, t.seconds, np.nan), np.where(forward, 0.0 * t.seconds, np.nan)
        )
        for t in by_hand(with_log(usual(120, 8)[..., :2]), sections=sections)
    ]
    verdict = only(run_verdicts(tables))
    assert (verdict.rank, verdict.cause, verdict.evidence) == (0, "unknown", "host")
    assert "logging, which most of its peers do not run" in verdict.sentence


def test_a_kernel_that_runs_beside_and_costs_ten_per_cent_is_confirmed_within_fifty_steps() -> None:
    """As the issue asks for; on ranks of several stages."""
    verdict = only(run_verdicts(timed("pp2,dp16", "compute:1.10@rank21:step60")))
    assert (verdict.rank, verdict.cause, verdict.evidence) == (21, "slow_gpu", "cupti")
    assert verdict.confirmed_step is not None
    assert verdict.confirmed_step < 60 + 50


def test_a_culprit_in_backward_is_named_although_the_collective_is_inside() -> None:
    """Of time between events that cannot be said: it has the waiting in it."""
    fault = "backward:1.25@rank3:step60"
    verdict = only(run_verdicts(timed("dp8", fault)))
    assert (verdict.rank, verdict.section, verdict.evidence) == (3, "backward", "cupti")
    assert not active(run_verdicts(timed("dp8", fault, gpu_timing="events")))


def test_time_between_events_names_who_is_slow_before_the_collective() -> None:
    """And says what it was measured with."""
    verdict = only(run_verdicts(timed("dp8", "forward:1.4@rank3:step60", gpu_timing="events")))
    assert (verdict.rank, verdict.section, verdict.evidence) == (3, "forward", "events")
    assert "slow GPU (events)" in verdict.sentence


def test_one_of_a_tensor_group_is_told_from_those_who_wait_for_it() -> None:
    """They meet in every layer, and only its own kernels are longer."""
    verdict = only(run_verdicts(timed("tp4,dp8", "compute:1.25@rank9:step60")))
    assert (verdict.rank, verdict.evidence, verdict.is_localised) == (9, "cupti", True)


def test_slow_data_loading_is_found_by_the_hosts_clock() -> None:
    """The GPU does nothing then."""
    verdict = only(run_verdicts(timed("dp8", "data:0.4@rank5:step60")))
    assert (verdict.rank, verdict.cause, verdict.evidence) == (5, "slow_host", "host")
    assert "(" not in verdict.sentence


def test_a_slow_host_a_slow_link_and_a_slow_run_say_what_they_rest_on() -> None:
    """A rank that comes late is seen in who waits least for kernels of communication."""
    host = only(run_verdicts(timed("dp32", "compute:1.25@host1:step60")))
    assert (host.scope, host.node, host.evidence) == ("host", "node-1", "cupti")
    link = only(run_verdicts(timed("dp8", "link:8@rank1:step60")))
    assert (link.cause, link.evidence) == ("link", "cupti")
    run = only(run_verdicts(timed("dp8", "uniform:1.3:step60")))
    assert (run.cause, run.evidence) == ("uniform_slowdown", "cupti")


def test_who_makes_others_wait_is_counted_by_communication_kernels() -> None:
    """The culprit waits least, also in a backward whose launches tell nothing."""
    judge = run_verdicts(timed("dp8", SLOW))
    summary = judge.summary()
    assert summary is not None
    first = summary.waits[0]
    assert first.rank == 2
    assert first.caused_s > 5 * summary.waits[1].caused_s
    assert first.suffered_s < min(wait.suffered_s for wait in summary.waits[1:])


def test_a_compute_section_without_kernels_is_no_slow_gpu() -> None:
    """Where others are timed, a GPU that did nothing is not called slow."""
    tables = []
    for table in by_hand(slower(usual(120, 8), 3, 1.4, onset=60)):
        own, nccl = np.zeros_like(table.seconds), np.zeros_like(table.seconds)
        nccl[..., 2] = table.seconds[..., 2]
        tables.append(with_gpu(table, own, nccl))
    verdict = only(run_verdicts(tables))
    assert (verdict.section, verdict.cause, verdict.evidence) == ("forward", "slow_host", "host")


def test_nobody_is_named_in_a_healthy_run() -> None:
    """By any clock."""
    for way in ("events", "cupti"):
        assert run_verdicts(timed("tp2,pp2,dp8", gpu_timing=way, spikes=0.002)).changes == ()


# --- not all tell ---------------------------------------------------------------------------------


@pytest.mark.parametrize("who", [2, 6])
@pytest.mark.parametrize("first", [0, 40, 80])
def test_a_rank_that_falls_back_to_the_host_makes_nobody_look_slow(who: int, first: int) -> None:
    """Neither itself nor another; the culprit may be missed."""

    def reported(table: StepTable) -> StepTable:
        return untold(table, [who]) if table.steps[0] >= first else table

    for layout in ("dp8", "dp32"):
        judge = run_verdicts(map(reported, timed(layout, SLOW)))
        assert {v.rank for v in judge.changes if v.state == "confirmed"} <= {2}
        assert {v.cause for v in judge.changes} <= {"slow_gpu", "unknown"}


@pytest.mark.parametrize("layout", ["dp8", "dp32"])
def test_a_slow_gpu_that_is_no_longer_seen_is_not_called_mended(layout: str) -> None:
    """Its launches are as short as ever; it stays what it was, with the numbers that it had."""
    tables = timed(layout, SLOW)
    judge = run_verdicts(untold(t, [2]) if t.steps[0] >= 80 else t for t in tables)
    verdict = newest(judge)["rank/node-0/2"]
    assert (verdict.state, verdict.cause, verdict.evidence) == ("confirmed", "slow_gpu", "cupti")
    assert verdict.slowdown == pytest.approx(1.25, abs=0.03)


def test_the_culprit_is_found_beside_a_rank_of_many_that_does_not_tell() -> None:
    """One of 32 is left out, the others are compared."""
    verdict = only(run_verdicts(untold(table, [6]) for table in timed("dp32", SLOW)))
    assert (verdict.rank, verdict.evidence) == (2, "cupti")


def test_late_numbers_now_and_then_hide_nobody() -> None:
    """One in twenty is missing; none is replaced by host time."""
    rng = np.random.default_rng(0)
    verdict = only(run_verdicts(with_holes(table, 0.05, rng) for table in timed("dp8", SLOW)))
    assert (verdict.rank, verdict.evidence) == (2, "cupti")


def test_host_times_beside_gpu_times_that_nobody_goes_by_say_what_they_always_say() -> None:
    """With one rank of eight that never tells, the whole group is judged by the host's clock."""
    plan = {"timing": "local"}
    here = run_verdicts(untold(table, [5]) for table in timed("dp8", SLOW, **plan))
    assert len(here.changes) > 0
    assert story(here) == story(run_verdicts(timed("dp8", SLOW, **plan, gpu_timing="off")))


def test_stages_by_different_clocks_are_not_compared_with_each_other() -> None:
    """The one whose launches are short is not out of balance."""
    plan = {"timing": "asynchronous", "steps": 160}
    judge = run_verdicts(untold(table, [3]) for table in timed("pp2,dp8", **plan))
    assert judge.changes == ()


# --- whatever the numbers -----------------------------------------------------------------------


@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize("factor", [1e-3, 2.0**20])
def test_verdicts_do_not_depend_on_the_unit_of_time(run: str, factor: float) -> None:
    """Every quantity is a ratio."""
    ends = StepEnds()
    tables = [ends.timed(table) for table in timed(*RUNS[run])]
    here = run_verdicts(tables)
    assert len(here.changes) > 0
    assert story(run_verdicts(scaled(table, factor) for table in tables)) == story(here)


@FEW
@given(SEEDS, st.sampled_from(sorted(RUNS)))
def test_verdicts_do_not_depend_on_the_order_in_which_ranks_are_told(seed: int, run: str) -> None:
    """The same devices are accused of the same."""
    tables = timed(*RUNS[run])
    order = np.random.default_rng(seed).permutation(len(tables[0].sources)).tolist()
    there = run_verdicts(reordered(table, order) for table in tables)
    assert story(there) == story(run_verdicts(tables))


@FEW
@given(SEEDS)
def test_any_numbers_are_survived_and_equal_ranks_are_never_named(seed: int) -> None:
    """Zeros, holes, more communication than time; one rank alone, and all alike."""
    rng = np.random.default_rng(seed)
    n_ranks = int(rng.integers(1, 9))
    tables = []
    for table in by_hand(usual(60, n_ranks, noise=0.0)):
        shape = table.seconds.shape
        own, nccl = (
            np.where(rng.random(shape[:1])[:, None, None] < p, 0.0, 1.0) for p in (0.1, 0.3)
        )
        own, nccl = own * table.seconds, nccl * 3.0 * table.seconds
        hole = rng.random(shape) < rng.choice([0.0, 0.05, 0.5])
        tables.append(with_gpu(table, np.where(hole, np.nan, own), np.where(hole, np.nan, nccl)))
    assert not ever_confirmed(run_verdicts(tables))


def test_what_was_learnt_by_one_clock_is_not_taken_for_another_after_a_restart() -> None:
    """A rank whose launches always took a little longer is not expected to have slower kernels."""
    host = [replace(table, gpu=None) for table in timed("dp8")]
    names = [section.name for section in host[0].sections]
    for tables, clock in ((timed("dp8"), " [cupti]"), (host, "")):
        quantities = run_verdicts(tables).state()["memory"]["cusum"]["quantities"]
        assert quantities[1] == "data_loading"
        assert quantities[2:-1] == [f"{name}{clock}" for name in names[1:]]
    own, late = (
        run_verdicts(timed("dp8")).state()["memory"]["cusum"]["quantities"][at] for at in (0, -1)
    )
    assert all("forward [cupti]" in name for name in (own, late))
    judge = VerdictEngine()
    judge.restore(run_verdicts(host).state())
    for table in timed("dp8", SLOW):
        judge.observe(table)
    assert only(judge).rank == 2

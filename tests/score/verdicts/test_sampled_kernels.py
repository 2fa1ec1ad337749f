"""Kernels timed in one step of N, events in all others; and GPU times that never come."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
import pytest

from otel_straggler.detect.scores.scorer import Scorer, ScoreSettings
from otel_straggler.detect.verdicts.clocks import ClockSelector
from otel_straggler.detect.verdicts.excess import excesses, late_seconds
from otel_straggler.detect.verdicts.waits import WaitDetector
from otel_straggler.model.kernels import times_of_counts
from otel_straggler.model.observation import CUPTI, EVENTS, HOST, Section
from otel_straggler.model.step_table import GpuSeconds, StepTable
from otel_straggler.model.verdict import Verdict
from otel_straggler.simulate.auxiliary_metrics import KernelReports
from otel_straggler.simulate.runs import Fault, Layout, RunPlan, generate

from .gpu_worlds import timed, untold
from .worlds import active, by_hand, run_verdicts, usual, world_of

DATA, FORWARD, SYNC = range(3)
SLOW = "compute:1.25@rank2:step60"
NAN = np.nan


def sampled(every: int, n_ranks: int = 8, n_steps: int = 60) -> list[StepTable]:
    """Forward takes 1 s between events, of which kernels are 0.9 s; sync communicates."""
    result = []
    for table in by_hand(usual(n_steps, n_ranks)):
        kernels = np.zeros(table.seconds.shape, bool)
        kernels[table.steps % every == 0] = True
        own_s = np.where(kernels, 0.9 * table.seconds, table.seconds)
        own_s[..., SYNC] = np.where(kernels[..., SYNC], 0.0, own_s[..., SYNC])
        nccl_s = np.where(kernels, 0.0, NAN)
        nccl_s[..., SYNC] = np.where(kernels[..., SYNC], table.seconds[..., SYNC], NAN)
        basis = np.where(kernels, CUPTI, EVENTS).astype(np.uint8)
        result.append(replace(table, gpu=GpuSeconds(basis, own_s, nccl_s)))
    return result


def in_steps(table: StepTable, at: Any, basis: int) -> StepTable:
    """With another basis there; ``HOST``: without times."""
    gpu = table.gpu
    assert gpu is not None
    codes = gpu.basis.copy()
    codes[at] = basis
    own_s, nccl_s = gpu.own_s.copy(), gpu.nccl_s.copy()
    if basis == EVENTS:
        own_s[at] += np.nan_to_num(nccl_s[at])
    if basis == HOST:
        own_s[at] = NAN
    if basis != CUPTI:
        nccl_s[at] = NAN
    return replace(table, gpu=GpuSeconds(codes, own_s, nccl_s))


@pytest.mark.parametrize(("every", "basis"), [(1, CUPTI), (3, EVENTS), (10, EVENTS), (50, EVENTS)])
def test_all_sections_go_by_the_clock_that_most_steps_have(every: int, basis: int) -> None:
    """In every block, whether it holds none, one, or two steps of the other."""
    clocks, blocks = ClockSelector(), sampled(every)
    world = world_of(blocks[0])
    for block in blocks:
        clocks.learn(block, world)
        assert clocks.basis.tolist() == [[HOST, basis, basis]]


def test_of_steps_half_and_half_the_first_clock_stays() -> None:
    """Blocks of five steps have three of one and two of the other in turn."""
    clocks, blocks = ClockSelector(), sampled(2, n_steps=200)
    world = world_of(blocks[0])
    seen = set()
    for block in blocks:
        clocks.learn(block, world)
        seen.add(tuple(clocks.basis[0].tolist()))
    assert len(seen) == 1


@pytest.mark.parametrize("every", [2, 10])
def test_a_step_by_the_other_clock_is_apart_and_not_missing(every: int) -> None:
    """Its data loading is compared as ever; it says nothing of own work; and a section of which
    two of five steps can be compared is."""
    clocks, blocks = ClockSelector(), sampled(every)
    world = world_of(blocks[0])
    for block in blocks[:3]:
        clocks.learn(block, world)
    waiting = WaitDetector()
    timed, _ = clocks.time(block, world, waiting)
    is_other = (block.steps % every == 0) == (clocks.basis[0, FORWARD] == EVENTS)
    assert is_other.any()
    assert timed.apart[:, 0].tolist() == is_other.tolist()
    peers_s, late_s = late_seconds(timed.seconds, world)
    shared = np.zeros(3, bool)
    result = excesses(
        timed.seconds, timed.seconds, peers_s, late_s, world, waiting, shared, 3, timed
    )
    assert np.isfinite(result.ranks[:, :, 1 + DATA]).all()
    assert np.isnan(result.ranks[is_other][..., [0, 1 + FORWARD]]).all()
    assert np.isfinite(result.ranks[~is_other][..., [0, 1 + FORWARD]]).all()
    assert np.isfinite(result.step_s).all()


def test_ranks_that_sample_different_steps_at_first_do_not_change_the_clock() -> None:
    """Self-tests last some steps, and begin on each rank when that is ready."""
    blocks = sampled(50)
    clocks, world = ClockSelector(), world_of(blocks[0])
    for at, block in enumerate(blocks):
        if at < 2:
            for rank in range(8):
                block = in_steps(block, np.s_[(rank + at) % 5, rank], CUPTI)  # noqa: PLW2901
        clocks.learn(block, world)
        assert clocks.basis.tolist() == [[HOST, EVENTS, EVENTS]]
        assert not clocks.time(block, world, WaitDetector())[0].apart[1:].any() or at == 0


def test_a_section_that_never_lies_within_a_step_keeps_its_events() -> None:
    """Where kernels are timed in every step, it is compared by events, the others by kernels."""
    blocks = [in_steps(b, np.s_[..., SYNC], EVENTS) for b in sampled(1)]
    clocks, world = ClockSelector(), world_of(blocks[0])
    for block in blocks:
        clocks.learn(block, world)
    assert clocks.basis.tolist() == [[HOST, CUPTI, EVENTS]]
    assert not clocks.time(blocks[-1], world, WaitDetector())[0].apart.any()


def test_a_section_without_times_of_the_gpu_keeps_the_hosts() -> None:
    """The other sections go by theirs, and the step is compared as a whole."""
    blocks = [in_steps(b, np.s_[..., SYNC], HOST) for b in sampled(10)]
    clocks, world = ClockSelector(), world_of(blocks[0])
    for block in blocks:
        clocks.learn(block, world)
    assert clocks.basis.tolist() == [[HOST, EVENTS, HOST]]
    timed, _ = clocks.time(blocks[-1], world, WaitDetector())
    np.testing.assert_array_equal(timed.seconds[..., SYNC], blocks[-1].seconds[..., SYNC])


@pytest.mark.parametrize("missing", [0.5, 1.0])
def test_steps_of_which_the_times_of_most_ranks_are_missing_are_apart(missing: float) -> None:
    """What they lack is not what a rank has saved."""
    blocks = sampled(50)
    ranks = np.s_[2, : int(8 * missing)]
    blocks[-1] = in_steps(blocks[-1], ranks, HOST)
    clocks, world = ClockSelector(), world_of(blocks[0])
    for block in blocks:
        clocks.learn(block, world)
    timed, _ = clocks.time(blocks[-1], world, WaitDetector())
    assert timed.apart[:, 0].tolist() == [False, False, True, False, False]


@pytest.mark.parametrize("every", [2, 5, 10, 50])
def test_a_slow_gpu_is_named_as_by_events(every: int) -> None:
    """Whatever part of the steps has kernel times; nobody else is."""
    judge = run_verdicts(timed("dp8", SLOW, gpu_sample_every=every, steps=200))
    [verdict] = active(judge).values()
    assert (verdict.rank, verdict.cause) == (2, "slow_gpu")
    assert verdict.section == ("" if every == 2 else "forward")  # events of backward hold waiting
    assert verdict.slowdown == pytest.approx(1.25, abs=0.04)
    assert verdict.evidence == ("cupti" if every == 2 else "events")


@pytest.mark.parametrize("every", [2, 10, 50])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_healthy_run_has_no_verdict_however_often_kernels_are_timed(
    every: int, seed: int
) -> None:
    """Kernels take less than the time between events: a mixture would look like a change."""
    plan = {"gpu_sample_every": every, "seed": seed, "gpu_missing": 0.02, "steps": 200}
    assert not active(run_verdicts(timed("dp8", **plan)))


@pytest.mark.parametrize("every", [2, 10])
def test_slow_data_loading_is_found_in_sampled_steps_too(every: int) -> None:
    """The host's clock is the same in all of them."""
    judge = run_verdicts(timed("dp8", "data:0.4@rank5:step60", gpu_sample_every=every, steps=200))
    [verdict] = active(judge).values()
    assert (verdict.rank, verdict.section) == (5, "data_loading")


# --- no time is lost to a tier -------------------------------------------------------------------

FAULTS = {
    "slow GPU": (SLOW, {}),
    "slow in backward": ("backward:1.4@rank3:step60", {}),
    "slow data loading": ("data:0.4@rank5:step60", {}),
    "healthy": ("", {}),
    "all slower": ("uniform:1.3:step60", {}),
    "by collectives": ("backward:1.4@rank3:step60", {"report_collectives": True}),
    "local work": (SLOW, {"timing": "local"}),
}
TIERS = ("events", "cupti", "cupti, 1 in 10")


@lru_cache(maxsize=16)
def story_of(fault: str, tier: str, *plan: tuple[str, Any]) -> tuple[list[Verdict], list[Section]]:
    """Changes of verdicts and scored sections of a run through the scorer, as a collector has."""
    timing, _, every = tier.partition(", 1 in ")
    changes: dict[str, Any] = {"timing": "synchronised", "steps": 160, "spikes": 0.0}
    if timing != "off":
        changes |= {"gpu_missing": 1.0, "gpu_sample_every": int(every or 1)}
    faults = (Fault.parse(fault),) if fault else ()
    made = RunPlan(
        layout=Layout.parse("dp8"), faults=faults, gpu_timing=timing, **{**changes, **dict(plan)}
    )
    scorer = Scorer(ScoreSettings())
    for rows in generate(made).batches():
        scorer.observe(rows, 0)
    windows = scorer.close_all()
    [verdicts] = [scorer.verdicts(window.run_id) for window in windows[-1:]]
    return list(verdicts.changes), list(windows[-1].sections)


@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize("name", FAULTS)
def test_a_tier_whose_times_are_all_missing_gives_the_verdicts_of_off(name: str, tier: str) -> None:
    """The same changes, with the same numbers, and every section is scored."""
    fault, plan = FAULTS[name]
    changes, sections = story_of(fault, tier, *plan.items())
    off, sections_of_off = story_of(fault, "off", *plan.items())
    assert changes == off
    assert sections == sections_of_off
    assert bool(off) == (name != "healthy")


@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize("missing", [0.1, 0.5, 0.95])
def test_slow_data_loading_is_named_whatever_part_of_the_gpu_times_is_missing(
    missing: float, tier: str
) -> None:
    """A little later at most: its own times are those of the host in any case."""
    plan = {"report_collectives": True, "gpu_missing": missing}
    changes, _ = story_of("data:0.4@rank5:step60", tier, *plan.items())
    assert [(v.rank, v.section, v.state) for v in changes[-1:]] == [
        (5, "data_loading", "confirmed")
    ]


@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize("missing", [0.7, 0.95])
def test_waiting_in_collectives_is_taken_off_where_the_gpu_times_few_steps(
    missing: float, tier: str
) -> None:
    """A rank that is slow in backward is named by what it does not wait, as without the tier."""
    plan = {"report_collectives": True, "gpu_missing": missing, "noise": "AR"}
    changes, _ = story_of("backward:1.4@rank3:step60", tier, *plan.items())
    named = [v for v in changes if v.state == "confirmed"]
    assert {(v.rank, v.section, v.evidence) for v in named} == {(3, "backward", "collective")}


def test_times_that_cease_leave_the_hosts_in_their_place() -> None:
    """A tier that is left in the middle of a run: the fault that follows is named as without."""
    fault = "data:0.4@rank5:step90"
    whole = timed("dp8", fault, gpu_sample_every=10, steps=240)
    judge = run_verdicts([untold(t, range(8)) if t.steps[0] >= 60 else t for t in whole])
    assert [(v.rank, v.section) for v in active(judge).values()] == [(5, "data_loading")]


def test_every_window_has_the_scores_of_the_newest_sample_and_their_age() -> None:
    """Windows of 20 steps, kernels in steps 0, 50, 100 and 150: none without, and references
    are those of samples, so that a GPU as fast as ever has met its best."""
    made = RunPlan(
        layout=Layout.parse("dp8"), steps=160, timing="asynchronous", gpu_timing="cupti",
        gpu_sample_every=50, faults=(Fault.parse("compute:1.3@rank2:step0"),), spikes=0.0,
        noise="AR", common_mode=0.0,
    )  # fmt: skip
    scorer, reports = Scorer(ScoreSettings(window_steps=20)), KernelReports()
    for rows in generate(made).batches():
        scorer.observe(rows, 0)
        for step in np.unique(rows.step).tolist():
            reports.add(rows.take(rows.step == step))
            since_ns, until_ns, kernels = reports.drain()
            for code, counts in kernels.items():
                scorer.observe_kernels(
                    times_of_counts(counts, rows.sources[code], since_ns, until_ns)
                )
    windows = scorer.close_all()
    assert [window.first_step for window in windows] == list(range(0, 160, 20))
    for window in windows:
        np.testing.assert_allclose(window.gpu_relative[2], 1 / 1.3, atol=0.03)
        assert window.gpu_individual.min() > 0.95
    steps_s = [(window.end_ns - window.start_ns) / 20e9 for window in windows]
    ages = [window.gpu_age_s / step_s for window, step_s in zip(windows, steps_s, strict=True)]
    # Step 100 begins before the last rank has ended step 99.
    assert ages == pytest.approx([19, 39, 9, 29, 0, 19, 39, 9], rel=0.05)

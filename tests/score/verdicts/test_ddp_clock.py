"""Verdicts where DDP's own timers time forward and backward, and nothing else does."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from otel_straggler.detect.verdicts.engine import VerdictEngine
from otel_straggler.model.observation import COLLECTIVE, CUPTI, DDP, HOST
from otel_straggler.model.step_table import GpuSeconds, StepTable

from .gpu_worlds import timed, untold
from .test_clocks import chosen, learnt, time
from .worlds import active, run_verdicts

TIMED = ("forward", "backward")
SLOW = "backward:1.3@rank2:step60"


def by_ddp(tables: tuple[StepTable, ...], every: int = 1) -> list[StepTable]:
    """The same runs where DDP samples every so many steps, and kernels are not timed."""
    return [_by_ddp(table, every) for table in tables]


def _by_ddp(table: StepTable, every: int) -> StepTable:
    assert table.gpu is not None
    is_timed = np.array([section.name in TIMED for section in table.sections])
    is_told = is_timed & (table.gpu.basis == CUPTI) & (table.steps % every == 0)[:, None, None]
    times = (np.where(is_told, column, np.nan) for column in (table.gpu.own_s, table.gpu.nccl_s))
    return replace(table, gpu=GpuSeconds(np.where(is_told, DDP, HOST).astype(np.uint8), *times))


def columns(table: StepTable) -> list[int]:
    return [at for at, section in enumerate(table.sections) if section.name in TIMED]


def without_gpu(tables: list[StepTable]) -> list[StepTable]:
    return [replace(table, gpu=None) for table in tables]


def test_sections_that_ddp_times_go_by_its_timers() -> None:
    """Of the others the host's clock is left; waiting is what communication was exposed."""
    blocks = by_ddp(timed("dp8"))
    clocks, world = learnt(blocks[:6])
    by_section = dict(zip([s.name for s in world.sections], chosen(clocks), strict=True))
    assert {name for name, code in by_section.items() if code == DDP} == set(TIMED)
    assert {code for name, code in by_section.items() if name not in TIMED} == {HOST}
    assert clocks.tells_waiting.tolist() == [True]
    block = world.align(blocks[5])
    result = time(block, clocks, world)
    assert block.gpu is not None
    at = columns(block)
    np.testing.assert_array_equal(result.seconds[..., at], block.gpu.own_s[..., at])
    np.testing.assert_array_equal(result.host_s, block.seconds)
    assert result.evidence_of(0, at[0]) == result.evidence_of_waiting(0) == "events"
    assert result.has_gpu(0)
    assert not result.all_by_kernels()
    assert {"forward [ddp]", "backward [ddp]"} <= set(clocks.names(world))


@pytest.mark.parametrize("section", TIMED)
def test_a_gpu_slow_where_its_host_does_not_wait_is_named_by_ddps_timers(section: str) -> None:
    """With its dose, and by events as evidence; by the host's clock nobody is."""
    tables = by_ddp(timed("dp8", f"{section}:1.3@rank2:step60"))
    [verdict] = active(run_verdicts(tuple(tables))).values()
    assert (verdict.rank, verdict.section, verdict.evidence) == (2, section, "events")
    assert verdict.cause == "slow_gpu"
    assert verdict.is_localised
    assert verdict.slowdown == pytest.approx(1.3, rel=0.04)
    assert not [
        one
        for one in active(run_verdicts(tuple(without_gpu(tables)))).values()
        if one.rank is not None
    ]


@pytest.mark.parametrize("layout", ["dp4", "dp8"])
def test_ddps_timers_name_whom_kernels_name(layout: str) -> None:
    """Slow in forward and backward, by the same dose: what the host waits for its GPU elsewhere is
    not added to it."""
    run = timed(layout, "compute:1.3@rank2:step60")
    [by_timers] = active(run_verdicts(tuple(by_ddp(run)))).values()
    [by_kernels] = active(run_verdicts(run)).values()
    assert (by_timers.rank, by_timers.section) == (by_kernels.rank, by_kernels.section) == (2, "")
    assert by_timers.slowdown == pytest.approx(by_kernels.slowdown, rel=0.01)
    assert by_timers.loss_share == pytest.approx(by_kernels.loss_share, rel=0.1)


def test_what_a_rank_does_where_ddp_times_nothing_is_not_said_to_be_alike() -> None:
    """A slow optimizer, in which all hosts wait for the GPUs and so for the slowest."""
    tables = by_ddp(timed("dp8"))
    column = [section.name for section in tables[0].sections].index("optimizer")
    slower_s = np.zeros_like(tables[0].seconds)
    slower_s[..., column] = 0.5
    judge = run_verdicts(
        tuple(
            replace(table, seconds=table.seconds + slower_s * (table.steps[0] >= 60))
            for table in tables
        )
    )
    assert not [one for one in judge.changes if one.rank is not None]
    assert not [one for one in judge.changes if one.cause == "uniform_slowdown"]


def test_data_loading_is_compared_by_the_hosts_clock() -> None:
    """It is work of the host."""
    tables = by_ddp(timed("dp8", "data:2@rank2:step60"))
    [verdict] = active(run_verdicts(tuple(tables))).values()
    assert (verdict.rank, verdict.evidence) == (2, "host")


def test_a_step_costs_what_it_did_by_the_hosts_clock() -> None:
    """DDP's times are of the same step: in no sum are they added to it."""
    tables = by_ddp(timed("dp8", SLOW))
    summaries = [run_verdicts(tuple(of)).summary() for of in (tables, without_gpu(tables))]
    assert summaries[0] is not None
    assert summaries[1] is not None
    assert summaries[0].step_s == summaries[1].step_s
    assert summaries[0].basis == "events"


def test_healthy_ranks_are_not_named() -> None:
    """Nor does anything stay hidden that their timers show."""
    judge = run_verdicts(tuple(by_ddp(timed("dp8"))))
    assert not active(judge)
    summary = judge.summary()
    assert summary is not None
    assert not summary.waits_unseen


@pytest.mark.parametrize("every", [10, 100])
def test_rare_samples_change_nothing(every: int) -> None:
    """They are sent and shown; verdicts need nearly all steps of all ranks."""
    tables = by_ddp(timed("dp8", SLOW), every)
    clocks, _ = learnt(tables)
    assert set(chosen(clocks)) == {HOST}
    assert _story(run_verdicts(tuple(tables))) == _story(run_verdicts(tuple(without_gpu(tables))))


def test_one_rank_without_ddps_times_keeps_a_small_group_with_the_host() -> None:
    """Peers are compared by one clock."""
    tables = [untold(table, [3]) for table in by_ddp(timed("dp8"))]
    assert set(chosen(learnt(tables)[0])) == {HOST}


def test_the_hosts_waiting_counts_where_ddp_times_nothing() -> None:
    """Other sections of the same rank keep their own time without collectives."""
    table = by_ddp(timed("dp8"))[0]
    assert table.gpu is not None
    is_ddp = table.gpu.basis == DDP
    waited_s = np.where(is_ddp, table.gpu.nccl_s, 0.1 * table.seconds)
    own_s = np.where(is_ddp, table.gpu.own_s, 0.9 * table.seconds)
    basis = np.where(is_ddp, DDP, COLLECTIVE).astype(np.uint8)
    clocks, world = learnt([replace(table, gpu=GpuSeconds(basis, own_s, waited_s))] * 3)
    by_section = dict(zip([s.name for s in world.sections], chosen(clocks), strict=True))
    assert by_section["backward"] == DDP
    assert by_section["data_loading"] == COLLECTIVE


def _story(judge: VerdictEngine) -> list[tuple[str, str, str]]:
    return [(one.subject_id, one.state, one.cause) for one in judge.changes]

"""Sections compared without waiting in collectives: when a group is, and what that time holds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from otel_straggler.detect.verdicts.clocks import ClockedBlock, ClockSelector
from otel_straggler.detect.verdicts.waits import WaitDetector
from otel_straggler.model.observation import COLLECTIVE, CUPTI, EVENTS, HOST, Floats
from otel_straggler.model.step_table import GpuSeconds, StepTable

from .gpu_worlds import untold
from .test_clocks import chosen, learnt, time
from .worlds import Sections, by_hand, with_sources

SECTIONS: Sections = (
    ("data", "data"), ("forward", "compute"), ("log", "other"), ("save", "checkpoint"),
    ("sync", "wait"),
)  # fmt: skip
DATA, FORWARD, LOG, SAVE, SYNC = range(5)
OWN_S = (0.05, 1.0, 0.1, 0.5, 0.0)


def tables(n_ranks: int = 8, n_steps: int = 60, part: float = 0.2) -> list[StepTable]:
    """Ranks wait in forward, for so large a part of a second, and all of sync, which is 0.1 s."""
    rng = np.random.default_rng(0)
    shape = (n_steps, n_ranks, len(SECTIONS))
    own_s = np.array(OWN_S) * np.exp(rng.normal(0.0, 0.02, shape))
    waited_s = np.zeros(shape)
    waited_s[..., FORWARD] = part * np.exp(rng.normal(0.0, 0.02, shape[:2]))
    waited_s[..., SYNC] = 0.5 * part
    return [
        _reporting(table, waited_s[at : at + 5])
        for at, table in zip(range(0, n_steps, 5), by_hand(own_s + waited_s, SECTIONS), strict=True)
    ]


def _reporting(table: StepTable, waited_s: Floats) -> StepTable:
    basis = np.full(table.seconds.shape, COLLECTIVE, np.uint8)
    return replace(table, gpu=GpuSeconds(basis, table.seconds - waited_s, waited_s))


def of_basis(table: StepTable, section: int, basis: int) -> StepTable:
    """The same where all ranks report a section's time on the GPU, which is as long."""
    assert table.gpu is not None
    bases, own_s, nccl_s = (
        getattr(table.gpu, name).copy() for name in ("basis", "own_s", "nccl_s")
    )
    bases[..., section] = basis
    own_s[..., section] = table.seconds[..., section]
    nccl_s[..., section] = 0.3 if basis == CUPTI else np.nan
    return replace(table, gpu=GpuSeconds(bases, own_s, nccl_s))


def test_own_time_is_compared_in_all_sections_of_training() -> None:
    """Whatever their kind; a checkpoint is none, and a section that waits is waiting as a whole."""
    block = tables()[0]
    clocks, world = learnt([block])
    assert chosen(clocks) == [COLLECTIVE, COLLECTIVE, COLLECTIVE, HOST, COLLECTIVE]
    assert clocks.tells_waiting.tolist() == [True]
    result = time(block, clocks, world)
    assert block.gpu is not None
    for section in (DATA, FORWARD, LOG):
        np.testing.assert_array_equal(result.seconds[..., section], block.gpu.own_s[..., section])
    np.testing.assert_array_equal(result.seconds[..., SYNC], block.seconds[..., SYNC])
    np.testing.assert_allclose(
        result.waited_s, block.gpu.nccl_s[..., FORWARD] + block.seconds[..., SYNC]
    )
    assert result.local.tolist() == [[True, True, True, False, False]] * 8
    assert result.evidence_of(0, FORWARD) == result.evidence_of_waiting(0) == "collective"
    assert not result.is_hidden
    assert not result.has_gpu(0)
    assert not result.all_by_kernels()


@pytest.mark.parametrize("device", ["", "GPU-1"])
def test_a_group_goes_by_collectives_if_its_host_waits_there(device: str) -> None:
    """From 0.5 % of its time on, of ranks with GPUs 2 %; below that is the cost of the calls."""

    def is_chosen(part: float, clocks: ClockSelector | None = None) -> bool:
        blocks = [with_sources(t, lambda s: replace(s, device=device)) for t in tables(part=part)]
        return chosen(learnt(blocks, clocks)[0])[FORWARD] == COLLECTIVE

    maximum_s = (0.02 if device else 0.005) * sum(OWN_S)
    above, below = 1.1 * maximum_s, 0.4 * maximum_s
    assert not is_chosen(below / 1.5)
    assert is_chosen(above / 1.5)
    stays, _ = learnt(
        [with_sources(t, lambda s: replace(s, device=device)) for t in tables(part=above / 1.5)]
    )
    assert is_chosen(0.75 * maximum_s / 1.5, stays)
    assert not is_chosen(below / 1.5, stays)


@pytest.mark.parametrize("basis", [EVENTS, CUPTI])
def test_times_of_the_gpu_win(basis: int) -> None:
    """In the sections that have them; the others stay without waiting in collectives."""
    block = of_basis(tables()[0], FORWARD, basis)
    clocks, world = learnt([block])
    assert chosen(clocks) == [COLLECTIVE, basis, COLLECTIVE, HOST, COLLECTIVE]
    result = time(block, clocks, world)
    assert result.has_gpu(0)
    assert result.shows("cupti", 0)
    assert result.shows("collective", 0)
    assert clocks.tells_waiting.tolist() == [True]
    assert result.evidence_of_waiting(0) == ("cupti" if basis == CUPTI else "collective")


def test_waiting_that_nobody_reports_is_still_found_by_its_behaviour() -> None:
    """What is left of a section may hold it; what was reported does not count again."""
    blocks = tables()
    clocks, world = learnt(blocks)
    for block in blocks:
        seen_s, groups = clocks.late_on_host(block, world)
        assert block.gpu is not None
        np.testing.assert_array_equal(seen_s[..., FORWARD], block.gpu.own_s[..., FORWARD])
        np.testing.assert_array_equal(seen_s[..., SAVE], block.seconds[..., SAVE])
        assert len(groups) == 1
    result = time(blocks[-1], clocks, world, "log")
    assert result.local[0].tolist() == [True, True, False, False, False]
    gpu = blocks[-1].gpu
    assert gpu is not None
    np.testing.assert_allclose(
        result.waited_s,
        gpu.nccl_s[..., FORWARD] + blocks[-1].seconds[..., [LOG, SYNC]].sum(axis=2),
    )
    assert result.is_hidden


def test_one_rank_that_does_not_report_keeps_a_small_group_on_the_hosts_clock() -> None:
    """Of a large group it is left out; nobody is compared by another clock."""
    for n_ranks, basis in ((8, HOST), (32, COLLECTIVE)):
        blocks = [untold(table, [3]) for table in tables(n_ranks)]
        clocks, world = learnt(blocks)
        assert chosen(clocks)[FORWARD] == basis
        result = time(blocks[-1], clocks, world)
        if basis == COLLECTIVE:
            assert np.isnan(result.seconds[:, 3, [DATA, FORWARD, LOG, SYNC]]).all()
            assert np.isnan(result.waited_s[:, 3]).all()
            assert np.isfinite(np.delete(result.waited_s, 3, axis=1)).all()
            assert result.is_hidden


def test_when_reports_of_waiting_end_the_host_takes_over() -> None:
    """Names keep the numbers of both clocks apart."""
    blocks = tables()
    clocks, world = learnt(blocks)
    assert clocks.names(world)[FORWARD] == "forward [collective]"
    silent = [replace(block, gpu=None) for block in blocks]
    assert clocks.sees(silent[0])
    learnt(silent, clocks)
    assert chosen(clocks) == [HOST] * 5
    assert clocks.names(world)[FORWARD] == "forward"
    assert not clocks.tells_waiting.any()
    assert not clocks.sees(silent[0])


@settings(max_examples=25)
@given(st.integers(0, 2**16), st.floats(0.0, 1.0), st.integers(1, 24))
def test_peers_are_compared_by_one_clock_whoever_reports_when(
    seed: int, part: float, n_ranks: int
) -> None:
    """Ranks that flip from table to table are unknown, or all go by the host's clock."""
    rng = np.random.default_rng(seed)
    blocks = [
        untold(table, np.flatnonzero(rng.random(n_ranks) < part).tolist())
        for table in tables(n_ranks, 40)
    ]
    clocks, world = learnt(blocks[:1])
    for block in blocks[1:]:
        clocks.learn(block, world)
        result: ClockedBlock = clocks.time(block, world, WaitDetector())[0]
        assert block.gpu is not None
        is_reported = block.gpu.basis[..., FORWARD] == COLLECTIVE
        if chosen(clocks)[FORWARD] == HOST:
            np.testing.assert_array_equal(result.seconds[..., FORWARD], block.seconds[..., FORWARD])
        else:
            known = np.isfinite(result.seconds[..., FORWARD])
            np.testing.assert_array_equal(known, is_reported)

"""By which clock sections are compared: one for all peers, the GPU's where nearly all tell it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from otel_straggler.detect.verdicts.clocks import ClockedBlock, ClockSelector
from otel_straggler.detect.verdicts.waits import WaitDetector
from otel_straggler.detect.verdicts.world import World
from otel_straggler.model.observation import CUPTI, EVENTS, HOST, Section
from otel_straggler.model.step_table import StepTable

from .gpu_worlds import timed, untold, with_gpu, with_holes
from .worlds import by_hand, usual, world_of

DATA, FORWARD, SYNC = range(3)
SEEDS = st.integers(0, 2**16)


def tables(n_ranks: int = 8, n_steps: int = 60, basis: int = CUPTI) -> list[StepTable]:
    """Launches take 1 ms; the GPU works in forward, and communicates in forward and sync."""
    result = []
    for table in by_hand(usual(n_steps, n_ranks)):
        seconds = table.seconds
        own, nccl = np.zeros_like(seconds), np.zeros_like(seconds)
        own[..., FORWARD] = seconds[..., FORWARD]
        nccl[..., SYNC] = seconds[..., SYNC]
        nccl[..., FORWARD] = 0.01
        if basis == EVENTS:
            own, nccl = own + nccl, np.full_like(nccl, np.nan)
        launched = seconds.copy()
        launched[..., FORWARD:] = 0.001
        result.append(with_gpu(replace(table, seconds=launched), own, nccl, basis))
    return result


def learnt(
    blocks: list[StepTable], clocks: ClockSelector | None = None
) -> tuple[ClockSelector, World]:
    clocks, world = clocks or ClockSelector(), world_of(blocks[0])
    for block in blocks:
        clocks.learn(block, world)
    return clocks, world


def time(block: StepTable, clocks: ClockSelector, world: World, *behaves: str) -> ClockedBlock:
    waiting = WaitDetector()
    waiting.behaves |= set(behaves)
    return clocks.time(block, world, waiting)[0]


def chosen(clocks: ClockSelector) -> list[int]:
    """Of one group."""
    [group] = clocks.basis.tolist()
    return list(group)


def test_sections_with_work_for_the_gpu_go_by_it_and_data_loading_by_the_host() -> None:
    """From the first block on."""
    clocks, _ = learnt(tables()[:1])
    assert chosen(clocks) == [HOST, CUPTI, CUPTI]
    assert clocks.tells_waiting.tolist() == [True]


def test_own_work_is_compared_and_communication_is_waiting() -> None:
    """Wherever it runs, also inside forward."""
    block = tables()[0]
    clocks, world = learnt([block])
    result = time(block, clocks, world)
    assert block.gpu is not None
    np.testing.assert_array_equal(result.seconds[..., DATA], block.seconds[..., DATA])
    np.testing.assert_array_equal(result.seconds[..., FORWARD], block.gpu.own_s[..., FORWARD])
    np.testing.assert_array_equal(result.seconds[..., SYNC], block.gpu.nccl_s[..., SYNC])
    np.testing.assert_allclose(result.waited_s, 0.01 + block.gpu.nccl_s[..., SYNC])
    assert result.local.tolist() == [[True, True, False]] * 8
    assert not result.is_hidden


def test_time_between_events_is_all_of_it() -> None:
    """Waiting included: a section that behaves like waiting is not scored as work."""
    block = tables(basis=EVENTS)[0]
    clocks, world = learnt([block])
    assert chosen(clocks) == [HOST, EVENTS, EVENTS]
    assert clocks.tells_waiting.tolist() == [False]
    result = time(block, clocks, world, "forward")
    assert block.gpu is not None
    np.testing.assert_array_equal(result.seconds[..., FORWARD], block.gpu.own_s[..., FORWARD])
    assert result.local.tolist() == [[True, False, False]] * 8
    assert result.is_hidden


def test_own_work_on_the_gpu_is_work_whatever_the_host_behaves_like() -> None:
    """Host time of launches that wait for the device looks like waiting; kernels do not."""
    block = tables()[0]
    clocks, world = learnt([block])
    assert time(block, clocks, world, "forward").local.tolist() == [[True, True, False]] * 8


@pytest.mark.parametrize(("n_ranks", "basis"), [(8, HOST), (16, HOST), (32, CUPTI)])
def test_one_rank_that_does_not_tell_keeps_a_small_group_on_the_hosts_clock(
    n_ranks: int, basis: int
) -> None:
    """Of a large group it is left out, and unknown; nobody is compared by another clock."""
    blocks = [untold(table, [3]) for table in tables(n_ranks)]
    clocks, world = learnt(blocks)
    assert chosen(clocks)[FORWARD] == basis
    result = time(blocks[-1], clocks, world)
    if basis == HOST:
        np.testing.assert_array_equal(result.seconds, blocks[-1].seconds)
    else:
        assert np.isnan(result.seconds[:, 3, FORWARD:]).all()
        assert np.isfinite(np.delete(result.seconds, 3, axis=1)).all()
        assert np.isnan(result.waited_s[:, 3]).all()
        assert result.is_hidden


def test_a_clock_changes_when_a_rank_falls_back_and_not_back_at_once() -> None:
    """A few late numbers change nothing; what is missing is unknown in the meantime."""
    blocks = tables()
    clocks, world = learnt(blocks[:4])
    holes = np.random.default_rng(1)
    clocks.learn(with_holes(blocks[4], 0.2, holes), world)
    assert chosen(clocks)[FORWARD] == CUPTI
    clocks.learn(untold(blocks[5], [0]), world)
    result = time(untold(blocks[5], [0]), clocks, world)
    if chosen(clocks)[FORWARD] == CUPTI:
        assert np.isnan(result.seconds[:, 0, FORWARD]).all()
    for block in blocks[6:9]:
        clocks.learn(untold(block, [0]), world)
    assert chosen(clocks)[FORWARD] == HOST
    clocks.learn(blocks[9], world)
    assert chosen(clocks)[FORWARD] == HOST
    learnt(blocks * 2, clocks)
    assert chosen(clocks)[FORWARD] == CUPTI


def test_a_change_of_clocks_is_told_and_new_sections_are_none() -> None:
    """What was learnt by one clock says nothing by another."""
    blocks = tables()
    clocks, world = learnt(blocks[:1])
    waiting = WaitDetector()
    assert clocks.time(blocks[0], world, waiting)[1] is False
    assert clocks.time(blocks[0], world, waiting)[1] is False
    more = replace(blocks[1], sections=(*blocks[1].sections, Section("eval", "eval")))
    block = replace(
        more,
        seconds=_wider(more.seconds, 0.5),
        gpu=type(more.gpu)(
            _wider(more.gpu.basis, HOST), _wider(more.gpu.own_s, 0), _wider(more.gpu.nccl_s, 0)
        ),
    )
    world.update(block)
    clocks.learn(block, world)
    assert clocks.time(block, world, waiting)[1] is False
    for _ in range(4):
        clocks.learn(untold(block, range(8)), world)
    assert clocks.time(block, world, waiting)[1] is True


def _wider(values: Any, filler: float) -> Any:
    column = np.full((*values.shape[:2], 1), filler, values.dtype)
    return np.concatenate([values, column], axis=2)


def test_a_compute_section_without_kernels_stays_with_the_host() -> None:
    """Its time is the host's own, such as that of a tokenizer."""
    blocks = [
        with_gpu(t, np.zeros_like(t.seconds), np.zeros_like(t.seconds))
        for t in by_hand(usual(20, 8))
    ]
    clocks, world = learnt(blocks)
    assert chosen(clocks) == [HOST] * 3
    result = time(blocks[0], clocks, world)
    np.testing.assert_array_equal(result.seconds, blocks[0].seconds)
    assert not result.tells_waiting.any()


def test_when_gpu_times_end_the_host_takes_over() -> None:
    """After some blocks in which nothing is known."""
    blocks = tables()
    clocks, world = learnt(blocks[:2])
    silent = [replace(block, gpu=None) for block in blocks]
    assert clocks.sees(silent[2])
    clocks.learn(silent[2], world)
    first = time(silent[2], clocks, world)
    assert np.isnan(first.seconds[..., FORWARD]).all() or chosen(clocks)[FORWARD] == HOST
    learnt(silent[3:8], clocks)
    assert chosen(clocks) == [HOST] * 3
    assert not clocks.sees(silent[8])


def test_groups_choose_by_themselves() -> None:
    """A stage whose ranks do not tell goes by the host, the other by its kernels."""
    blocks = [untold(table, range(8, 16)) for table in timed("tp1,pp2,dp8")]
    clocks, world = learnt(list(blocks))
    own = clocks.basis[world.peers.code]
    assert (own[:8] == CUPTI).any()
    assert not own[8:].any()
    assert [name.split(" ")[-1] for name in clocks.names(world) if "[" in name] == [
        "[host+cupti]"
    ] * 5


@settings(max_examples=25)
@given(SEEDS, st.floats(0.0, 1.0), st.integers(1, 24))
def test_peers_are_never_compared_by_different_clocks(seed: int, part: float, n_ranks: int) -> None:
    """Whoever tells whatever: each time is what all of the group goes by, or unknown."""
    rng = np.random.default_rng(seed)
    blocks = []
    for table, events in zip(tables(n_ranks, 30), tables(n_ranks, 30, EVENTS), strict=True):
        reported = table if rng.random() < 0.8 else events
        quiet = np.flatnonzero(rng.random(n_ranks) < 0.1)
        blocks.append(untold(with_holes(reported, part, rng), quiet))
    clocks, world = ClockSelector(), world_of(blocks[0])
    for block in blocks:
        clocks.learn(block, world)
        result = time(block, clocks, world)
        gpu = block.gpu
        assert gpu is not None
        for s, basis in enumerate(chosen(clocks)):
            if basis == HOST:
                np.testing.assert_array_equal(result.seconds[..., s], block.seconds[..., s])
            else:
                known = np.isfinite(result.seconds[..., s])
                np.testing.assert_array_equal(known, gpu.basis[..., s] == basis)


@pytest.mark.parametrize(("part", "begins", "stays"), [(0.004, 0, 0), (0.007, 0, 1), (0.02, 1, 1)])
def test_a_section_has_work_for_the_gpu_from_a_hundredth_of_its_time_on(
    part: float, begins: int, stays: int
) -> None:
    """Half of that where it has been so before. Over all that is remembered, not one block."""
    little = []
    for table in by_hand(usual(60, 8)):
        own = np.zeros_like(table.seconds)
        own[..., FORWARD] = part * table.seconds[..., FORWARD]
        little.append(with_gpu(table, own, np.zeros_like(own), CUPTI))
    assert chosen(learnt(little)[0])[FORWARD] == (CUPTI if begins else HOST)
    much = [replace(block, gpu=whole.gpu) for block, whole in zip(little, tables(), strict=True)]
    before, _ = learnt(much[:1])
    assert chosen(before)[FORWARD] == CUPTI
    after, _ = learnt(little * 3, before)
    assert chosen(after)[FORWARD] == (CUPTI if stays else HOST)


def test_what_was_told_is_remembered_when_a_section_appears() -> None:
    """One block in which a rank of eight does not tell its GPU time changes no clock, also if it
    brings a new section."""
    blocks = tables()
    clocks, _ = learnt(blocks[:8])
    hole = untold(blocks[8], [3])
    assert hole.gpu is not None
    more = replace(
        hole,
        sections=(*hole.sections, Section("eval", "eval")),
        seconds=_wider(hole.seconds, 0.5),
        gpu=type(hole.gpu)(
            _wider(hole.gpu.basis, HOST), _wider(hole.gpu.own_s, 0), _wider(hole.gpu.nccl_s, 0)
        ),
    )
    clocks.learn(more, world_of(more))
    assert chosen(clocks) == [HOST, CUPTI, CUPTI, HOST]

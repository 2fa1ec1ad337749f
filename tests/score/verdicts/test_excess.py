"""From seconds to excesses over the peers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from otel_straggler.detect.verdicts.excess import (
    Excesses,
    excesses,
    host_excesses,
    late_seconds,
    local_sections,
)
from otel_straggler.detect.verdicts.waits import WaitDetector
from otel_straggler.model.observation import Floats
from otel_straggler.model.rank import Source

from .worlds import by_hand, ranks, slower, take_ranks, usual, world_of

SEEDS = st.integers(0, 2**32 - 1)
STEPS, RANKS = 5, 8
SECTIONS = (("data", "data"), ("forward", "compute"), ("sync", "wait"), ("save", "checkpoint"))


def result(
    seconds: Floats,
    equal_s: Floats | None = None,
    min_peers: int = 3,
    sources: list[Source] | None = None,
) -> Excesses:
    sections = SECTIONS[: seconds.shape[2]]
    (table,) = by_hand(seconds, sections, block_steps=len(seconds), sources=sources)
    world = world_of(table)
    equal_s = seconds if equal_s is None else equal_s
    peers_s, late_s = late_seconds(equal_s, world)
    return excesses(
        equal_s,
        seconds,
        peers_s,
        late_s,
        world,
        WaitDetector(),
        shared=np.zeros(seconds.shape[2], bool),
        min_peers=min_peers,
    )


@settings(max_examples=25)
@given(SEEDS, st.floats(1e-6, 1e6))
def test_excesses_do_not_depend_on_the_unit_nor_on_the_order_of_ranks(
    seed: int, factor: float
) -> None:
    """They are logarithms of ratios."""
    seconds = usual(STEPS, RANKS, seed=seed)
    here = result(seconds).ranks
    np.testing.assert_allclose(result(factor * seconds).ranks, here, atol=1e-9)
    order = np.random.default_rng(seed).permutation(RANKS)
    np.testing.assert_allclose(result(seconds[:, order]).ranks, here[:, order], atol=1e-12)


@settings(max_examples=25)
@given(SEEDS, st.floats(1.0, 10.0))
def test_a_slower_rank_has_no_smaller_excess_and_its_peers_no_larger(
    seed: int, factor: float
) -> None:
    """In its work, in its section and in the waiting of the others."""
    seconds = usual(STEPS, RANKS, seed=seed)
    here, there = result(seconds).ranks, result(slower(seconds, 2, factor)).ranks
    more = there[:, 2] - here[:, 2]
    assert (more[:, [0, 2]] >= -1e-9).all()
    others = np.arange(RANKS) != 2
    assert (there[:, others][..., :3] <= here[:, others][..., :3] + 1e-9).all()


def test_the_columns_are_work_sections_and_lateness() -> None:
    """Waiting and checkpoints are nobody's own work; a section of them is not compared."""
    seconds = np.ones((STEPS, RANKS, 4))
    seconds[:, 0] = [2.0, 4.0, 0.5, 9.0]
    one = result(seconds).ranks[0, 0]
    np.testing.assert_allclose(one[:3], np.log([3.0, 2.0, 4.0]))
    assert np.isnan(one[3:5]).all()
    np.testing.assert_allclose(one[5], np.log1p(0.5 / 4.0))


def test_times_are_summed_by_what_they_are() -> None:
    """Own work, waiting, and the whole step with its checkpoint."""
    one = result(np.tile([1.0, 2.0, 4.0, 8.0], (STEPS, RANKS, 1)))
    assert (one.local_s == 3.0).all()
    assert (one.waited_s == 4.0).all()
    assert (one.step_s == 15.0).all()


def test_a_rank_that_lacks_what_its_peers_have_is_not_compared_in_that_step() -> None:
    """Part of its telemetry is lost. What only some ran, such as a garbage collection, is no
    lack."""
    seconds = np.ones((STEPS, RANKS, 3))
    seconds[0, 0, 1] = np.nan
    seconds[:, 4:, 0] = np.nan
    one = result(seconds)
    assert np.isnan(one.local_s[0, 0])
    assert np.isnan(one.ranks[0, 0, [0, -1]]).all()
    assert np.isfinite(one.local_s[1:]).all()
    assert np.isfinite(one.step_s).all()
    assert one.local_s[0, 5] == 1.0


def test_what_is_lacking_is_asked_of_the_own_peers_in_the_same_step() -> None:
    """What another stage runs, or the own one in another step, is no lack."""
    stages = [replace(rank, parallel=(("pipeline", rank.rank % 2),)) for rank in ranks(RANKS)]
    seconds = np.ones((STEPS, RANKS, 3))
    seconds[0, 5, 1] = np.nan  # its three peers have it
    seconds[1, ::2, 1] = np.nan  # none of the first stage runs it in this step
    seconds[2:, 1::2, 0] = np.nan  # and none of the second runs that from here on
    lacking = np.isnan(result(seconds, sources=stages).local_s)
    assert np.argwhere(lacking).tolist() == [[0, 5]]


def test_who_was_dealt_more_work_is_not_late_for_it() -> None:
    """In two sections; all wait for it, and for nothing that it does slowly."""
    seconds = np.ones((STEPS, RANKS, 3))
    seconds[..., 2] = 2.1
    equal_s = seconds.copy()
    seconds[:, 3] = [2.0, 2.0, 0.1]
    equal_s[:, 3] = [1.0, 1.0, 0.1]
    np.testing.assert_allclose(result(seconds, equal_s).ranks[..., -1], 0.0, atol=1e-12)
    assert (result(seconds).ranks[:, 3, -1] > 0.3).all()


def test_groups_that_are_too_small_have_no_excess() -> None:
    """Two ranks do not show which of them is slow."""
    assert np.isnan(result(usual(STEPS, 2)).ranks).all()
    assert np.isfinite(result(usual(STEPS, 2), min_peers=2).ranks[..., 0]).all()


def test_a_section_that_few_run_is_not_compared() -> None:
    """Half of the ranks and steps must have it."""
    seconds = usual(STEPS, RANKS)
    seconds[2:, :, 0] = np.nan
    assert np.isnan(result(seconds).ranks[..., 1]).all()
    assert np.isfinite(result(seconds).ranks[..., 2]).all()


def test_who_was_given_more_work_is_not_late_for_it() -> None:
    """The times for equal work are compared; what the extra work took is nobody's fault."""
    equal_s = usual(STEPS, RANKS, noise=0.0)
    heavy_s = slower(equal_s, 2, 1.4)
    assert result(heavy_s).ranks[0, 2, -1] > 0.1
    restored = heavy_s.copy()
    restored[:, 2, 1] = equal_s[:, 2, 1]
    left = np.delete(result(heavy_s, restored).ranks[:, 2], 3, axis=1)
    np.testing.assert_allclose(left, 0.0, atol=1e-9)


def test_one_slow_rank_of_eight_does_not_make_its_host_slow() -> None:
    """A host is its median rank; a rank that is not there does not count."""
    seconds = slower(usual(STEPS, 16, noise=0.0), 2, 2.0)
    (table,) = by_hand(seconds, SECTIONS[:3])
    world = world_of(table)
    own = result(seconds).ranks
    np.testing.assert_allclose(host_excesses(own, world)[..., 2], 0.0, atol=1e-9)
    own[:, :8, 2] = 0.3
    own[:, 0, 2] = np.nan
    np.testing.assert_allclose(host_excesses(own, world)[:, :, 2], [[0.3, 0.0]] * STEPS, atol=1e-9)


def test_local_sections_hold_work_and_nothing_else() -> None:
    """By kind, and by how they behave."""
    (table,) = by_hand(np.ones((STEPS, 3, 4)), SECTIONS)
    world, waiting = world_of(take_ranks(table, range(3))), WaitDetector()
    assert local_sections(world, waiting).tolist() == [True, True, False, False]
    waiting.behaves.add("forward")
    assert local_sections(world, waiting).tolist() == [True, False, False, False]
    assert len(ranks(3)) == world.n_ranks

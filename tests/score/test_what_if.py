"""What a run would be if all workers were equal, over random runs."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from otel_straggler.detect.verdicts.pipeline import stage_structure, what_if
from otel_straggler.model.observation import Floats

runs = st.tuples(st.integers(1, 4), st.integers(1, 5), st.integers(1, 4)).flatmap(
    lambda shape: arrays(np.float64, shape, elements=st.floats(0.01, 100.0))
)
microbatches = st.integers(1, 64)

SEEDS = st.integers(0, 2**32 - 1)


def slowdown(seconds: Floats, count: int) -> float:
    return what_if(seconds, count).slowdown


@given(runs, microbatches, st.floats(1e-6, 1e6))
def test_the_slowdown_of_a_run_does_not_depend_on_the_unit_of_time(
    seconds: Floats, count: int, unit: float
) -> None:
    """Milliseconds or seconds."""
    assert slowdown(seconds * unit, count) == pytest.approx(slowdown(seconds, count))


@given(runs, microbatches, st.randoms(use_true_random=False))
def test_data_ranks_may_come_in_any_order(seconds: Floats, count: int, random: st.DrawFn) -> None:
    """A permutation of data ranks permutes what is said of them, and nothing else."""
    order = list(range(seconds.shape[1]))
    random.shuffle(order)  # type: ignore[attr-defined]
    result, moved = what_if(seconds, count), what_if(seconds[:, order], count)
    assert moved.slowdown == pytest.approx(result.slowdown)
    assert moved.of_worker == pytest.approx(result.of_worker[order])


@given(runs, microbatches)
def test_a_run_is_never_faster_than_with_equal_workers(seconds: Floats, count: int) -> None:
    """Slowdown is at least 1, waste lies in [0, 1)."""
    result = what_if(seconds, count)
    assert result.slowdown >= 1.0 - 1e-9
    assert -1e-9 <= result.waste < 1.0


@given(st.integers(1, 5), st.integers(1, 4), microbatches, st.floats(0.01, 100.0))
def test_equal_workers_lose_nothing(n_data: int, n_stages: int, count: int, time: float) -> None:
    """Slowdown 1; there is no loss that anybody could be part of."""
    result = what_if(np.full((3, n_data, n_stages), time), count)
    assert result.slowdown == pytest.approx(1.0)
    assert np.isnan(result.m_w)


@given(runs, microbatches, st.floats(1.0, 5.0))
def test_a_slower_slowest_worker_never_lowers_the_slowdown(
    seconds: Floats, count: int, factor: float
) -> None:
    """Steps alike, one worker slower than all: the slower it is, the more is lost."""
    steady = np.repeat(seconds[:1], 3, axis=0)
    at = np.unravel_index(np.argmax(steady[0]), steady[0].shape)
    steady[:, at[0], at[1]] = steady.max() * (count + steady.size)  # its row decides the step
    slower = steady.copy()
    slower[:, at[0], at[1]] *= factor
    assert slowdown(slower, count) >= slowdown(steady, count) - 1e-9


@given(st.integers(2, 6), st.integers(1, 4), microbatches, st.floats(1.05, 5.0))
def test_one_slow_worker_is_found_and_is_all_the_loss(
    n_data: int, n_stages: int, count: int, factor: float
) -> None:
    """The cell of the map that is largest is the slow worker's."""
    seconds = np.ones((4, n_data, n_stages))
    seconds[:, -1, 0] = factor
    result = what_if(seconds, count)
    assert result.m_w >= 1.0 - 1e-9  # the mean is longer than a healthy worker
    assert np.argmax(result.of_worker) == (n_data - 1) * n_stages


def test_a_slow_worker_does_not_make_its_stage_long() -> None:
    """The median over data ranks."""
    seconds = np.ones((2, 4, 3))
    seconds[:, 1, 1] = 9.0
    assert stage_structure(seconds).tolist() == [1.0, 1.0, 1.0]


def test_a_long_last_stage_is_the_loss_and_no_worker() -> None:
    """M_S is about 1, M_W about 0."""
    seconds = np.ones((4, 4, 4))
    seconds[:, :, 3] = 1.5
    result = what_if(seconds, 32)
    assert int(np.argmax(result.stages)) == 3
    assert result.m_s > 0.95
    assert abs(result.m_w) < 0.05


def test_healthy_data_ranks_more_change_the_slowdown_little() -> None:
    """Twice as many peers: a slow worker still costs what it costs."""
    seconds = np.ones((2, 32, 2))
    seconds[:, 0, 0] = 1.5
    more = np.concatenate([seconds, np.ones((2, 32, 2))], axis=1)
    assert slowdown(more, 16) == pytest.approx(slowdown(seconds, 16), rel=0.01)


def test_a_missing_worker_is_unknown_not_fast() -> None:
    """It is taken as the mean of its stage, so nothing changes."""
    seconds = np.ones((3, 4, 2))
    seconds[:, :, 1] = 2.0
    whole = what_if(seconds, 8)
    seconds[1, 2, 1] = np.nan
    assert slowdown(seconds, 8) == pytest.approx(whole.slowdown)


@pytest.mark.parametrize("seconds", [
    np.zeros((2, 3, 2)), np.full((2, 3, 2), np.nan), np.zeros((0, 3, 2)), np.zeros((2, 0, 0)),
])  # fmt: skip
def test_without_times_nothing_is_said(seconds: Floats) -> None:
    """All zeros, all unknown, no step, no worker."""
    result = what_if(seconds, 4)
    assert np.isnan(result.slowdown)
    assert np.isnan(result.waste)


def test_a_single_worker_has_nothing_to_compare_with() -> None:
    """Slowdown 1."""
    assert slowdown(np.array([[[3.0]], [[5.0]]]), 8) == pytest.approx(1.0)


def test_a_step_that_few_workers_told_is_left_out() -> None:
    """Less than half of them."""
    seconds = np.ones((2, 4, 1))
    seconds[1, :3] = np.nan
    seconds[1, 3] = 100.0
    result = what_if(seconds, 1)
    assert result.slowdown == 1.0


def test_every_stage_unknown_in_one_step_is_taken_from_the_others() -> None:
    """The last stage told nothing in step 1: its mean over the other steps stands in."""
    seconds = np.ones((4, 2, 2))
    seconds[:, :, 1] = 2.0
    whole = slowdown(seconds, 4)
    seconds[1, :, 1] = np.nan
    assert slowdown(seconds, 4) == pytest.approx(whole)


@pytest.mark.parametrize("count", [1, 8])
@settings(max_examples=30)
@given(SEEDS, st.integers(1, 4), st.integers(1, 9), st.integers(1, 8))
def test_every_number_is_that_of_its_definition(
    count: int, seed: int, n_steps: int, n_data: int, n_stages: int
) -> None:
    """All workers but some take the mean of the step, and the schedule is played through."""
    a = np.random.default_rng(seed).uniform(0.5, 2.0, (n_steps, n_data, n_stages))
    result = what_if(a * count, count)
    mean = np.broadcast_to(a.mean(axis=(1, 2), keepdims=True), a.shape)

    def time_if(mended: np.ndarray) -> float:
        """Of all steps, with the mean for the workers that are mended (D, P)."""
        played = np.where(mended, mean, a)
        rows = (count - 1) * played.max(axis=2) + played.sum(axis=2)
        return float(rows.max(axis=1).sum())

    nobody, everybody = np.zeros((n_data, n_stages), bool), np.ones((n_data, n_stages), bool)
    ideal = time_if(everybody)
    loss = time_if(nobody) - ideal
    data, stage = np.arange(n_data)[:, None], np.arange(n_stages)[None, :]
    of_data = [time_if(everybody & (data != d)) / ideal for d in range(n_data)]
    of_stage = [time_if(everybody & (stage != p)) / ideal for p in range(n_stages)]
    np.testing.assert_allclose(result.slowdown, time_if(nobody) / ideal)
    of_worker = np.minimum.outer(of_data, of_stage)
    np.testing.assert_allclose(result.of_worker, of_worker)
    medians = np.median(a.mean(axis=0), axis=0)
    np.testing.assert_allclose(result.stages, medians / medians.mean())
    if loss > 1e-6 * ideal:
        worst = np.argsort(-result.of_worker, axis=None, kind="stable")
        is_worst = nobody.copy().ravel()
        is_worst[worst[: max(1, round(0.03 * of_worker.size))]] = True
        won = (time_if(nobody) - time_if(is_worst.reshape(nobody.shape))) / loss
        np.testing.assert_allclose(result.m_w, won, atol=1e-9)
        if n_stages > 1:
            won = (time_if(nobody) - time_if(nobody | (stage == n_stages - 1))) / loss
            np.testing.assert_allclose(result.m_s, won, atol=1e-9)

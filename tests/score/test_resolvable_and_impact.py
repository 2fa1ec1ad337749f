"""What noise allows to see, and what a slow subject costs."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from otel_straggler.model.observation import Floats
from otel_straggler.score.verdicts.impact import (
    excess_of_ranks,
    find_excess,
    gpu_seconds_per_hour,
)
from otel_straggler.score.verdicts.resolvable import resolvable_slowdown, step_noise

noises = st.floats(0.0, 0.5)
times = st.integers(1, 8).flatmap(
    lambda n: arrays(np.float64, n, elements=st.one_of(st.just(math.nan), st.floats(0.1, 10.0)))
)


@given(noises, st.integers(1, 400), st.integers(1, 100_000))
def test_more_steps_show_smaller_slowdowns_and_more_ranks_only_larger_ones(
    noise: float, steps: int, ranks: int
) -> None:
    """Noise averages out over steps; luck grows with the number of ranks."""
    here = resolvable_slowdown(noise, steps, ranks)
    assert here >= 1.0
    assert resolvable_slowdown(noise, 2 * steps, ranks) <= here
    assert resolvable_slowdown(noise, steps, 2 * ranks) >= here


def test_without_noise_known_nothing_is_said_to_be_resolvable() -> None:
    """Nor without a step, nor without a rank."""
    assert math.isnan(resolvable_slowdown(math.nan, 20, 8))
    assert math.isnan(resolvable_slowdown(0.1, 0, 8))
    assert math.isnan(resolvable_slowdown(0.1, 20, 0))


def test_a_slowdown_of_the_resolvable_size_is_seen_nine_times_of_ten() -> None:
    """The formula, tried on random ranks: the median of 20 steps passes the alarm's threshold."""
    random = np.random.default_rng(1)
    noise, steps, ranks = 0.024, 21, 64
    delta = math.log(resolvable_slowdown(noise, steps, ranks))
    threshold = delta - 1.2816 * 1.2533 * noise / math.sqrt(steps)
    medians = np.median(random.normal(0.0, noise, (20_000, steps)), axis=1)
    assert np.mean(medians + delta > threshold) == pytest.approx(0.9, abs=0.02)
    assert np.mean(medians > threshold) < 0.05 / ranks


def test_the_noise_of_steps_is_found_beside_spikes_and_slow_ranks() -> None:
    """Within a tenth of the truth."""
    random = np.random.default_rng(2)
    relative = random.normal(0.0, 0.03, (200, 16))
    relative[:, 3] += 0.5
    relative[::40] += 1.0
    relative[5, 7] = np.nan
    assert step_noise(relative) == pytest.approx(0.03, rel=0.1)


@pytest.mark.parametrize("relative", [
    np.full((5, 3), np.nan), np.zeros((2, 3)), np.zeros((0, 3)), np.zeros((5, 0)),
])  # fmt: skip
def test_noise_is_not_known_from_fewer_than_three_steps(relative: Floats) -> None:
    """NaN, not 0: a run that is not known is not a quiet one."""
    assert math.isnan(step_noise(relative))


@given(times, st.data())
def test_each_rank_by_itself_is_the_same_as_a_subject_of_one(
    times_s: Floats, data: st.DataObject
) -> None:
    """The fast form and the general one agree."""
    waits_for = np.array(data.draw(st.lists(
        st.integers(0, 2), min_size=len(times_s), max_size=len(times_s)
    )))  # fmt: skip
    peers_s = np.ones(len(times_s))
    lost, won = excess_of_ranks(times_s, peers_s, waits_for)
    for rank in range(len(times_s)):
        one = find_excess(times_s, peers_s, np.arange(len(times_s)) == rank, waits_for)
        assert (lost[rank], won[rank]) == pytest.approx((one.lost_s, one.won_s), nan_ok=True)


@given(times, st.floats(0.001, 1000.0))
def test_excess_is_counted_in_the_unit_of_the_times(times_s: Floats, unit: float) -> None:
    """Times in milliseconds give milliseconds."""
    waits_for, peers_s = np.zeros(len(times_s), int), np.ones(len(times_s))
    lost, won = excess_of_ranks(times_s, peers_s, waits_for)
    scaled = excess_of_ranks(times_s * unit, peers_s * unit, waits_for)
    assert scaled[0] == pytest.approx(lost * unit, nan_ok=True, abs=1e-9 * unit)
    assert scaled[1] == pytest.approx(won * unit, nan_ok=True, abs=1e-9 * unit)


def test_mending_one_of_two_equally_slow_ranks_wins_nothing() -> None:
    """But it costs as much as the other once that is mended."""
    lost, won = excess_of_ranks(np.array([2.0, 2.0, 1.0]), np.ones(3), np.zeros(3, int))
    assert lost.tolist() == [1.0, 1.0, 0.0]
    assert won.tolist() == [0.0, 0.0, 0.0]


def test_a_host_costs_what_its_slowest_rank_costs() -> None:
    """Its ranks are slow at the same time, so they do not add up."""
    host = find_excess(
        np.array([1.5, 1.4, 1.0, 1.0]), np.ones(4), np.arange(4) < 2, np.zeros(4, int)
    )
    assert (host.lost_s, host.won_s) == (0.5, 0.5)


def test_a_slow_rank_of_a_short_stage_hides_behind_the_long_one() -> None:
    """The run waits for the long stage anyway."""
    times_s = np.array([1.0, 1.2, 1.5, 1.5])
    peers_s = np.array([1.0, 1.0, 1.5, 1.5])
    found = find_excess(times_s, peers_s, np.arange(4) == 1, np.zeros(4, int))
    assert found.lost_s == pytest.approx(0.2)
    assert found.won_s == 0.0


def test_an_unknown_cost_is_nan_and_no_cost_is_more_than_all() -> None:
    """No step time, no excess, an excess longer than the step."""
    assert math.isnan(gpu_seconds_per_hour(math.nan, 1.0, 8))
    assert math.isnan(gpu_seconds_per_hour(0.1, 0.0, 8))
    assert math.isnan(gpu_seconds_per_hour(0.1, math.nan, 8))
    assert gpu_seconds_per_hour(5.0, 1.0, 8) == 8 * 3600.0
    assert gpu_seconds_per_hour(-1.0, 1.0, 8) == 0.0

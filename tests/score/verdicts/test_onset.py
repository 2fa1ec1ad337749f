"""Since when a rank is slow."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from otel_straggler.detect.verdicts.significance import (
    advance_cusum,
    cusum_moves,
    cusum_slack,
    cusum_threshold,
)

SEEDS = st.integers(0, 2**32 - 1)


def run(excess: np.ndarray, sigma: float, maximum: float = 1e9) -> np.ndarray:
    """(T, R) the statistic after every step."""
    sigmas = np.array([sigma])
    k, g, seen = cusum_slack(sigmas), np.zeros((excess.shape[1], 1)), []
    for step in excess:
        g = advance_cusum(g, cusum_moves(step[:, None], sigmas, k), np.array([maximum]))
        seen.append(g[:, 0])
    return np.array(seen)


@pytest.mark.parametrize("k", [0.25, 0.5, 1.5])
@pytest.mark.parametrize("mean_steps", [1e3, 3e5, 7e8])
def test_the_threshold_gives_the_false_alarms_that_were_asked_for(
    k: float, mean_steps: float
) -> None:
    """Siegmund's formula, put the other way round."""
    b = 2 * k * (cusum_threshold(k, mean_steps) + 1.166)
    assert (math.exp(b) - b - 1) / (2 * k * k) == pytest.approx(mean_steps, rel=1e-6)


@pytest.mark.parametrize("k", [0.25, 1.5])
def test_more_ranks_need_a_higher_threshold(k: float) -> None:
    """So that the job has as few false alarms; and there always is one."""
    thresholds = [cusum_threshold(k, n) for n in (1.0, 43_200.0, 43_200.0 * 16_384)]
    assert thresholds == sorted(thresholds)
    assert thresholds[0] >= 1.0


def test_noise_alone_alarms_as_rarely_as_promised() -> None:
    """Measured: 400 ranks of noise, a threshold for one alarm in 1,000 steps."""
    sigma = 0.05
    k = float(cusum_slack(np.array([sigma]))[0])
    h = cusum_threshold(k, 1000.0)
    excess = np.random.default_rng(0).normal(0.0, sigma, (400, 400))
    first = np.argmax(run(excess, sigma) > h, axis=0)
    alarmed = float((first > 0).mean())
    assert alarmed == pytest.approx(1 - math.exp(-0.4), abs=0.12)


@settings(max_examples=30)
@given(SEEDS, st.floats(0.0, 0.5))
def test_a_slower_rank_has_no_smaller_statistic(seed: int, more: float) -> None:
    """Nor an alarm later."""
    excess = np.random.default_rng(seed).normal(0.0, 0.03, (30, 2))
    worse = excess + np.array([more, 0.0])
    assert (run(worse, 0.03) >= run(excess, 0.03) - 1e-9).all()


@settings(max_examples=30)
@given(SEEDS, st.floats(0.01, 100.0))
def test_only_excess_against_noise_counts(seed: int, factor: float) -> None:
    """With the slack at its limit, twice the noise and twice the excess are the same."""
    excess = np.random.default_rng(seed).normal(0.0, 1.0, (20, 3))
    k, maximum = np.array([0.25]), np.array([5.0])
    one, other = np.zeros((3, 1)), np.zeros((3, 1))
    for step in excess:
        one = advance_cusum(one, cusum_moves(step[:, None], np.array([1.0]), k), maximum)
        moved = cusum_moves(factor * step[:, None], np.array([factor]), k)
        other = advance_cusum(other, moved, maximum)
    np.testing.assert_allclose(one, other, atol=1e-9)


def test_the_slack_is_half_of_the_slowdown_that_is_sought() -> None:
    """Within limits, however quiet or loud the times are."""
    result = cusum_slack(np.array([1e-9, 0.05, 10.0]))
    assert result.tolist() == [1.5, pytest.approx(0.5), 0.25]


def test_a_missing_step_changes_nothing_and_a_wild_one_counts_three_sigmas() -> None:
    """One spike is no onset."""
    g, k, maximum = np.array([[1.0], [1.0]]), np.array([0.5]), np.array([10.0])
    moves = cusum_moves(np.array([[np.nan], [99.0]]), np.array([0.01]), k)
    result = advance_cusum(g, moves, maximum)
    assert result[:, 0].tolist() == [1.0, 3.5]


def test_the_statistic_clears_after_a_long_fault() -> None:
    """Its cap sees to it: a day of slowness is forgiven in minutes."""
    excess = np.vstack([np.full((5000, 1), 0.3), np.zeros((40, 1))])
    seen = run(excess, 0.02, maximum=15.0)
    assert seen[4999, 0] == 15.0
    assert seen[-1, 0] == 0.0

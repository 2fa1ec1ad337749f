"""What noise allows to see, and what a slow subject costs."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_straggler.detect.verdicts.candidates import gpu_seconds_per_hour
from otel_straggler.detect.verdicts.significance import resolvable_slowdown

noises = st.floats(0.0, 0.5)


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


def test_however_loud_it_is_a_number_can_be_shown() -> None:
    """Nothing can be resolved then; that is no error."""
    assert 1e300 < resolvable_slowdown(1e6, 1, 8) < math.inf


def test_a_slowdown_of_the_resolvable_size_is_seen_nine_times_of_ten() -> None:
    """The formula, tried on random ranks: the median of 20 steps passes the alarm's threshold."""
    random = np.random.default_rng(1)
    noise, steps, ranks = 0.024, 21, 64
    delta = math.log(resolvable_slowdown(noise, steps, ranks))
    threshold = delta - 1.2816 * 1.2533 * noise / math.sqrt(steps)
    medians = np.median(random.normal(0.0, noise, (20_000, steps)), axis=1)
    assert np.mean(medians + delta > threshold) == pytest.approx(0.9, abs=0.02)
    assert np.mean(medians > threshold) < 0.05 / ranks


def test_an_unknown_cost_is_nan_and_no_cost_is_more_than_all() -> None:
    """No step time, no excess, an excess longer than the step."""
    assert math.isnan(gpu_seconds_per_hour(math.nan, 1.0, 8))
    assert math.isnan(gpu_seconds_per_hour(0.1, 0.0, 8))
    assert math.isnan(gpu_seconds_per_hour(0.1, math.nan, 8))
    assert gpu_seconds_per_hour(5.0, 1.0, 8) == 8 * 3600.0
    assert gpu_seconds_per_hour(-1.0, 1.0, 8) == 0.0

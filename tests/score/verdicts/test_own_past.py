"""A whole group against its own past."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from otel_straggler.detect.verdicts.run_engine import MIN_PAST_BLOCKS, OwnPast, Rises

SEEDS = st.integers(0, 2**32 - 1)


def followed(values: np.ndarray, past: OwnPast | None = None) -> list[Rises]:
    """(T, G), the same of all three quantities, by blocks of five."""
    past = past or OwnPast((values.shape[1], 3))
    three = np.repeat(values[..., None], 3, axis=2)
    return [past.observe(three[at : at + 5]) for at in range(0, len(values), 5)]


def noise(seed: int, steps: int = 100, groups: int = 2, sigma: float = 0.01) -> np.ndarray:
    return np.random.default_rng(seed).normal(0.0, sigma, (steps, groups))


def test_a_rise_is_measured_against_what_was_before() -> None:
    """Of the group that rises, and only once enough of the past is known."""
    values = noise(0)
    values[60:, 1] += 0.2
    seen = followed(values)
    assert all(np.isnan(rises.rise).all() for rises in seen[: MIN_PAST_BLOCKS - 1])
    assert not np.array([rises.beyond for rises in seen[:12]]).any()
    assert seen[-1].rise[:, 0] == pytest.approx([0.0, 0.2], abs=0.01)
    assert seen[-1].beyond[:, 0].tolist() == [False, True]


def test_the_past_does_not_become_what_rises() -> None:
    """However long it lasts."""
    values = noise(0, 600)
    values[60:, 1] += 0.2
    assert followed(values)[-1].rise[1, 0] == pytest.approx(0.2, abs=0.02)


@settings(max_examples=25)
@given(SEEDS, st.floats(-5.0, 5.0))
def test_only_the_change_counts_not_the_level(seed: int, level: float) -> None:
    """Logarithms: another unit is another level."""
    values = noise(seed)
    values[60:] += 0.1
    here, there = followed(values)[-1], followed(values + level)[-1]
    np.testing.assert_allclose(there.rise, here.rise, atol=1e-9)
    np.testing.assert_allclose(there.minimum, here.minimum, atol=1e-9)


@pytest.mark.parametrize("sigma", [0.001, 0.02, 0.1])
def test_noise_is_no_rise(sigma: float) -> None:
    """Under 5 % never (3 % of waiting); above it by how much the times vary anyway."""
    seen = [rises for seed in range(30) for rises in followed(noise(seed, 200, 3, sigma))]
    assert np.mean([rises.beyond for rises in seen]) < 0.003
    assert seen[-1].minimum[:, [0, 2]].min() >= 0.05


@settings(max_examples=25)
@given(SEEDS, st.floats(0.0, 1.0))
def test_a_larger_rise_is_no_smaller(seed: int, more: float) -> None:
    """Nor is it found later."""
    values = noise(seed)
    values[60:] += 0.06
    worse = values.copy()
    worse[60:] += more
    here, there = followed(values)[-1].rise, followed(worse)[-1].rise
    assert (there >= here - 1e-9).all()


def test_holes_are_unknown() -> None:
    """A group that sends nothing neither rises nor forgets."""
    values = noise(0)
    values[50:75, 0] = np.nan
    values[75:, 0] += 0.2
    assert followed(values)[-1].rise[0, 0] == pytest.approx(0.2, abs=0.02)
    nothing = followed(np.full((50, 2), np.nan))
    assert not nothing[-1].beyond.any()


def test_a_known_past_counts_from_the_first_block_on() -> None:
    """After a restart."""
    past = OwnPast((2, 3))
    past.seed(np.array([[0.0] * 3, [np.nan] * 3]))
    rises = followed(noise(0, 20) + 0.3, past)[-1]
    assert rises.rise[0, 0] == pytest.approx(0.3, abs=0.02)
    assert np.isnan(rises.rise[1, 0])

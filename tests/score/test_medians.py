"""Medians of few numbers are NumPy's, only faster."""

from __future__ import annotations

import warnings

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from otel_straggler.score.medians import median_of, nan_median

SEEDS = st.integers(0, 2**32 - 1)


@settings(max_examples=60)
@given(SEEDS, st.integers(1, 30), st.sampled_from([np.float32, np.float64]))
def test_a_median_of_numbers_is_numpys(seed: int, n: int, kind: type) -> None:
    """To the last bit, and what was given stays as it was."""
    values = np.random.default_rng(seed).normal(size=n).astype(kind)
    before = values.copy()
    assert median_of(values) == float(np.median(values))
    np.testing.assert_array_equal(values, before)


def test_a_median_of_nothing_or_of_something_unknown_is_unknown() -> None:
    """NaN, and no warning."""
    assert np.isnan(median_of(np.array([])))
    assert np.isnan(median_of(np.array([1.0, np.nan, 3.0])))


@settings(max_examples=60)
@given(SEEDS, st.integers(1, 6), st.integers(1, 6), st.sampled_from([-1, 0, 1, 2]))
def test_a_median_of_what_is_known_is_numpys(seed: int, rows: int, width: int, axis: int) -> None:
    """Along any axis, with holes."""
    rng = np.random.default_rng(seed)
    values = rng.normal(size=(rows, width, 3))
    values[rng.random(values.shape) < 0.4] = np.nan
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # NumPy warns of lines of which nothing is known
        expected = np.nanmedian(values, axis=axis)
    np.testing.assert_allclose(nan_median(values, axis), expected, rtol=1e-15)

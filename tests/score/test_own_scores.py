"""A rank that knows only the best of its peers scores itself as the whole window would."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from otel_straggler.detect.scores.formulas import (
    gpu_relative_to_best,
    relative_gpu_scores,
    relative_scores,
    relative_to_best,
)

SEEDS = st.integers(0, 2**32 - 1)


def times(seed: int, ranks: int, holes: float) -> np.ndarray:
    rng = np.random.default_rng(seed)
    values = rng.uniform(0.1, 2.0, (ranks, 4))
    return np.where(rng.random(values.shape) < holes, np.nan, values)


@settings(max_examples=60)
@given(SEEDS, st.integers(1, 6), st.sampled_from([0.0, 0.3, 1.0]))
def test_section_scores_are_those_of_the_window(seed: int, ranks: int, holes: float) -> None:
    """NaN where it ran nothing."""
    median_s = times(seed, ranks, holes)
    expected = relative_scores(median_s, np.zeros(ranks, np.int64))
    best_s = np.fmin.reduce(median_s, axis=0)
    for own, scores in zip(median_s, expected, strict=True):
        np.testing.assert_allclose(relative_to_best(own, best_s), scores, rtol=1e-12)


@settings(max_examples=60)
@given(SEEDS, st.integers(1, 6), st.sampled_from([0.0, 0.1, 1.0]))
def test_gpu_scores_are_those_of_the_window(seed: int, ranks: int, holes: float) -> None:
    """Over the kernels that all who ran any have in common."""
    median_s = times(seed, ranks, holes)
    total_s = np.nan_to_num(median_s * np.random.default_rng(seed).integers(1, 9, median_s.shape))
    expected = relative_gpu_scores(median_s, total_s, np.zeros(ranks, np.int64))
    compared = ~np.isnan(median_s).all(axis=1)
    is_common = ~np.isnan(median_s[compared]).any(axis=0)
    best_s = np.where(is_common, np.fmin.reduce(median_s, axis=0), np.nan)
    for own, total, score in zip(median_s, total_s, expected, strict=True):
        result = gpu_relative_to_best(own, total, best_s)
        np.testing.assert_allclose(result, score, rtol=1e-12)

"""Medians of pairs, with the interval that the number of pairs allows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

RESAMPLES = 4_000


def median_of(values: Sequence[float]) -> dict[str, Any]:
    """The median, its 95 % interval (bootstrap over the values), the extremes, the count."""
    result = np.asarray(values, dtype=float)
    drawn = np.random.default_rng(0).choice(result, (RESAMPLES, len(result)))
    low, high = np.quantile(np.median(drawn, axis=1), [0.025, 0.975])
    return {
        "median": round(float(np.median(result)), 3),
        "interval_95": [round(float(low), 3), round(float(high), 3)],
        "least": round(float(result.min()), 3),
        "most": round(float(result.max()), 3),
        "pairs": len(result),
    }

"""Energy of a GPU from its counter, or from samples of its power."""

from __future__ import annotations

import math

import numpy as np

from otel_straggler.model.observation import Floats

J_PER_WH = 3_600.0
MAX_GAP = 10.0
"""Intervals without a sample in a row, beyond which nothing is known of the power."""


def counter_wh(joules: Floats) -> float:
    """Energy between the first and the last reading of a running total, in order of time; NaN
    below two readings. A total that falls has begun again at zero.

    >>> counter_wh(np.array([7_200.0, 10_800.0, 0.0, 3_600.0]))
    2.0
    """
    if len(joules) < 2:
        return math.nan
    change = np.diff(joules)
    return float(np.where(change >= 0.0, change, joules[1:]).sum()) / J_PER_WH


def sampled_wh(at_s: Floats, power_w: Floats) -> float:
    """Integral of the power by the trapezoidal rule, samples in any order; NaN below two samples.
    What lies between two samples counts unless the gap is ten times longer than usual.

    >>> sampled_wh(np.array([0.0, 1.0, 2.0]), np.array([360.0, 360.0, 360.0]))
    0.2
    """
    if len(at_s) < 2:
        return math.nan
    order = np.argsort(at_s, kind="stable")
    at_s, power_w = at_s[order], power_w[order]
    gap_s = np.diff(at_s)
    is_known = gap_s <= MAX_GAP * float(np.median(gap_s))
    joules = gap_s * (power_w[1:] + power_w[:-1]) / 2.0
    return float(joules[is_known].sum()) / J_PER_WH


def probed_wh(power_w: Floats, interval_s: Floats) -> float:
    """Energy where each sample stands for an interval of its own, as itwinai's do; NaN without.

    >>> probed_wh(np.array([360.0, 360.0]), np.array([1.0, 1.0]))
    0.2
    """
    return float((power_w * interval_s).sum()) / J_PER_WH if len(power_w) else math.nan

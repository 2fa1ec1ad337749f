"""Since when is it slow? One-sided CUSUM, scaled by the noise, with a threshold from theory.

    g = max(0, g + clip(x / sigma, -3, 3) - k),   k = clip(delta / (2 sigma), 0.25, 1.5)

alarms at g > h, where h makes a false alarm as rare as once in ``mean_steps`` steps of one rank
(Siegmund's approximation of the average run length). An alarm says *that* and *since when*; how
much is measured afterwards and must be enough (verification): a CUSUM alone accuses many.
"""

from __future__ import annotations

import math

import numpy as np

from otel_straggler.model.observation import Floats

DELTA = 0.05
"""The slowdown (5 %) that the statistic is tuned to."""
MOST_SIGMAS = 3.0
STEPS_PER_DAY = 43_200
"""Of 2 s each; the average run length is so many steps times the number of ranks."""


def slack(sigma: Floats) -> Floats:
    """k, in sigmas: half the slowdown sought, within 0.25 and 1.5."""
    return np.asarray(np.minimum(np.maximum(DELTA / (2.0 * sigma), 0.25), 1.5))


def threshold(k: float, mean_steps: float) -> float:
    """h with (exp(b) - b - 1) / (2 k^2) = ``mean_steps``, b = 2 k (h + 1.166).

    >>> round(threshold(0.5, 1000), 2)
    5.06
    """
    target = 2.0 * k * k * mean_steps
    b = math.log(target + 1.0) + 1.0
    for _ in range(30):  # Newton on a convex function, from the right
        before, over = b, math.expm1(b)
        b -= (over - b - target) / over
        if b == before:
            break
    return max(b / (2.0 * k) - 1.166, 1.0)


def moves(x: Floats, sigma: Floats, k: Floats) -> Floats:
    """By how much the excesses of a step move the statistic.

    Args:
        x: (R, C) excess; NaN where unknown.
        sigma, k: (C,) noise of one step, slack.
    """
    drawn = x / sigma
    np.maximum(drawn, -MOST_SIGMAS, out=drawn)
    np.minimum(drawn, MOST_SIGMAS, out=drawn)
    drawn -= k
    return drawn


def advance(g: Floats, move: Floats, most: Floats) -> Floats:
    """The statistic after one more step.

    Args:
        g, move: (R, C) statistic and :func:`moves`; NaN leaves ``g`` as it is.
        most: (C,) cap, so that it clears after a long fault.
    """
    moved = g + move
    np.maximum(moved, 0.0, out=moved)
    np.minimum(moved, most, out=moved)
    np.copyto(moved, g, where=np.isnan(move))
    return moved

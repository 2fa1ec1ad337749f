"""Is a rank slower than its peers by more than chance and by enough to matter?

Times are compared as logarithms against the median of the peers, so every number here is a
relative excess: 0.1 is about 10 % longer.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from otel_straggler.detect.verdicts.groups import Groups
from otel_straggler.model.observation import Bools, Floats, Ints

SIGMA_OF_MAD = 1.4826
"""Standard deviation of a normal distribution / its median absolute deviation."""
MIN_SPREAD = 0.005
"""Peers are never taken to be more alike than 0.5 %: with tight groups a rank 0.5 % slower would
score z = 13."""
PRIOR_ROWS = 16
"""Weight of the spread expected from noise alone against the one measured, in rows."""
FALSE_ALARMS = 0.05
"""Expected number of rows beyond the limit by chance, over all rows and sections together."""


def centred(log_seconds: Floats, groups: Groups, min_peers: int) -> Floats:
    """Log time minus the median of the peers at the same step.

    Args:
        log_seconds: (..., R), NaN where a rank has no time.
        groups: of the R rows.
        min_peers: in smaller groups nobody is compared: NaN.

    Returns: (..., R). Cost: O(n log widest).
    """
    middle = groups.medians(log_seconds)
    present = groups.size
    if np.isnan(log_seconds).any():
        values = groups.gather(log_seconds)
        present = (values == values).sum(axis=-1)
    middle = np.where(present >= min_peers, middle, np.nan)
    return np.asarray(log_seconds - middle[..., groups.code])


def spread_of(effect: Floats, standard_error: Floats) -> Floats:
    """Robust standard deviation of what healthy rows differ by, per column.

    The measured spread (MAD, over all rows: also over groups, since each is centred) and the
    noise's standard error are weighed by the number of rows, because the MAD of a few rows is
    nearly worthless; never less than the standard error and 0.5 % together. As a spread measured on
    n rows is itself uncertain by about 1 / sqrt(n), it is taken larger by that.

    Args:
        effect: (R, C) NaN where unknown.
        standard_error: (C,) of ``effect``.

    Returns: (C,).
    """
    known = (effect == effect).sum(axis=0)
    size = np.sort(np.abs(effect), axis=0)
    at = np.maximum(known - 1, 0) // 2
    middle = size[at, np.arange(len(at))] if len(size) else np.zeros(len(known))
    unsure = 1.0 + 1.0 / np.sqrt(known + PRIOR_ROWS)
    measured = np.where(known > 0, unsure * SIGMA_OF_MAD * middle, 0.0)
    expected = standard_error**2 + MIN_SPREAD**2
    mixed = (known * measured**2 + PRIOR_ROWS * expected) / (known + PRIOR_ROWS)
    return np.asarray(np.sqrt(np.maximum(mixed, expected)))


def min_z(rows: int, columns: int, floor: float) -> float:
    """How many standard deviations beyond its peers a row must lie, so that among ``rows`` x
    ``columns`` healthy ones 0.05 lie there by chance: sqrt(2 ln(n / 0.05)), at least ``floor``.

    >>> round(min_z(8, 4, 3.5), 2), round(min_z(16_384, 4, 3.5), 2)
    (3.59, 5.31)
    """
    return max(floor, math.sqrt(2.0 * math.log(max(rows * columns, 1) / FALSE_ALARMS)))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Findings:
    """Of one evaluation; all (R, C).

    Attributes:
        beyond: in one window at least, the excess is unlikely and large.
        verified: CUSUM alarms, and what has passed since its onset is large enough.
        effect: the excess: of the shortest window that is beyond, else of the newest 20 steps.
        z: its distance from the peers, in robust standard deviations.
        floor: the least excess that counts in that window.
        recent: of the newest 20 steps at most.
        recent_error: (C,) its standard error.
        since: observed step (a count) at which the present rise began, -1 if there is none.
    """

    beyond: Bools
    verified: Bools
    effect: Floats
    z: Floats
    floor: Floats
    recent: Floats
    recent_error: Floats
    since: Ints


@dataclass(frozen=True, slots=True)
class Past:
    """(R, C) what is normal for each subject, NaN where nobody knows, and its standard error."""

    reference: Floats
    error: Floats


class Strongest:
    """The strongest finding per cell over windows; the shortest window that is beyond wins."""

    def __init__(self, shape: tuple[int, int], effect: Floats) -> None:
        self.beyond = np.zeros(shape, bool)
        self.effect = effect.copy()
        self.z = np.zeros(shape)
        self.floor = np.full(shape, np.inf)
        self.spread = np.full(shape[1], np.inf)

    def add(self, effect: Floats, z: Floats, floor: Floats, z_limit: float) -> None:
        with np.errstate(invalid="ignore"):
            is_beyond = (z >= z_limit) & (effect >= floor)
        new = is_beyond & ~self.beyond
        self.effect[new] = effect[new]
        self.floor[new] = floor[new]
        self.z = np.fmax(self.z, z)
        self.beyond |= is_beyond


MEDIAN_ERROR = 1.2533
"""Standard error of a median of n normal values x sqrt(n) / their standard deviation."""
Z_POWER = 1.2816
"""A slowdown of the size given is seen by nine evaluations of ten."""


def resolvable_slowdown(
    noise: float, steps: int, comparisons: int, false_alarms: float = FALSE_ALARMS
) -> float:
    """The smallest slowdown that ``steps`` steps can show: 1.04 means 4 %.

    delta = (z_alpha + z_beta) 1.2533 noise / sqrt(steps), z_alpha = sqrt(2 ln(comparisons /
    false_alarms)), z_beta for 90 %; the result is exp(delta), as noise is one of logs. The more
    ranks and sections are compared, the more a rank must stand out: the false alarms of the whole
    run stay the same.

    Args:
        noise: standard deviation of the log time of a step, >= 0.
        steps: steps whose median is compared.
        comparisons: ranks x sections that are compared at once.
        false_alarms: expected number of them among all comparisons.

    Returns: At least 1; NaN if ``noise`` is NaN or nothing is compared. Cost: O(1). Source:
    standard error of the median, and the tail bound of the normal distribution; the errors of steps
    are taken as independent.

    >>> round(resolvable_slowdown(0.024, 20, 64), 3)
    1.035
    >>> round(resolvable_slowdown(0.024, 400, 64), 3)
    1.008
    """
    if math.isnan(noise) or steps < 1 or comparisons < 1:
        return math.nan
    z_alpha = math.sqrt(2.0 * math.log(max(1.0, comparisons / false_alarms)))
    exponent = (z_alpha + Z_POWER) * MEDIAN_ERROR * noise / math.sqrt(steps)
    return math.exp(min(exponent, 700.0))


# --- CUSUM --------------------------------------------------------------------------------------
# Since when is it slow? One-sided, scaled by the noise, with a threshold from theory:
#
#     g = max(0, g + clip(x / sigma, -3, 3) - k),   k = clip(delta / (2 sigma), 0.25, 1.5)
#
# alarms at g > h, where h makes a false alarm as rare as once in ``mean_steps`` steps of one rank
# (Siegmund's approximation of the average run length). An alarm says *that* and *since when*; how
# much is measured afterwards and must be enough (verification): a CUSUM alone accuses many.

DELTA = 0.05
"""The slowdown (5 %) that the statistic is tuned to."""
MAX_SIGMAS = 3.0
STEPS_PER_DAY = 43_200
"""Of 2 s each; the average run length is so many steps times the number of ranks."""


def cusum_slack(sigma: Floats) -> Floats:
    """k, in sigmas: half the slowdown sought, within 0.25 and 1.5."""
    return np.asarray(np.minimum(np.maximum(DELTA / (2.0 * sigma), 0.25), 1.5))


def cusum_threshold(k: float, mean_steps: float) -> float:
    """h with (exp(b) - b - 1) / (2 k^2) = ``mean_steps``, b = 2 k (h + 1.166).

    >>> round(cusum_threshold(0.5, 1000), 2)
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


def cusum_moves(x: Floats, sigma: Floats, k: Floats) -> Floats:
    """By how much the excesses of a step move the statistic.

    Args:
        x: (R, C) excess; NaN where unknown.
        sigma, k: (C,) noise of one step, slack.
    """
    drawn = x / sigma
    np.maximum(drawn, -MAX_SIGMAS, out=drawn)
    np.minimum(drawn, MAX_SIGMAS, out=drawn)
    drawn -= k
    return drawn


def advance_cusum(g: Floats, move: Floats, maximum: Floats) -> Floats:
    """The statistic after one more step.

    Args:
        g, move: (R, C) statistic and :func:`cusum_moves`; NaN leaves ``g`` as it is.
        maximum: (C,) cap, so that it clears after a long fault.
    """
    moved = g + move
    np.maximum(moved, 0.0, out=moved)
    np.minimum(moved, maximum, out=moved)
    np.copyto(moved, g, where=np.isnan(move))
    return moved

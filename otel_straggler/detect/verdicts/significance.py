"""Is a rank slower than its peers by more than chance, and by enough to matter? All numbers are log
excesses over the peers' median."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from otel_straggler.detect.scores.medians import Groups
from otel_straggler.model.observation import Bools, Floats, Ints

SIGMA_OF_MAD = 1.4826
"""Standard deviation of a normal distribution / its median absolute deviation."""
MIN_SPREAD = 0.005
"""Peers always differ by 0.5 %: else, in tight groups, a rank 0.5 % slower would score z = 13."""
PRIOR_ROWS = 16
"""Weight of the spread expected from noise against the measured one, in rows."""
OUTER_OF_MIDDLE = 1.9
"""80 % quantile / median of the sizes of normal numbers."""
TAIL_ERROR, MIN_TAIL_ROWS = 1.5, 12
FALSE_ALARMS = 0.05
"""Rows beyond the limit by chance, over all rows and sections together."""


def centred(log_seconds: Floats, groups: Groups, min_peers: int) -> Floats:
    """(..., R) log time minus the peers' median; NaN in groups with fewer than ``min_peers``."""
    middle = groups.medians(log_seconds)
    present = groups.size
    if np.isnan(log_seconds).any():
        values = groups.gather(log_seconds)
        present = (values == values).sum(axis=-1)
    middle = np.where(present >= min_peers, middle, np.nan)
    return np.asarray(log_seconds - middle[..., groups.code])


def spread_of(effect: Floats, standard_error: Floats) -> Floats:
    """(C,) robust standard deviation of what healthy rows differ by, from (R, C) effects (NaN where
    unknown) and their (C,) standard error. The measured spread (MAD, over all rows) and the
    standard error are weighed by the number of rows, because the MAD of a few rows is nearly
    worthless. As a spread of n rows is uncertain by about 1 / sqrt(n), it is taken larger by that.
    """
    known = (effect == effect).sum(axis=0)
    size = np.sort(np.abs(effect), axis=0)
    at = np.maximum(known - 1, 0) // 2
    middle = size[at, np.arange(len(at))] if len(size) else np.zeros(len(known))
    unsure = 1.0 + 1.0 / np.sqrt(known + PRIOR_ROWS)
    measured = np.where(known > 0, unsure * SIGMA_OF_MAD * middle, 0.0)
    expected = standard_error**2 + MIN_SPREAD**2
    mixed = (known * measured**2 + PRIOR_ROWS * expected) / (known + PRIOR_ROWS)
    return np.asarray(np.sqrt(np.maximum(mixed, expected)) * _tail(size, known, middle) ** 2)


def _tail(size: Floats, known: Ints, middle: Floats) -> Floats:
    """(C,) how much farther the outer of (R, C) sorted sizes lie than normal ones, 1 at least: the
    80 % quantile against the ``middle`` one, less what few rows differ by."""
    if not len(size):
        return np.ones(len(known))
    outer = size[np.maximum((0.8 * known).astype(np.int64) - 1, 0), np.arange(len(known))]
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = outer / (OUTER_OF_MIDDLE * middle) - TAIL_ERROR / np.sqrt(known)
    return np.asarray(np.where(known >= MIN_TAIL_ROWS, np.fmax(ratio, 1.0), 1.0))


def min_z(rows: int, columns: int, floor: float) -> float:
    """Standard deviations beyond its peers that 0.05 of ``rows`` x ``columns`` healthy ones reach
    by chance: sqrt(2 ln(n / 0.05)), at least ``floor``.

    >>> round(min_z(8, 4, 3.5), 2), round(min_z(16_384, 4, 3.5), 2)
    (3.59, 5.31)
    """
    return max(floor, math.sqrt(2.0 * math.log(max(rows * columns, 1) / FALSE_ALARMS)))


SURE_PART = 2 / 3


def confidence_of(z: float, limit: float) -> float:
    """0 to 1, of what lies ``z`` standard errors from chance: 0.6 at the ``limit`` from which on it
    counts, which chance reaches in one of 20 runs; 0 for NaN.

    >>> confidence_of(3.5, 3.5), confidence_of(14.0, 3.5)
    (0.6, 0.857)
    """
    return round(z / (z + SURE_PART * limit), 3) if z > 0.0 else 0.0


@dataclass(slots=True, kw_only=True, eq=False)
class Findings:
    """Of one evaluation, (R, C).

    Attributes:
        beyond: in at least one window, the excess is unlikely and large.
        verified: CUSUM alarms, and the excess since its onset is large enough.
        effect: excess in the shortest window that is beyond, else of the newest 20 steps.
        z: its distance from the peers, in robust standard deviations.
        floor: the smallest excess that counts in that window.
        recent: of the newest 20 steps at most; recent_error: (C,) its standard error.
        since: observed step (a count) at which the present rise began, -1 if there is none.
        spread: (C,) smallest of the peers' in any window.
    """

    beyond: Bools
    verified: Bools
    effect: Floats
    z: Floats
    floor: Floats
    recent: Floats
    recent_error: Floats
    since: Ints
    spread: Floats

    @classmethod
    def of_windows(
        cls,
        values: Floats,
        z: Floats,
        floor: Floats,
        z_limits: Floats,
        *,
        recent: Floats,
        recent_error: Floats,
        since: Ints,
        spread: Floats,
    ) -> Findings:
        """Of W windows, the shortest first: of those in which a row is beyond the first one counts.

        Args:
            values: (R, W, 2, C) excess over the peers, and over what is usual; z: of each.
            floor: (R, C).
            z_limits: (W, C).
        """
        with np.errstate(invalid="ignore"):
            is_beyond = (z >= z_limits[:, None]) & (values >= floor[:, None, None])
        n_rows, n_columns = floor.shape
        in_order = is_beyond.reshape(n_rows, -1, n_columns)
        beyond, effect = np.asarray(in_order.any(axis=1)), recent.copy()
        at_floor = np.full(floor.shape, np.inf)
        if beyond.any():
            first = in_order.argmax(axis=1)[:, None]
            found = np.take_along_axis(values.reshape(in_order.shape), first, axis=1)[:, 0]
            effect[beyond], at_floor[beyond] = found[beyond], floor[beyond]
        return cls(
            beyond=beyond,
            verified=np.zeros(floor.shape, bool),
            effect=effect,
            z=np.fmax.reduce(z.reshape(in_order.shape), axis=1, initial=0.0),
            floor=at_floor,
            recent=recent,
            recent_error=recent_error,
            since=since,
            spread=spread,
        )


MEDIAN_ERROR = 1.2533
"""Standard error of a median of n normal values x sqrt(n) / their standard deviation."""
Z_POWER = 1.2816
"""Nine of ten evaluations detect a slowdown of the given size."""


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


@lru_cache(256)  # much of what is measured has little noise, and the largest slack
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
    """(..., C) change of the statistic by a step's excess, with (C,) noise and slack."""
    drawn = x / sigma
    np.maximum(drawn, -MAX_SIGMAS, out=drawn)
    np.minimum(drawn, MAX_SIGMAS, out=drawn)
    drawn -= k
    return drawn


def advance_cusum(g: Floats, move: Floats, maximum: Floats, *, is_known: bool = False) -> Floats:
    """(R, C) statistic after a step; NaN leaves it, ``maximum`` (C,) caps it. ``is_known``: there
    is no NaN."""
    moved = g + move
    np.maximum(moved, 0.0, out=moved)
    np.minimum(moved, maximum, out=moved)
    if not is_known:
        np.copyto(moved, g, where=np.isnan(move))
    return moved

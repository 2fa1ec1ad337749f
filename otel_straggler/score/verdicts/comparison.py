"""Is a rank slower than its peers by more than chance and by enough to matter?

Times are compared as logarithms against the median of the peers, so every number here is a
relative excess: 0.1 is about 10 % longer.
"""

from __future__ import annotations

import math

import numpy as np

from otel_straggler.model.observation import Floats
from otel_straggler.score.verdicts.grouping import Groups

SIGMA_OF_MAD = 1.4826
"""Standard deviation of a normal distribution / its median absolute deviation."""
LEAST_SPREAD = 0.005
"""Peers are never taken to be more alike than 0.5 %: with tight groups a rank 0.5 % slower would
score z = 13."""
PRIOR_ROWS = 16
"""Weight of the spread expected from noise alone against the one measured, in rows."""
FALSE_ALARMS = 0.05
"""Expected number of rows beyond the limit by chance, over all rows and sections together."""


def centred(log_seconds: Floats, groups: Groups, least_peers: int) -> Floats:
    """Log time minus the median of the peers at the same step.

    Args:
        log_seconds: (..., R), NaN where a rank has no time.
        groups: of the R rows.
        least_peers: in smaller groups nobody is compared: NaN.

    Returns:
        (..., R). Cost: O(n log widest).
    """
    middle = groups.medians(log_seconds)
    present = groups.size
    if np.isnan(log_seconds).any():
        values = groups.gather(log_seconds)
        present = (values == values).sum(axis=-1)
    middle = np.where(present >= least_peers, middle, np.nan)
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

    Returns:
        (C,).
    """
    known = (effect == effect).sum(axis=0)
    size = np.sort(np.abs(effect), axis=0)
    at = np.maximum(known - 1, 0) // 2
    middle = size[at, np.arange(len(at))] if len(size) else np.zeros(len(known))
    unsure = 1.0 + 1.0 / np.sqrt(known + PRIOR_ROWS)
    measured = np.where(known > 0, unsure * SIGMA_OF_MAD * middle, 0.0)
    expected = standard_error**2 + LEAST_SPREAD**2
    mixed = (known * measured**2 + PRIOR_ROWS * expected) / (known + PRIOR_ROWS)
    return np.asarray(np.sqrt(np.maximum(mixed, expected)))


def least_z(rows: int, columns: int, floor: float) -> float:
    """How many standard deviations beyond its peers a row must lie, so that among ``rows`` x
    ``columns`` healthy ones 0.05 lie there by chance: sqrt(2 ln(n / 0.05)), at least ``floor``.

    >>> round(least_z(8, 4, 3.5), 2), round(least_z(16_384, 4, 3.5), 2)
    (3.59, 5.31)
    """
    return max(floor, math.sqrt(2.0 * math.log(max(rows * columns, 1) / FALSE_ALARMS)))

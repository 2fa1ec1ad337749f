"""The smallest slowdown that the noise of a run allows to see."""

from __future__ import annotations

import math

MEDIAN_ERROR = 1.2533
"""Standard error of a median of n normal values x sqrt(n) / their standard deviation."""
FALSE_ALARMS = 0.05
"""Expected false alarms over all comparisons of an evaluation, before persistence."""
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

    Returns:
        At least 1; NaN if ``noise`` is NaN or nothing is compared.

    Cost: O(1). Source: standard error of the median, and the tail bound of the normal
    distribution; the errors of steps are taken as independent.

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

"""Figures of turns: medians, quartiles, and what an arm costs over another in the same round."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

Figure = dict[str, Any]


def spread(values: Sequence[float], digits: int = 4) -> Figure:
    """Median and quartiles of values, at least one.

    >>> spread([1.0, 2.0, 3.0, 4.0, 5.0])
    {'value': 3.0, 'iqr': [2.0, 4.0], 'count': 5}
    """
    low, middle, high = _quartiles(values)
    return {
        "value": round(middle, digits),
        "iqr": [round(low, digits), round(high, digits)],
        "count": len(values),
    }


def percent_over(rounds: Sequence[Mapping[str, float]], arm: str, baseline: str) -> Figure | None:
    """What ``arm`` takes more than ``baseline``, in percent: the median over the rounds that both
    were in, each compared with its neighbour in time. None if there is no such round.

    >>> percent_over([{"off": 10.0, "on": 11.0}, {"off": 20.0, "on": 20.0}], "on", "off")["value"]
    5.0
    """
    both = [r for r in rounds if arm in r and baseline in r and r[baseline] > 0]
    if not both:
        return None
    return spread([100 * (r[arm] / r[baseline] - 1) for r in both])


def more_than(rounds: Sequence[Mapping[str, float]], arm: str, baseline: str) -> Figure | None:
    """The same in the unit of the values."""
    both = [r for r in rounds if arm in r and baseline in r]
    return spread([r[arm] - r[baseline] for r in both]) if both else None


def _quartiles(values: Sequence[float]) -> tuple[float, float, float]:
    if len(values) == 1:
        return values[0], values[0], values[0]
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, middle, high

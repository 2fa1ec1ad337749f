"""One budget of series for all runs: each gets the same share, and what a small run leaves."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from otel_straggler import semconv
from otel_straggler.collector.metrics.families import Families, labels

_MIN_SERIES: Final = 1_000
"""A run may show so many, however small its share: those that alerts read."""
_OVER_SHARE: Final = 2
"""Times its share that a run may show: with what is otherwise never folded."""


def share_of_each(needs: Collection[int], budget: int) -> int:
    """The most series that one run may have, so that all runs fit; the whole budget if they do.

    Args:
        needs: series of each run if nothing were folded.

    >>> share_of_each([10, 20], 100), share_of_each([10, 200, 300], 100)
    (100, 45)
    """
    if sum(needs) <= budget:
        return budget
    left = budget
    for number, need in enumerate(sorted(needs)):
        share = left // (len(needs) - number)
        if need > share:
            return _rounded(share)
        left -= need
    return budget


def _rounded(share: int) -> int:
    """Down to two digits: series are rebuilt when the share of their run changes."""
    unit: int = 10 ** max(0, len(str(share)) - 2)
    return share // unit * unit


def series_needed(families: Families) -> int:
    """How many there would be if nothing were folded."""
    return len(families) + int(families.total_of(semconv.COLLECTOR_SERIES_FOLDED))


def keep_within_share(families: Families, share: int, run_id: str, constant: str) -> None:
    """Drop metrics that were added last where a run shows far more than its share, for instance
    ranks that each count losses of very many kinds; count them as folded."""
    for metric, count in families.keep_first(max(_MIN_SERIES, _OVER_SHARE * share)).items():
        text = labels(run_id=run_id, family=metric.prometheus_name)
        families.add(semconv.COLLECTOR_SERIES_FOLDED, f"{text},{constant}", count)

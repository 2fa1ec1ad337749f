"""One value from many, by Grafana's names."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from typing import Any, Final

Numbers = Sequence[float]


def reduce(values: Sequence[Any], calculation: str) -> Any:
    """None where there is no value; ``last`` and ``first`` keep what is no number.

    >>> reduce([1.0, float("nan"), 3.0], "mean"), reduce([], "last")
    (2.0, None)
    """
    if calculation in {"last", "first"}:
        return values[-1 if calculation == "last" else 0] if values else None
    numbers = [v for v in values if isinstance(v, int | float) and not math.isnan(v)]
    if calculation == "count":
        return len(values)
    return KNOWN[calculation](numbers) if numbers and calculation in KNOWN else None


KNOWN: Final[dict[str, Callable[[Numbers], float]]] = {
    "lastNotNull": lambda numbers: numbers[-1],
    "firstNotNull": lambda numbers: numbers[0],
    "min": min,
    "max": max,
    "mean": statistics.fmean,
    "median": statistics.median,
    "sum": math.fsum,
    "range": lambda numbers: max(numbers) - min(numbers),
    "diff": lambda numbers: numbers[-1] - numbers[0],
    "delta": lambda numbers: numbers[-1] - numbers[0],
}

"""Where an axis has its marks, and what stands at them."""

from __future__ import annotations

import math
from typing import Any

from otel_straggler.dashboards.preview import units

_MOST_MARKS = 6


def marks(least: float, most: float, unit: str, decimals: int | None) -> dict[str, Any]:
    """Marks at round numbers with the unit, for the chart library."""
    at = rounds(least, most, 1024.0 if unit in {"bytes", "binBps"} else 10.0)
    return {"tickvals": at, "ticktext": [units.shown(value, unit, decimals) for value in at]}


def rounds(least: float, most: float, base: float = 10.0) -> list[float]:
    """
    >>> rounds(0.0, 1.0)
    [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
    """
    width = (most - least) / _MOST_MARKS
    if not math.isfinite(width) or width <= 0:
        return [least]
    power = base ** math.floor(math.log(width, base) + 1e-9)
    steps = (1, 2, 5, 10) if base == 10.0 else (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
    step = power * next((s for s in steps if s * power >= width * 0.999), steps[-1])
    first, last = math.ceil(least / step - 1e-9), math.floor(most / step + 1e-9)
    return [round(n * step, 12) for n in range(first, last + 1)]


def reach(numbers: list[float], told_least: Any, told_most: Any) -> tuple[float, float]:
    """Both ends of an axis: what is told, else the numbers with a tenth of room."""
    finite = [n for n in numbers if math.isfinite(n)] or [0.0]
    low, high = min(finite), max(finite)
    room = (high - low) * 0.1 or abs(high) * 0.1 or 1.0
    least = float(told_least) if told_least is not None else low - room
    most = float(told_most) if told_most is not None else high + room
    return (least, most) if most > least else (least, least + 1.0)

"""Numbers for JSON: few digits where there are many, null for what is not known."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Final

import numpy as np

from otel_straggler.model.observation import Floats

DIGITS: Final = 4
_POWERS: Final = np.array([float(f"1e{n}") for n in range(23)])


def rounded(values: Floats) -> list[float | None]:
    """All values with 4 significant digits; None for NaN and infinity. Cost: O(n), vectorised.

    >>> rounded(np.array([1.23456, 123456.0, np.nan, 0.0, 0.000123456]))
    [1.235, 123500.0, None, 0.0, 0.0001235]
    """
    known = np.isfinite(values) & (values != 0.0)
    size = np.zeros(values.shape, np.int64)
    size[known] = np.floor(np.log10(np.abs(values[known]))).astype(np.int64)
    digits = np.clip(DIGITS - 1 - size, -22, 22)
    power = _POWERS[np.abs(digits)]
    with np.errstate(over="ignore", invalid="ignore"):  # of the branch that is not taken
        fine = np.round(values * power) / power
        coarse = np.round(values / power) * power
    found: list[float | None] = np.where(digits >= 0, fine, coarse).tolist()
    for at in np.flatnonzero(~np.isfinite(values)).tolist():
        found[at] = None
    return found


def number(value: float | None, digits: int = 6) -> float | None:
    """One value with so many significant digits; None for None, NaN and infinity."""
    if value is None or not math.isfinite(value):
        return None
    return float(f"{value:.{digits}g}")


def seconds(value: float | None) -> float | None:
    """A time to the millisecond; None for None, NaN and infinity."""
    return None if value is None or not math.isfinite(value) else round(value, 3)


class Names:
    """A table of names, and the place of each in it."""

    def __init__(self, known: Iterable[str] = ()) -> None:
        self._places = {name: place for place, name in enumerate(known)}

    def place(self, name: str) -> int:
        return self._places.setdefault(name, len(self._places))

    def table(self) -> list[str]:
        return list(self._places)

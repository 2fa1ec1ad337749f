"""Numbers that only some spans tell, on their way to a column."""

from __future__ import annotations

import numpy as np

from otel_straggler.model.observation import Floats, Ints


class ToldValues:
    """Values of ``width`` columns, each with the place of the span that tells them."""

    def __init__(self, width: int = 1) -> None:
        self._width = width
        self._single: list[tuple[float, ...]] = []
        self._many: list[tuple[Ints, Floats]] = []

    def add(self, place: int, *values: float) -> None:
        """One span's."""
        self._single.append((place, *values))

    def add_many(self, places: Ints, values: Floats) -> None:
        """Of n spans at ascending places, (n, width)."""
        self._many.append((places, values))

    def at(self, places: Ints) -> Floats | None:
        """(n, width) for rows at these places, ascending; NaN where nothing is told, None if
        nobody tells. A folded span has several rows in one place."""
        if not self._single and not self._many:
            return None
        found = np.full((len(places), self._width), np.nan)
        for told, values in self._many:
            found[np.searchsorted(places, told)] = values
        if self._single:
            table = np.array(sorted(self._single))
            told = table[:, 0].astype(np.int64)
            at = np.minimum(np.searchsorted(told, places), len(told) - 1)
            is_told = told[at] == places
            found[is_told] = table[at[is_told], 1:]
        return found

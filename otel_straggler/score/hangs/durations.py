"""How long something has taken so far, as counts by length: bounded, whatever is put in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from otel_straggler.model.observation import Floats

_PER_OCTAVE = 8
_SHORTEST_S = 2.0**-20
_OCTAVES = 40
_BUCKETS = _PER_OCTAVE * _OCTAVES
_MOST_IN_A_GENERATION = 20_000
_MOST_COUNTED = 2**40


class Durations:
    """Lengths in seconds, in buckets of an eighth of an octave: quantiles are right to 4.4 %.

    Two generations are kept: once the newer one holds 20,000 lengths it becomes the older one, and
    what was older is forgotten. So what a run did hours ago does not rule it for ever.
    """

    def __init__(self) -> None:
        self._counts = np.zeros((2, _BUCKETS), np.int64)
        self._longest_s = [0.0, 0.0]

    def __len__(self) -> int:
        return int(self._counts.sum())

    @property
    def longest_s(self) -> float:
        """Exact; 0 if there is none."""
        return max(self._longest_s)

    def add(self, seconds: Floats) -> None:
        """Count lengths of any shape; NaN, zero and less are left out. Cost: O(lengths)."""
        known = seconds[seconds > 0.0]
        if len(known) == 0:
            return
        if self._counts[0].sum() >= _MOST_IN_A_GENERATION:
            self._counts[1], self._longest_s[1] = self._counts[0], self._longest_s[0]
            self._counts[0], self._longest_s[0] = 0, 0.0
        place = np.log2(known / _SHORTEST_S) * _PER_OCTAVE
        bucket = np.clip(place, 0, _BUCKETS - 1).astype(np.int64)
        self._counts[0] += np.bincount(bucket, minlength=_BUCKETS)
        self._longest_s[0] = max(self._longest_s[0], float(known.max()))

    def note_longest(self, seconds: float) -> None:
        """That a length was seen which is not counted; NaN is none."""
        if seconds > self._longest_s[0]:
            self._longest_s[0] = seconds

    def state(self) -> dict[str, Any]:
        """JSON's types only: of each generation the longest, and the buckets that hold some."""
        return {
            "longest_s": list(self._longest_s),
            "counts": [
                [[int(b), int(row[b])] for b in np.flatnonzero(row)] for row in self._counts
            ],
        }

    @classmethod
    def of(cls, state: Mapping[str, Any]) -> Durations:
        """From :meth:`state`.

        Raises:
            ValueError, KeyError, TypeError: it is none.
        """
        made = cls()
        newer_s, older_s = (float(longest_s) for longest_s in state["longest_s"])
        made._longest_s = [newer_s, older_s]
        for row, pairs in zip(made._counts, state["counts"], strict=True):
            for bucket, count in pairs:
                if not (0 <= bucket < _BUCKETS and 0 < count < _MOST_COUNTED):
                    msg = f"bucket {bucket!r} with {count!r}"
                    raise ValueError(msg)
                row[bucket] = count
        return made

    def quantile_s(self, q: float) -> float:
        """The length that a part ``q`` of all does not exceed; NaN if there is none."""
        return _quantile(self._counts.sum(axis=0), q)

    def median_deviation_s(self) -> float:
        """Median absolute deviation from the median; NaN if there is none."""
        counts = self._counts.sum(axis=0)
        middle_s = _quantile(counts, 0.5)
        apart_s = np.abs(_MIDDLES_S - middle_s)
        order = np.argsort(apart_s, kind="stable")
        below = np.cumsum(counts[order])
        if np.isnan(middle_s):
            return middle_s
        return float(apart_s[order][np.searchsorted(below, 0.5 * below[-1])])


_MIDDLES_S: Floats = _SHORTEST_S * 2.0 ** ((np.arange(_BUCKETS) + 0.5) / _PER_OCTAVE)


def _quantile(counts: np.typing.NDArray[np.int64], q: float) -> float:
    below = np.cumsum(counts)
    if below[-1] == 0:
        return float("nan")
    return float(_MIDDLES_S[np.searchsorted(below, q * below[-1])])

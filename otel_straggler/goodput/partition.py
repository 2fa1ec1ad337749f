"""A stretch of time as segments of one category each: no gap, no overlap, whatever was reported."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from otel_straggler.model.observation import Codes, Ints

_FEW: Final = 64
"""So few intervals are painted one by one."""


class Layer(NamedTuple):
    """Intervals of one category, in nanoseconds; they may overlap and exceed the stretch."""

    code: int
    start_ns: Ints
    end_ns: Ints


@dataclass(frozen=True, slots=True)
class Segments:
    """K segments from ``edges_ns[0]`` to ``edges_ns[-1]``.

    Attributes:
        edges_ns: (K + 1,) ascending, no two alike.
        codes: (K,) category of each segment.
    """

    edges_ns: Ints
    codes: Codes

    @property
    def length_ns(self) -> Ints:
        return np.diff(self.edges_ns)

    def totals_ns(self, n_codes: int) -> Ints:
        """(n_codes,) time of each category; exact."""
        totals = np.zeros(n_codes, np.int64)
        np.add.at(totals, self.codes, self.length_ns)
        return totals

    def totals_between(self, edges_ns: Ints, n_codes: int) -> Ints:
        """(n_codes, B) time of each category in each of B bins; exact.

        Args:
            edges_ns: (B + 1,) of the bins, ascending; what is outside of them does not count.
        """
        totals = np.zeros((n_codes, len(edges_ns) - 1), np.int64)
        low, high = max(edges_ns[0], self.edges_ns[0]), min(edges_ns[-1], self.edges_ns[-1])
        both = ascending([self.edges_ns, edges_ns])
        both = both[(both >= low) & (both <= high)]
        if len(both) < 2:
            return totals
        segment = np.searchsorted(self.edges_ns, both[:-1], "right") - 1
        bins = np.searchsorted(edges_ns, both[:-1], "right") - 1
        np.add.at(totals, (self.codes[segment], bins), np.diff(both))
        return totals

    def merged(self) -> Segments:
        """The same with neighbors of one category as one segment."""
        if len(self.codes) < 2:
            return self
        begins = np.concatenate([[True], self.codes[1:] != self.codes[:-1]])
        edges_ns = np.concatenate([self.edges_ns[:-1][begins], self.edges_ns[-1:]])
        return Segments(edges_ns, self.codes[begins])


def ascending(parts: Sequence[Ints]) -> Ints:
    """All values of the parts once, ascending. By sorting: the hash table of ``np.unique`` takes a
    hundred times as long for times that are evenly spaced."""
    values = np.sort(np.concatenate(parts))
    return values[np.append(True, values[1:] != values[:-1])] if len(values) else values


def painted(start_ns: int, end_ns: int, layers: Sequence[Layer], background: int) -> Segments:
    """Paint layers one over the other, the first the lowest; each covers those before it.

    Args:
        start_ns, end_ns: the stretch; the latter is greater.
        background: category of what no layer covers.

    Cost: O(n log n) of all intervals, and O(n) for each layer of many.

    >>> night = Layer(1, np.array([0, 30]), np.array([10, 99]))
    >>> lamp = Layer(2, np.array([5]), np.array([35]))
    >>> result = painted(0, 40, [night, lamp], 0)
    >>> result.edges_ns.tolist(), result.codes.tolist()
    ([0, 5, 10, 30, 35, 40], [1, 2, 2, 2, 1])
    """
    clipped = [_clipped(layer, start_ns, end_ns) for layer in layers]
    ends = np.array([start_ns, end_ns], np.int64)
    edges_ns = ascending([ends, *(part for each in clipped for part in each[1:])])
    codes = np.full(len(edges_ns) - 1, background, np.int32)
    for code, starts, stops in clipped:
        first, last = np.searchsorted(edges_ns, starts), np.searchsorted(edges_ns, stops)
        if len(first) <= _FEW:
            for low, high in zip(first.tolist(), last.tolist(), strict=True):
                codes[low:high] = code
        else:
            opened = np.bincount(first, minlength=len(edges_ns))
            closed = np.bincount(last, minlength=len(edges_ns))
            codes[np.cumsum(opened - closed)[:-1] > 0] = code
    return Segments(edges_ns, codes)


def _clipped(layer: Layer, start_ns: int, end_ns: int) -> Layer:
    starts = np.maximum(layer.start_ns, start_ns)
    stops = np.minimum(layer.end_ns, end_ns)
    is_inside = stops > starts
    return Layer(layer.code, starts[is_inside], stops[is_inside])

"""How long the runs in a folded span were: lengths counted in buckets, as few bytes.

A length below 512 ns is its own bucket. Of a longer one the highest 9 bits are kept, and how many
bits follow: a bucket is 1/256 to 1/512 of the length wide, so whatever is taken from it is off by
less than 0.4 %. All of it is whole numbers, so that C++ (sketch.hpp) counts the same.

On the wire stand pairs of varints, ascending: distance from the bucket before (at first from 0),
and how many. The runs of one step lie close together: some ten buckets, some thirty bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from otel_straggler.model.observation import Ints

LONGEST_NS = 2**50
"""Lengths are below it; 13 days."""
_BITS = 8
_MOST_BUCKETS = (LONGEST_NS.bit_length() - _BITS) << _BITS
_MOST_RUNS = 2**31


@dataclass(frozen=True, slots=True, eq=False)
class Sketch:
    """Buckets that hold something, ascending.

    Attributes:
        lowest_ns, highest_ns: the shortest and the longest length in each, both included.
        counts: how many each holds.
    """

    lowest_ns: Ints
    highest_ns: Ints
    counts: Ints


def buckets_of(lengths_ns: Ints) -> Ints:
    """The bucket of each length.

    Args:
        lengths_ns: (n,) from 0 to below ``LONGEST_NS``, so exact as doubles.

    >>> buckets_of(np.array([7, 511, 512, 1024])).tolist()
    [7, 511, 512, 768]
    """
    bits = np.frexp(lengths_ns.astype(np.float64))[1].astype(np.int64)
    dropped = np.maximum(bits - _BITS - 1, 0)
    found: Ints = (dropped << _BITS) + (lengths_ns >> dropped)
    return found


def write_sketch(lengths_ns: Sequence[int]) -> bytes:
    """The bytes on the wire.

    >>> write_sketch([3, 3, 300, 3]).hex()
    '0303a90201'
    """
    buckets, counts = np.unique(buckets_of(np.array(lengths_ns, np.int64)), return_counts=True)
    out = bytearray()
    for distance, count in zip(np.diff(buckets, prepend=0), counts, strict=True):
        _append_varint(out, int(distance))
        _append_varint(out, int(count))
    return bytes(out)


def read_sketch(data: bytes) -> Sketch | None:
    """The buckets in ``data``; None if it is no sketch.

    >>> read_sketch(bytes.fromhex("0303a90201")).counts.tolist()
    [3, 1]
    """
    numbers = _varints(data)
    if numbers is None or len(numbers) % 2 or not numbers:
        return None
    distances, counts = np.array(numbers[::2], np.int64), np.array(numbers[1::2], np.int64)
    buckets = np.cumsum(distances)
    is_ascending = bool((distances[1:] > 0).all()) and bool((counts > 0).all())
    if not is_ascending or len(counts) > _MOST_BUCKETS or buckets[-1] >= _MOST_BUCKETS:
        return None
    dropped: Ints = np.maximum((buckets >> _BITS) - 1, 0)
    kept: Ints = buckets - (dropped << _BITS)
    return Sketch(kept << dropped, ((kept + 1) << dropped) - 1, counts)


def _append_varint(out: bytearray, value: int) -> None:
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def _varints(data: bytes) -> list[int] | None:
    """All of them; None if the last is cut off, or one is no count."""
    numbers: list[int] = []
    value = shift = 0
    for byte in data:
        value |= (byte & 0x7F) << shift
        shift += 7
        if value >= _MOST_RUNS or shift > 35:
            return None
        if byte < 0x80:
            numbers.append(value)
            value = shift = 0
    return None if shift else numbers

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
_LONGEST_VARINT = 5


@dataclass(frozen=True, slots=True, eq=False)
class Sketches:
    """Buckets that hold something, of several sketches; those of one stand together, ascending.

    Attributes:
        owner: which sketch a bucket is of.
        lowest_ns, highest_ns: the shortest and the longest length in each, both included.
        counts: how many each holds, above 0.
    """

    owner: Ints
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


def read_sketches(sketches: Sequence[bytes]) -> Sketches:
    r"""The buckets of many; one that is no sketch has none.

    Cost: O(bytes), some numpy calls for all of them together.

    >>> read_sketches([bytes.fromhex("0303a90201"), b"cut\xff"]).counts.tolist()
    [3, 1]
    """
    owner, value = _varints(sketches)
    pairs = len(value) // 2
    owner, distance, count = owner[::2], value[::2], value[1::2]
    is_first = np.ones(pairs, bool)
    is_first[1:] = owner[1:] != owner[:-1]
    total = np.cumsum(distance)
    bucket = total - (total - distance)[is_first][np.cumsum(is_first) - 1]
    is_bad = (count <= 0) | ((distance == 0) & ~is_first) | (bucket >= _MOST_BUCKETS)
    kept = ~np.isin(owner, owner[is_bad])
    owner, bucket, count = owner[kept], bucket[kept], count[kept]
    dropped: Ints = np.maximum((bucket >> _BITS) - 1, 0)
    top: Ints = bucket - (dropped << _BITS)
    return Sketches(owner, top << dropped, ((top + 1) << dropped) - 1, count)


def _varints(sketches: Sequence[bytes]) -> tuple[Ints, Ints]:
    """Of sketches that hold pairs of them, and no part of one: whose, and the numbers."""
    whole = [s if s and s[-1] < 0x80 else b"" for s in sketches]
    data = np.frombuffer(b"".join(whole), np.uint8)
    ends = np.flatnonzero(data < 0x80)
    begins = np.append(0, ends[:-1] + 1)[: len(ends)]
    owner_of_byte = np.repeat(np.arange(len(whole)), [len(s) for s in whole])
    owner, size = owner_of_byte[ends], ends - begins + 1
    place = np.arange(len(data)) - np.repeat(begins, size)
    parts = (data & 0x7F).astype(np.int64) << (7 * np.minimum(place, _LONGEST_VARINT))
    value = np.add.reduceat(parts, begins) if len(ends) else np.empty(0, np.int64)
    is_bad = (size > _LONGEST_VARINT) | (value >= _MOST_RUNS)
    is_odd = np.bincount(owner, minlength=len(whole)) % 2 == 1
    kept = ~(np.isin(owner, owner[is_bad]) | is_odd[owner])
    return owner[kept], value[kept]


def _append_varint(out: bytearray, value: int) -> None:
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)

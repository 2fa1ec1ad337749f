"""Folded spans: many executions of a section in one span, their lengths counted in buckets.

Number, sum, shortest and longest are exact. The others are placed within their buckets, all at one
relative position that makes the sum exact, so every row, and every median, is off by less than 0.4
%. Rows begin at even distances over the time of the span.

The sketch (sketch.hpp): a length below 512 ns is its own bucket. Of a longer one the highest 9 bits
are kept, and how many bits follow: a bucket is 1/256 to 1/512 of the length wide. On the wire stand
pairs of varints, ascending: distance from the bucket before (at first from 0), and how many.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from otel_straggler import semconv
from otel_straggler.model.observation import Ints
from otel_straggler.otlp.identity import Value, as_int

FOLD_KEYS = (semconv.FOLD_COUNT, semconv.FOLD_SUM, semconv.FOLD_MIN, semconv.FOLD_MAX)
MAX_FOLDED = 4_096
"""Runs in one span; a sender begins another span after so many."""
MAX_ROWS = 2**20
"""Rows of one request. Far more than a sender has at once; a hostile one gets no further."""
_JUST_BELOW_1 = 1.0 - 2.0**-40


class FoldedSpan(NamedTuple):
    runs: int
    sum_ns: int
    min_ns: int
    max_ns: int
    sketch: bytes
    start_ns: int
    end_ns: int


def folded_span(
    attributes: dict[str, Value], sketch: bytes, start_ns: int, end_ns: int
) -> FoldedSpan | None:
    """From its attributes; None if they make no sense, whatever the sketch says."""
    runs, sum_ns, min_ns, max_ns = (as_int(attributes.get(key)) for key in FOLD_KEYS)
    if runs is None or sum_ns is None or min_ns is None or max_ns is None:
        return None
    if not (1 <= runs <= MAX_FOLDED and 1 <= min_ns <= max_ns < MAX_LENGTH_NS):
        return None
    return FoldedSpan(runs, sum_ns, min_ns, max_ns, sketch, start_ns, end_ns)


@dataclass(frozen=True, slots=True, eq=False)
class FoldedRuns:
    """The executions behind folded spans; those of one stand together, shortest first.

    Attributes:
        owner: (n,) which span an execution is of.
        index: (n,) its number in the span, from 0.
        start_ns, length_ns: (n,) lengths are above 0.
    """

    owner: Ints
    index: Ints
    start_ns: Ints
    length_ns: Ints


def unfold(spans: list[FoldedSpan]) -> FoldedRuns:
    """All executions of all spans, but for spans that contradict themselves, and those beyond
    ``MAX_ROWS``. Cost: O(executions + bytes of sketches); some dozen numpy calls."""
    sketches = read_sketches([span.sketch for span in spans])
    columns = np.array([(*span[:4], *span[5:]) for span in spans], np.int64).reshape(-1, 6).T
    runs, _, min_ns, max_ns, _, _ = columns
    owner, counts = sketches.owner, np.minimum(sketches.counts, MAX_FOLDED + 1)
    is_good = np.bincount(owner, counts, len(spans)) == runs
    is_good &= np.cumsum(np.where(is_good, runs, 0)) <= MAX_ROWS
    kept = is_good[owner]
    owner, counts = owner[kept], counts[kept]
    low_ns = np.clip(sketches.lowest_ns[kept], min_ns[owner], max_ns[owner])
    high_ns = np.clip(sketches.highest_ns[kept], min_ns[owner], max_ns[owner])
    return _placed(columns, *(np.repeat(column, counts) for column in (owner, low_ns, high_ns)))


def _placed(columns: Ints, owner: Ints, low_ns: Ints, high_ns: Ints) -> FoldedRuns:
    """Lengths between these, with exactly the sums of the spans."""
    if not len(owner):
        return FoldedRuns(owner, owner, owner, owner)
    runs, sum_ns, min_ns, max_ns, begin_ns, end_ns = columns
    first = np.flatnonzero(np.append(True, owner[1:] != owner[:-1]))
    last = np.append(first[1:], len(owner)) - 1
    whose, size = owner[first], last - first + 1
    is_good = (low_ns[first] == min_ns[whose]) & (high_ns[last] == max_ns[whose])
    high_ns[first], low_ns[last] = min_ns[whose], max_ns[whose]
    high_ns[last] = max_ns[whose]
    width_ns = high_ns - low_ns
    above, room = sum_ns[whose] - np.add.reduceat(low_ns, first), np.add.reduceat(width_ns, first)
    is_good &= (above >= 0) & (above <= room)
    position = np.where(is_good, above / np.maximum(room, 1), 0.0) * _JUST_BELOW_1
    placed_ns = (width_ns * np.repeat(position, size)).astype(np.int64)
    free_ns = width_ns - placed_ns
    before = np.cumsum(free_ns) - free_ns
    rest = above - np.add.reduceat(placed_ns, first)  # what rounding down has left
    added_ns = np.clip(np.repeat(rest + before[first], size) - before, 0, free_ns)
    length_ns = low_ns + placed_ns + added_ns
    index = np.arange(len(owner)) - np.repeat(first, size)
    even_ns = begin_ns[owner] + index * ((end_ns - begin_ns) // runs)[owner]
    start_ns = np.maximum(np.minimum(even_ns, end_ns[owner] - length_ns), begin_ns[owner])
    kept = np.repeat(is_good, size)
    return FoldedRuns(owner[kept], index[kept], start_ns[kept], length_ns[kept])


MAX_LENGTH_NS = 2**50
"""Lengths are below it; 13 days."""
_BITS = 8
_MAX_BUCKETS = (MAX_LENGTH_NS.bit_length() - _BITS) << _BITS
_MAX_VARINT = 2**31
_MAX_VARINT_BYTES = 5


@dataclass(frozen=True, slots=True, eq=False)
class Sketches:
    """Buckets that hold something, of several sketches; those of one stand together, ascending.

    Attributes:
        owner: which sketch a bucket is of.
        lowest_ns, highest_ns: of the lengths in each, both included.
        counts: above 0.
    """

    owner: Ints
    lowest_ns: Ints
    highest_ns: Ints
    counts: Ints


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
    is_bad = (count <= 0) | ((distance == 0) & ~is_first) | (bucket >= _MAX_BUCKETS)
    kept = ~np.isin(owner, owner[is_bad])
    owner, bucket, count = owner[kept], bucket[kept], count[kept]
    dropped: Ints = np.maximum((bucket >> _BITS) - 1, 0)
    top: Ints = bucket - (dropped << _BITS)
    return Sketches(owner, top << dropped, ((top + 1) << dropped) - 1, count)


def _varints(sketches: Sequence[bytes]) -> tuple[Ints, Ints]:
    """The numbers of whole sketches, and whose they are."""
    whole = [s if s and s[-1] < 0x80 else b"" for s in sketches]
    data = np.frombuffer(b"".join(whole), np.uint8)
    ends = np.flatnonzero(data < 0x80)
    begins = np.append(0, ends[:-1] + 1)[: len(ends)]
    owner_of_byte = np.repeat(np.arange(len(whole)), [len(s) for s in whole])
    owner, size = owner_of_byte[ends], ends - begins + 1
    index = np.arange(len(data)) - np.repeat(begins, size)
    parts = (data & 0x7F).astype(np.int64) << (7 * np.minimum(index, _MAX_VARINT_BYTES))
    value = np.add.reduceat(parts, begins) if len(ends) else np.empty(0, np.int64)
    is_bad = (size > _MAX_VARINT_BYTES) | (value >= _MAX_VARINT)
    is_odd = np.bincount(owner, minlength=len(whole)) % 2 == 1
    kept = ~(np.isin(owner, owner[is_bad]) | is_odd[owner])
    return owner[kept], value[kept]

"""A folded span -> rows, one for each run it stands for.

Scores need the median, sum and number of runs. Number, sum, shortest and longest run are exact. The
others are placed within their buckets, all at one relative position that makes the sum exact, so
every row, and with it every median, is off by less than 0.4 % (:mod:`.fold_sketch`). The rows begin
at even distances over the time of the span: when a run began is not on the wire.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from otel_straggler import semconv
from otel_straggler.model.observation import Ints
from otel_straggler.wire.fold_sketch import LONGEST_NS, read_sketch
from otel_straggler.wire.identity import Value, as_int

MOST_RUNS = 4_096
"""Runs in one span; a sender begins another span after so many."""
MOST_ROWS = 2**20
"""Rows of one request. Far more than a sender has at once; a hostile one gets no further."""


@dataclass(frozen=True, slots=True, eq=False)
class FoldedRuns:
    """The runs behind one span, shortest first.

    Attributes:
        lengths_ns: (n,) > 0.
    """

    lengths_ns: Ints

    def __len__(self) -> int:
        return len(self.lengths_ns)

    def starts_ns(self, start_ns: int, end_ns: int) -> Ints:
        """(n,) over the time of the span; none ends after it, unless it is longer than that."""
        even = start_ns + np.arange(len(self)) * ((end_ns - start_ns) // len(self))
        starts: Ints = np.maximum(np.minimum(even, end_ns - self.lengths_ns), start_ns)
        return starts


def folded_runs(found: dict[str, Value], sketch: bytes) -> FoldedRuns | None:
    """The runs; None if the numbers contradict each other.

    Args:
        found: attributes of the span.
        sketch: value of ``straggler.fold.sketch``.
    """
    count, sum_ns, min_ns, max_ns = (
        as_int(found.get(key))
        for key in (semconv.FOLD_COUNT, semconv.FOLD_SUM, semconv.FOLD_MIN, semconv.FOLD_MAX)
    )
    if count is None or sum_ns is None or min_ns is None or max_ns is None:
        return None
    if not (1 <= count <= MOST_RUNS and 1 <= min_ns <= max_ns < LONGEST_NS):
        return None
    buckets = read_sketch(sketch)
    if buckets is None or int(buckets.counts.sum()) != count:
        return None
    low = np.clip(np.repeat(buckets.lowest_ns, buckets.counts), min_ns, max_ns)
    high = np.clip(np.repeat(buckets.highest_ns, buckets.counts), min_ns, max_ns)
    if low[0] != min_ns or high[-1] != max_ns:
        return None
    low[-1], high[0] = max_ns, min_ns
    if count == 1:
        low[0] = high[0] = max_ns
    return _placed(low, high, sum_ns)


def _placed(low_ns: Ints, high_ns: Ints, sum_ns: int) -> FoldedRuns | None:
    """Lengths between these, with exactly this sum."""
    width_ns = high_ns - low_ns
    above, room = sum_ns - int(low_ns.sum()), int(width_ns.sum())
    if not 0 <= above <= room:
        return None
    position = above / room * _JUST_BELOW_1 if room else 0.0
    placed_ns = (width_ns * position).astype(np.int64)
    free_ns = width_ns - placed_ns
    before = np.cumsum(free_ns) - free_ns
    rest = above - int(placed_ns.sum())  # what rounding down has left, a nanosecond each
    return FoldedRuns(low_ns + placed_ns + np.clip(rest - before, 0, free_ns))


_JUST_BELOW_1 = 1.0 - 2.0**-40

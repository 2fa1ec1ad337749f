"""Where the time of a GPU goes: unions of intervals, never sums of kernels that overlap.

The definitions are those of HolisticTraceAnalysis, which its users know: idle is time without any
kernel or copy between the first and the last of them, compute is time with a compute kernel at
work, other is the rest: communication, copies and fills without computation.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from otel_straggler.model.observation import Floats, Ints

COMPUTE, COMMUNICATION, MEMORY = 0, 1, 2
CLASS_CODES = {"compute": COMPUTE, "nccl": COMMUNICATION, "memory": MEMORY}
"""Codes by the class of a kernel."""


@dataclass(frozen=True, slots=True)
class Union:
    """Intervals that neither overlap nor touch, ascending; times in any unit, (n,) each."""

    begin: Floats
    end: Floats

    @classmethod
    def of(cls, begin: Floats, end: Floats) -> Union:
        """The union of any intervals. Cost: O(n log n).

        >>> Union.of(np.array([5.0, 0.0, 1.0]), np.array([6.0, 2.0, 3.0])).length
        4.0
        """
        is_interval = end > begin
        begin, end = begin[is_interval], end[is_interval]
        if not len(begin):
            return cls(begin, end)
        order = np.argsort(begin, kind="stable")
        begin, until = begin[order], np.maximum.accumulate(end[order])
        is_first = np.concatenate([[True], begin[1:] > until[:-1]])
        is_last = np.concatenate([is_first[1:], [True]])
        return cls(begin[is_first], until[is_last])

    @property
    def length(self) -> float:
        return float((self.end - self.begin).sum())

    def length_before(self, at: Floats) -> Floats:
        """Length of the part before each time."""
        if not len(self.begin):
            return np.zeros(len(at))
        total = np.concatenate([[0.0], np.cumsum(self.end - self.begin)])
        index = np.searchsorted(self.begin, at, side="right")
        inside = np.minimum(at, self.end[index - 1]) - self.begin[index - 1]
        last = np.where(index > 0, inside, 0.0)
        result: Floats = total[np.maximum(index - 1, 0)] + last
        return result

    def overlap(self, other: Union) -> float:
        """Length of the time that is in both."""
        return float((other.length_before(self.end) - other.length_before(self.begin)).sum())


@dataclass(frozen=True, slots=True)
class TimeShares:
    """Where the time of one or more GPUs went, seconds.

    Attributes:
        span_s: from the first kernel to the end of the last.
        compute_s: with a compute kernel at work; communication_s: with a communication kernel.
        overlap_s: with both; busy_s: with anything.
    """

    span_s: float
    busy_s: float
    compute_s: float
    communication_s: float
    overlap_s: float

    @property
    def idle(self) -> float:
        return self._share(self.span_s - self.busy_s)

    @property
    def compute(self) -> float:
        return self._share(self.compute_s)

    @property
    def other(self) -> float:
        return self._share(self.busy_s - self.compute_s)

    @property
    def communication(self) -> float:
        return self._share(self.communication_s)

    @property
    def exposed_communication(self) -> float:
        """Without a compute kernel at work."""
        return self._share(self.communication_s - self.overlap_s)

    @property
    def overlap(self) -> float:
        """Part of the communication that computation hides; NaN without communication."""
        return self.overlap_s / self.communication_s if self.communication_s > 0.0 else np.nan

    def _share(self, seconds: float) -> float:
        return seconds / self.span_s if self.span_s > 0.0 else np.nan

    def __add__(self, other: TimeShares) -> TimeShares:
        return TimeShares(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))

    def as_json(self) -> dict[str, Any]:
        names = ("idle", "compute", "other", "communication", "exposed_communication", "overlap")
        return {**{name: getattr(self, name) for name in names}, "span_s": self.span_s}


def time_shares(begin_s: Floats, end_s: Floats, kind: Ints) -> TimeShares | None:
    """Shares of one GPU; None without any kernel.

    Args:
        begin_s, end_s: (n,) of kernels, copies and fills; kind: (n,) codes of ``CLASS_CODES``.

    Cost: O(n log n).
    """
    busy = Union.of(begin_s, end_s)
    if not len(busy.begin):
        return None
    compute, communication = (
        Union.of(begin_s[kind == code], end_s[kind == code]) for code in (COMPUTE, COMMUNICATION)
    )
    return TimeShares(
        span_s=float(busy.end[-1] - busy.begin[0]),
        busy_s=busy.length,
        compute_s=compute.length,
        communication_s=communication.length,
        overlap_s=compute.overlap(communication),
    )

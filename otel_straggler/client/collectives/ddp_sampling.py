"""Which iterations DDP times on the GPU, by what that costs. Pure.

DDP itself times its first 10 iterations and then every hundredth. To read one it waits, at the
beginning of the next forward, until the GPU has ended the backward before; a training that waits
for its GPU in every step anyway loses nothing by that, another one would. So what it took counts as
cost in full, with the read of the numbers, and DDP is asked for more only where that stays below a
thousandth of the step. All ranks count the same iterations and decide at the same ones, and what
one samples rarely is a part of what another samples often: no message is needed.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from statistics import median
from typing import Final

LADDER: Final = (1, 10, 100)
"""One iteration in so many; DDP's own rate is the last."""
ALWAYS: Final = 10
"""So many iterations are timed at any rate."""
MAX_PART: Final = 0.001
"""Part of the time of iterations that sampling may take; half of it to sample more often."""
WARM_UP: Final = 5
"""Iterations that say nothing about cost."""
FIRST_DECISION: Final = 20
DECIDES_EVERY: Final = 100
MIN_COUNT: Final = 4
_KEPT = 8


def _newest() -> deque[int]:
    return deque(maxlen=_KEPT)


@dataclass(slots=True)
class Sampling:
    """The rate of one module. State: three times 8 numbers."""

    rate: int = LADDER[-1]
    _sampled_ns: deque[int] = field(default_factory=_newest)
    _plain_ns: deque[int] = field(default_factory=_newest)
    _iteration_ns: deque[int] = field(default_factory=_newest)

    def covers(self, iteration: int) -> bool:
        """Whether DDP times this iteration, counted from 1.

        >>> [Sampling(rate=10).covers(iteration) for iteration in (1, 10, 11, 20)]
        [True, True, False, True]
        """
        return iteration <= ALWAYS or iteration % self.rate == 0

    def observe(self, iteration: int, iteration_ns: int, spent_ns: int) -> bool:
        """Add an iteration that has ended; whether the rate has changed.

        Args:
            iteration_ns: from its forward to that of the next; 0: not known.
            spent_ns: before the next forward, for DDP's and our bookkeeping and what DDP does there
                in any case.
        """
        if iteration > WARM_UP:
            (self._sampled_ns if self.covers(iteration) else self._plain_ns).append(spent_ns)
            if iteration_ns > 0:
                self._iteration_ns.append(iteration_ns)
        if iteration != FIRST_DECISION and iteration % DECIDES_EVERY:
            return False
        before, self.rate = self.rate, self._decided()
        return self.rate != before

    def _decided(self) -> int:
        counts = map(len, (self._sampled_ns, self._plain_ns, self._iteration_ns))
        if min(counts) < MIN_COUNT:
            return self.rate
        cost_ns = max(0.0, median(self._sampled_ns) - median(self._plain_ns))
        allowed_ns = MAX_PART * median(self._iteration_ns)
        for rate in LADDER[:-1]:
            part = 1.0 if rate >= self.rate else 0.5
            if cost_ns <= part * allowed_ns * rate:
                return rate
        return LADDER[-1]

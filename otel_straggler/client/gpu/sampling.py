"""How many steps share one with kernel records: from what such a step costs, as measured. Pure.

A rank may have more of them than another: each number here divides the next one, so the steps of
the rank that has fewest have kernel records on all ranks.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from statistics import median

from otel_straggler.client.gpu.governor import Sample

INTERVALS = (2, 10, 50, 200)
FIRST_INTERVAL = 10
COST_PER_LAUNCH_S = 3.8e-6
"""Until enough steps were measured: the most that was seen on an H200, where it was 1.3 to 3.8 us
(docs/internals/gpu-measurements.md)."""
ENOUGH = 8
_KEPT = 64
_DEVIATION_OF_MEDIAN = 1.2533 * 1.4826  # from the median deviation of one value
_WIDTH = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordCost:
    """What kernel records add to a step that has them.

    Attributes:
        low_s, high_s: bounds of it, seconds.
        step_s: a step without them.
        count: steps that were measured; 0: by the number of kernels alone.
    """

    low_s: float
    high_s: float
    step_s: float
    count: int


@dataclass(slots=True)
class SamplingInterval:
    """Chooses the interval, and says what it is chosen by.

    Args:
        target: the part of a step that kernel records may cost on average; 0: no limit.

    Attributes:
        value: one step in so many has kernel records.
        text: cost and interval, for a person; empty until something is known.
    """

    target: float
    value: int = FIRST_INTERVAL
    text: str = ""
    _added_s: deque[float] = field(default_factory=lambda: deque(maxlen=_KEPT))
    _plain_s: deque[float] = field(default_factory=lambda: deque(maxlen=_KEPT))
    _before: deque[Sample] = field(default_factory=lambda: deque(maxlen=3))

    def observe(self, samples: Iterable[Sample]) -> None:
        """Add steps, in order."""
        for sample in samples:
            self._before.append(sample)
            if len(self._before) == 3:
                self._compare(*self._before)

    def _compare(self, first: Sample, middle: Sample, last: Sample) -> None:
        """A step with kernel records between two without."""
        is_row = middle.step - first.step == last.step - middle.step == 1
        is_alike = first.is_on == middle.is_on == last.is_on
        is_between = middle.is_sampled and not first.is_sampled and not last.is_sampled
        if is_row and is_alike and is_between and min(s.duration_s for s in self._before) > 0:
            plain_s = (first.duration_s + last.duration_s) / 2
            self._added_s.append(middle.duration_s - plain_s)
            self._plain_s.append(plain_s)

    def cost(self, kernels: float) -> RecordCost | None:
        """What is known of it. kernels: of a step; 0: not known. None: nothing is."""
        if not self._plain_s:
            return None
        step_s = median(self._plain_s)
        if len(self._added_s) < ENOUGH:
            guess_s = kernels * COST_PER_LAUNCH_S
            return RecordCost(low_s=0.0, high_s=guess_s, step_s=step_s, count=0)
        middle = median(self._added_s)
        spread = median(abs(added - middle) for added in self._added_s)
        half_s = _WIDTH * _DEVIATION_OF_MEDIAN * spread / len(self._added_s) ** 0.5
        return RecordCost(
            low_s=max(0.0, middle - half_s),
            high_s=max(0.0, middle + half_s),
            step_s=step_s,
            count=len(self._added_s),
        )

    def choose(self, kernels: float) -> bool:
        """Whether the interval has changed. kernels: of a step; 0: not known."""
        cost = self.cost(kernels)
        if cost is None or self.target <= 0:
            return False
        new = self._wanted(cost.high_s / cost.step_s)
        self.text = _described(cost, kernels, new)
        is_new, self.value = new != self.value, new
        return is_new

    def _wanted(self, part: float) -> int:
        """The smallest within the target; a smaller one than now only if it is so by far."""
        for interval in INTERVALS:
            allowed = self.target if interval >= self.value else self.target / 2
            if part / interval <= allowed:
                return interval
        return INTERVALS[-1]

    def too_much(self, kernels: float) -> str:
        """What it costs at least, where that is too much at any interval; else empty."""
        cost = self.cost(kernels)
        if cost is None or cost.count < ENOUGH or self.target <= 0:
            return ""
        part = cost.low_s / cost.step_s / INTERVALS[-1]
        if part <= self.target:
            return ""
        rarely = f"even in one step of {INTERVALS[-1]} kernel records cost at least {part:.2%}"
        return f"{rarely} of a step, more than {self.target:.2%}"


def _described(cost: RecordCost, kernels: float, interval: int) -> str:
    what = f"kernel records in 1 of {interval} steps"
    if not cost.count:
        return f"{what}: not measured yet, at most {COST_PER_LAUNCH_S * 1e6:.1f} us a launch"
    each = f", {cost.high_s / kernels * 1e6:.1f} us a launch" if kernels > 0 else ""
    part = cost.high_s / cost.step_s
    average = f"{part / interval:.2%} on average"
    return f"{what}: they cost at most {part:.1%} of it{each}; {average} ({cost.count} steps)"

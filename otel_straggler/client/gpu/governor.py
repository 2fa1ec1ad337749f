"""Whether timing costs too much: steps with it against steps without it. Pure.

All ranks pause at the same step numbers, so no message is needed. A round is eight cycles of four
blocks, on, paused, paused, on, so that a drift cancels. From the third cycle on, the ratio of the
medians is known within an interval; once that is clear of the target, the round ends.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from statistics import fmean, median, stdev
from typing import Literal

BLOCK_STEPS = 32
LEFT_OUT_STEPS = 4
"""At the beginning of each block: what was switched has to have happened, and settled."""
CYCLES = 8
MIN_CYCLES = 3
CYCLE_STEPS = 4 * BLOCK_STEPS
ROUND_STEPS = CYCLES * CYCLE_STEPS
WARM_UP_STEPS = 64
AGAIN_S = 1800.0
_IS_ON = (True, False, False, True)
_MIN_OF_BLOCK = (BLOCK_STEPS - LEFT_OUT_STEPS) // 2
_WIDTH = 3.0
_STUDENT = (0.0, 0.0, 9.92, 5.84, 4.60, 4.03, 3.71, 3.50)
"""99 % of Student's distribution lies within, by degrees of freedom."""
_DEVIATION_OF_MEDIAN = 1.2533  # of one value, over the root of how many there are
_DEVIATION_OF_MAD = 1.4826


@dataclass(frozen=True, slots=True)
class Sample:
    """One step: its number, how long it took, whether it was timed throughout, and whether its
    kernels had records."""

    step: int
    duration_s: float
    is_on: bool
    is_sampled: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The result of a round: the overhead is above the target (``over``), below it (``content``),
    or the steps vary too much (``undecided``). ``low`` and ``high`` bound it, as part of a step."""

    verdict: Literal["over", "content", "undecided"]
    low: float
    high: float
    steps: int

    @property
    def text(self) -> str:
        return f"{self.verdict}: {self.low:+.2%} to {self.high:+.2%} of a step, {self.steps} steps"


def is_on_at(position: int) -> bool:
    """Whether steps are timed at this distance from the beginning of a round.

    >>> [is_on_at(n) for n in (0, 31, 32, 95, 96, 128)]
    [True, True, False, False, True, True]
    """
    return _IS_ON[position // BLOCK_STEPS % 4]


@dataclass(slots=True)
class Governor:
    """Decides when to compare, and what came of it.

    Args:
        target: the part of a step that timing may cost; 0: no limit, and no round ever.

    Attributes:
        round_start: the step at which the next round begins, or the current one began; -1: none.
    """

    target: float
    round_start: int = -1
    _blocks: dict[int, list[float]] = field(default_factory=dict)

    def begin(self, step: int) -> None:
        """Timing has begun, or a round was disturbed: compare from the next round on."""
        self._set_round(step + WARM_UP_STEPS, ROUND_STEPS)

    def begin_later(self, step: int, step_s: float) -> None:
        """A round has ended: the next one is half an hour to an hour away. step_s: 0 if unknown."""
        steps = max(2 * ROUND_STEPS, AGAIN_S / step_s if step_s > 0 else 0)
        self._set_round(step + 1, 2 ** min(62, math.ceil(math.log2(steps))))

    def observe(self, samples: Iterable[Sample]) -> Decision | None:
        """Add steps, in order; the decision, once there is one."""
        decision = None
        for sample in samples:
            position = sample.step - self.round_start
            if self.round_start < 0 or not 0 <= position < ROUND_STEPS:
                continue
            if self._counts(sample, position):
                block = position // BLOCK_STEPS
                self._blocks.setdefault(block, []).append(sample.duration_s)
            if (position + 1) % CYCLE_STEPS == 0:
                decision = decision or self._decision(is_last=position + 1 == ROUND_STEPS)
        return decision

    def _set_round(self, earliest: int, every: int) -> None:
        self._blocks = {}
        self.round_start = -1 if self.target <= 0 else -(-earliest // every) * every

    def _counts(self, sample: Sample, position: int) -> bool:
        is_settled = position % BLOCK_STEPS >= LEFT_OUT_STEPS
        return is_settled and sample.is_on == is_on_at(position) and sample.duration_s > 0

    def _decision(self, *, is_last: bool) -> Decision | None:
        result = estimate(self._blocks)
        if result is None:
            return Decision(verdict="undecided", low=-1, high=1, steps=0) if is_last else None
        low, high = result
        steps = sum(map(len, self._blocks.values()))
        if low > self.target:
            return Decision(verdict="over", low=low, high=high, steps=steps)
        if high < self.target:
            return Decision(verdict="content", low=low, high=high, steps=steps)
        return Decision(verdict="undecided", low=low, high=high, steps=steps) if is_last else None

    def typical_step_s(self) -> float:
        """The median of the steps of this round; 0: there are none."""
        times = [time for block in self._blocks.values() for time in block]
        return median(times) if times else 0.0


def estimate(blocks: dict[int, list[float]]) -> tuple[float, float] | None:
    """Bounds of the overhead from the steps of each block; None: three whole cycles are needed.

    The width is the larger of what the scatter within blocks and that between cycles allow.
    """
    differences: list[float] = []
    residuals: list[float] = []
    for cycle in range(CYCLES):
        own = [blocks.get(4 * cycle + at, []) for at in range(4)]
        if min(map(len, own)) < _MIN_OF_BLOCK:
            continue
        medians = [median(block) for block in own]
        logs = [math.log(value) for value in medians]
        differences.append((logs[0] + logs[3] - logs[1] - logs[2]) / 2)
        residuals.extend(
            abs(time / middle - 1)
            for block, middle in zip(own, medians, strict=True)
            for time in block
        )
    count = len(differences)
    if count < MIN_CYCLES:
        return None
    of_block = len(residuals) / (4 * count)
    within = _DEVIATION_OF_MEDIAN * _DEVIATION_OF_MAD * median(residuals) / math.sqrt(of_block)
    between = _STUDENT[count - 1] * stdev(differences)
    half = max(_WIDTH * within, between) / math.sqrt(count)
    middle = fmean(differences)
    return math.expm1(middle - half), math.expm1(middle + half)

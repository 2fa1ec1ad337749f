"""The tiers of a process, from the highest that is wanted down to what can be had."""

from __future__ import annotations

import time
from collections.abc import Mapping

from otel_straggler.client.gpu import use_timer
from otel_straggler.client.gpu.reasons import Refusal
from otel_straggler.client.gpu.tiers import Timer
from otel_straggler.semconv import GPU_TIERS, GpuTier

_SWITCH_NS = 200_000_000
"""How long a timer that is switched off may wait for what is under way."""


class Ladder:
    """Starts and stops timers; not thread-safe, its owner is.

    Args:
        timers: by tier.

    Attributes:
        timer: the one in charge, working or halted; None: tier off.
        is_working: whether it times at this moment.
    """

    def __init__(self, timers: Mapping[GpuTier, Timer]) -> None:
        self._timers = timers
        self._barred: dict[GpuTier, Refusal] = {}
        self.timer: Timer | None = None
        self.is_working = False

    @property
    def tier(self) -> GpuTier:
        return "off" if self.timer is None else self.timer.tier

    def allow_all(self) -> None:
        """Every tier may be tried again."""
        self._barred.clear()

    def bar(self, tier: GpuTier, refusal: Refusal) -> None:
        """Do not try this tier again."""
        self._barred[tier] = refusal

    def unbar(self, tier: GpuTier) -> None:
        """Try it again when asked to climb."""
        self._barred.pop(tier, None)

    def climb(self, wanted: GpuTier) -> Refusal | None:
        """Start the highest tier up to ``wanted``; why it is not that one, or None: it is."""
        first: Refusal | None = None
        for tier in reversed(GPU_TIERS[1 : GPU_TIERS.index(wanted) + 1]):
            if tier == self.tier and tier not in self._barred:
                return first
            refusal = self._barred.get(tier) or self._exchange(self._timers[tier])
            if refusal is None:
                return first
            if refusal.retry_s is None:
                self._barred[tier] = refusal
            first = first or refusal
        self.leave()
        return first

    def halt(self, timeout_ns: int = _SWITCH_NS) -> None:
        """The timer in charge stops for a while, and gives back what it took."""
        if self.timer is not None and self.is_working:
            self.is_working = False
            self.timer.stop(time.monotonic_ns() + timeout_ns)

    def go_on(self) -> Refusal | None:
        """After a halt, from scratch."""
        if self.timer is None or self.is_working:
            return None
        refusal = self.timer.start()
        self.is_working = refusal is None
        return refusal

    def leave(self) -> None:
        """No tier."""
        self.halt()
        if self.timer is not None:
            self.timer.end()
            self.timer = None
            use_timer(None)

    def _exchange(self, timer: Timer) -> Refusal | None:
        """This timer in the place of the one in charge, which goes on if this one cannot."""
        refusal = timer.prepare()
        if refusal is not None:
            return refusal
        before = self.timer
        self.halt()
        use_timer(timer.native)  # first: a boundary that it misses would be a wrong sum
        refusal = timer.start()
        if refusal is None:
            self.timer, self.is_working = timer, True
            if before is not None:
                before.end()
        else:
            use_timer(None if before is None else before.native)
            self.go_on()
        return refusal

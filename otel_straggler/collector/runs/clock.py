"""The collector's clock, by which ages are counted, and the offset of the wall clock."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final

_log = logging.getLogger(__name__)

MIN_STEP_S: Final = 1.0
"""Smaller steps of the wall clock are corrections that stamps bear."""


class CollectorClock:
    """Seconds since 1970 at the start, from then on by the monotonic clock: setting the wall clock,
    or a machine that sleeps, changes no age. Shown times are :attr:`ahead_s` later. One thread owns
    it."""

    def __init__(
        self,
        monotonic_ns: Callable[[], int] = time.monotonic_ns,
        wall_s: Callable[[], float] = time.time,
    ) -> None:
        self._monotonic_ns = monotonic_ns
        self._wall_s = wall_s
        self._origin_s = wall_s() - monotonic_ns() * 1e-9
        self.ahead_s = 0.0
        """The wall clock minus this one."""

    def at_s(self, now_ns: int) -> float:
        """Convert a reading of the monotonic clock."""
        return self._origin_s + now_ns * 1e-9

    def follow_wall_clock(self) -> None:
        """Update ``ahead_s`` where the wall clock was set."""
        ahead_s = self._wall_s() - self.at_s(self._monotonic_ns())
        step_s = ahead_s - self.ahead_s
        if abs(step_s) < MIN_STEP_S:
            return
        self.ahead_s = ahead_s
        _log.warning(
            "the clock of this machine went %s by %.0f s at once: it was set, or the machine "
            "slept. Ages of ranks are counted as if it had not",
            "forward" if step_s > 0 else "back",
            abs(step_s),
        )

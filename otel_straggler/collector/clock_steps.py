"""The collector's wall clock is set now and then, and stands still for nobody while a machine
sleeps. Ages of signs of life are differences of its times, so that a step of an hour would call
every rank lost: what was noted before is moved along with the clock.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

_log = logging.getLogger(__name__)

LEAST_S: Final = 1.0
"""Smaller ones are corrections that ages bear."""


class ClockSteps:
    """How the wall clock moves against the monotonic one. One thread owns it.

    Args:
        monotonic_ns, wall_s: clocks.
    """

    def __init__(self, monotonic_ns: Callable[[], int], wall_s: Callable[[], float]) -> None:
        self._monotonic_ns = monotonic_ns
        self._wall_s = wall_s
        self._ahead_s = self._look()

    def _look(self) -> float:
        """How far the wall clock is ahead."""
        return self._wall_s() - self._monotonic_ns() * 1e-9

    def step_s(self) -> float:
        """By how much the clock was set since the last call; 0 if it was not, or by little."""
        ahead_s = self._look()
        step_s, self._ahead_s = ahead_s - self._ahead_s, ahead_s
        if abs(step_s) < LEAST_S:
            return 0.0
        _log.warning(
            "the clock of this machine went %s by %.0f s at once: it was set, or the machine "
            "slept. Ages of ranks are counted as if it had not",
            "forward" if step_s > 0 else "back",
            abs(step_s),
        )
        return step_s

    def corrected(self, now_s: float, now_ns: int) -> float:
        """A time that was read a while ago, perhaps before the clock was set, as it is now."""
        behind_s = self._ahead_s - (now_s - now_ns * 1e-9)
        return now_s + behind_s if abs(behind_s) >= LEAST_S else now_s

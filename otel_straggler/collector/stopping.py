"""The deadlines of a collector that stops."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

_log = logging.getLogger(__name__)


class Stopping:
    """One stop, with deadlines, so that a collector ends before Kubernetes kills it after 30 s.
    Time that one part does not need is left for the next ones; a failure is logged, and the next
    parts are stopped all the same.

    >>> clock = iter([0.0, 1.0, 9.0])
    >>> stopping = Stopping(10.0, lambda: next(clock))
    >>> stopping.left_s(0.6), stopping.left_s(0.6)
    (5.0, 0.0)

    Args:
        within_s: for all parts together.
    """

    def __init__(self, within_s: float, monotonic_s: Callable[[], float] = time.monotonic) -> None:
        self._within_s = within_s
        self._monotonic_s = monotonic_s
        self._began_s = monotonic_s()

    def left_s(self, share: float) -> float:
        """Seconds until this share of the time is over; at least 0."""
        return max(0.0, self._began_s + share * self._within_s - self._monotonic_s())

    def step(self, what: str, share: float, stop: Callable[[float], object]) -> None:
        """Call ``stop`` with the seconds that it may take."""
        try:
            stop(self.left_s(share))
        except Exception:  # noqa: BLE001 - logged; what is left must be written all the same
            _log.exception("%s could not be stopped in order; the rest is", what)

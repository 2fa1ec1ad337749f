"""Deadlines of the parts of a collector that stops, so that it ends before Kubernetes kills it
after 30 s. Time that one part does not need is left for the next ones."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from typing import Final

_log = logging.getLogger(__name__)

WITHIN_S: Final = 20.0
"""A collector stops within this; some seconds more if a thread does not respond."""
RECEIVING: Final = 0.25
SCORING: Final = 0.6
ALERTS: Final = 0.7
HISTORY: Final = 0.85
FORWARDING: Final = 1.0
"""Part of the time that is over when each has to be done."""


class Stopping:
    """One stop. A failure is logged, and the next parts are stopped all the same.

    >>> clock = iter([0.0, 1.0, 9.0])
    >>> stopping = Stopping(10.0, lambda: next(clock))
    >>> stopping.left_s(SCORING), stopping.left_s(SCORING)
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


def has_ended(threads: Iterable[threading.Thread], within_s: float) -> bool:
    """Whether all threads end within the time."""
    until_s = time.monotonic() + within_s
    for thread in threads:
        thread.join(max(0.0, until_s - time.monotonic()))
    return not any(thread.is_alive() for thread in threads)

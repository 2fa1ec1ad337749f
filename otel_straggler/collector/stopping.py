"""How long each part of a collector may take to stop, so that all of it is over in a stated time.

What ends a collector kills it a little later: Kubernetes after 30 s, Docker after 10.
What is not on the disk by then is gone, so every part has an end of its own, and what one does not
need the next ones have.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from typing import Final

_log = logging.getLogger(__name__)

WITHIN_S: Final = 20.0
"""A collector stops within this; some seconds more at worst, where a thread does not listen."""
RECEIVING: Final = 0.25
SCORING: Final = 0.6
TELLING: Final = 0.7
KEEPING: Final = 0.85
PASSING_ON: Final = 1.0
"""Which part of the time is over when each has to be done."""


class Stopping:
    """One stop. What fails is logged, and what comes after it is stopped all the same.

    >>> clock = iter([0.0, 1.0, 9.0])
    >>> stopping = Stopping(10.0, lambda: next(clock))
    >>> stopping.left_s(SCORING), stopping.left_s(SCORING)
    (5.0, 0.0)

    Args:
        within_s: for all parts together.
        monotonic_s: clock.
    """

    def __init__(self, within_s: float, monotonic_s: Callable[[], float] = time.monotonic) -> None:
        self._within_s = within_s
        self._monotonic_s = monotonic_s
        self._began_s = monotonic_s()

    def left_s(self, share: float) -> float:
        """Seconds until so much of the time is over; not below 0."""
        return max(0.0, self._began_s + share * self._within_s - self._monotonic_s())

    def step(self, what: str, share: float, stop: Callable[[float], object]) -> None:
        """Give ``stop`` the seconds that it may take."""
        try:
            stop(self.left_s(share))
        except Exception:  # noqa: BLE001 - logged; what is left must be written all the same
            _log.exception("%s could not be stopped in order; the rest is", what)


def has_ended(threads: Iterable[threading.Thread], within_s: float) -> bool:
    """Whether all of them end, or have ended, within the time.

    Python waits at its end, for as long as it takes, for threads that are no daemons: those that
    decode a large request are such.
    """
    until_s = time.monotonic() + within_s
    for thread in threads:
        thread.join(max(0.0, until_s - time.monotonic()))
    return not any(thread.is_alive() for thread in threads)

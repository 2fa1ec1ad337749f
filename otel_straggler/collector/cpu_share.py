"""How much processor time something may take over a while, and at once."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class CpuShare:
    """Counts what was taken. Not thread-safe but for :meth:`wait_s`.

    Args:
        of_a_core: part of a core that may be taken on average.
        at_once_s: processor time that may be taken at once, after a quiet while.
        monotonic_s, cpu_s: clocks; the second of the thread that does the work.

    >>> share = CpuShare(0.25, 1.0)
    >>> with share.counted():
    ...     pass
    >>> share.wait_s()
    0.0
    """

    def __init__(
        self,
        of_a_core: float,
        at_once_s: float,
        monotonic_s: Callable[[], float] = time.monotonic,
        cpu_s: Callable[[], float] = time.thread_time,
    ) -> None:
        self._of_a_core = of_a_core
        self._credit_s = at_once_s / of_a_core
        self._monotonic_s = monotonic_s
        self._cpu_s = cpu_s
        self._paid_until_s = -math.inf

    def wait_s(self) -> float:
        """Seconds until more may be taken; 0 if it may now."""
        return max(0.0, self._paid_until_s - self._monotonic_s())

    @contextmanager
    def counted(self) -> Iterator[None]:
        """What is done within counts, also if it fails."""
        began_s = self._cpu_s()
        try:
            yield
        finally:
            taken_s = (self._cpu_s() - began_s) / self._of_a_core
            earliest_s = self._monotonic_s() - self._credit_s
            self._paid_until_s = max(self._paid_until_s, earliest_s) + taken_s

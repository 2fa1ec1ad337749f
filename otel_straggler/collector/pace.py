"""How often something is made that costs much where there is much: a part of a thread's time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

_SHARE: Final = 10
"""It takes one part in so many of the thread's time at most."""


class Pace:
    """Of one thing that a thread makes again and again. What that takes is counted without the
    waiting for a processor: where that is scarce, what is made matters as much. Of the last two
    times the shorter one counts: what else the interpreter did in between, such as collecting
    garbage, must not hold up what is shown for many times as long.

    Args:
        cpu_ns: processor time of the thread.

    >>> pace = Pace(iter((0, 50)).__next__)
    >>> with pace.counted(now_ns=1_000):
    ...     pass
    >>> pace.since_ns(1_400), pace.is_due(1_400), pace.is_due(1_500)
    (400, False, True)
    """

    def __init__(self, cpu_ns: Callable[[], int] = time.thread_time_ns) -> None:
        self._cpu_ns = cpu_ns
        self._made_at_ns = 0
        self._took_ns = 0
        self._last_ns: int | None = None

    @contextmanager
    def counted(self, now_ns: int) -> Iterator[None]:
        """It is made within."""
        began_ns = self._cpu_ns()
        yield
        last_ns, before_ns = self._cpu_ns() - began_ns, self._last_ns
        self._took_ns = last_ns if before_ns is None else min(last_ns, before_ns)
        self._made_at_ns, self._last_ns = now_ns, last_ns

    def since_ns(self, now_ns: int) -> int:
        """How long ago it was made last."""
        return now_ns - self._made_at_ns

    def is_due(self, now_ns: int) -> bool:
        """Whether it may be made again."""
        return self.since_ns(now_ns) >= _SHARE * self._took_ns

"""The three clocks of a training process, behind one object so that tests can set them."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Monotonic seconds for waiting, wall clock for stamps, ``perf_counter`` for lengths."""

    def monotonic_s(self) -> float: ...

    def wall_ns(self) -> int: ...

    def perf_ns(self) -> int: ...


class SystemClock:
    """The machine's clocks."""

    def monotonic_s(self) -> float:
        return time.monotonic()

    def wall_ns(self) -> int:
        return time.time_ns()

    def perf_ns(self) -> int:
        return time.perf_counter_ns()

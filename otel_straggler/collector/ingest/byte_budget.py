"""How many bytes may wait at once; above it a receiver says "later" instead of growing."""

from __future__ import annotations

import threading
from typing import Final

from otel_straggler.receive.handler import Signal

_KEPT_FREE: Final = 8
"""One part in so many is for metrics alone: a rank whose signs of life found no room beside a flood
of spans would be called lost."""


class ByteBudget:
    """A budget of bytes, shared by threads.

    >>> budget = ByteBudget(16)
    >>> budget.reserve(8, "traces"), budget.reserve(8, "traces"), budget.reserve(8, "metrics")
    (True, False, True)
    """

    def __init__(self, limit_bytes: int) -> None:
        self._limit = limit_bytes
        self._waiting = 0
        self._lock = threading.Lock()

    @property
    def waiting_bytes(self) -> int:
        return self._waiting

    def is_full(self, signal: Signal) -> bool:
        return self._waiting >= self._limit_of(signal)

    def reserve(self, size: int, signal: Signal) -> bool:
        """Take room for ``size`` bytes; one request always fits into an empty budget."""
        with self._lock:
            if self._waiting and self._waiting + size > self._limit_of(signal):
                return False
            self._waiting += size
            return True

    def release(self, size: int) -> None:
        with self._lock:
            self._waiting -= size

    def _limit_of(self, signal: Signal) -> int:
        return self._limit if signal == "metrics" else self._limit - self._limit // _KEPT_FREE

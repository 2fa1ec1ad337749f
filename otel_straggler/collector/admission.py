"""How many bytes may wait at once; above it a receiver says "later" instead of growing."""

from __future__ import annotations

import threading


class Admission:
    """A budget of bytes, shared by threads.

    >>> budget = Admission(10)
    >>> budget.reserve(8), budget.reserve(8), budget.is_full
    (True, False, False)
    """

    def __init__(self, limit_bytes: int) -> None:
        self._limit = limit_bytes
        self._waiting = 0
        self._lock = threading.Lock()

    @property
    def waiting_bytes(self) -> int:
        return self._waiting

    @property
    def is_full(self) -> bool:
        return self._waiting >= self._limit

    def reserve(self, size: int) -> bool:
        """Take room for ``size`` bytes; one request always fits into an empty budget."""
        with self._lock:
            if self._waiting and self._waiting + size > self._limit:
                return False
            self._waiting += size
            return True

    def release(self, size: int) -> None:
        with self._lock:
            self._waiting -= size

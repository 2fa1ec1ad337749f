"""Writing spread over time: next to a training it takes a small part of a core, of the caches, and
of the disk at any moment, instead of all that it can for a short while."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from typing import Any, Final

CHUNK_BYTES: Final = 1 << 20
"""Written and hashed at once, about 1 ms: while it still is in the cache."""
FLUSH_BYTES: Final = 32 << 20
"""After so much the disk is asked to begin: else it has all to do at the end."""
_POLL_S: Final = 0.1
_NICE: Final = 10
"""Of the process that writes: a tenth of a busy core, next to a process of normal priority. More
would starve it where all cores are busy."""


class Pacer:
    """Of one save on one rank.

    Args:
        spread_s: that the writing should take at least.
        is_urgent: somebody waits, so that it should go on as fast as it can.
    """

    def __init__(
        self,
        spread_s: float,
        is_urgent: Callable[[], bool],
        *,
        monotonic_s: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._spread_s = spread_s
        self._is_urgent = is_urgent
        self._monotonic_s = monotonic_s
        self._sleep = sleep
        self._total_bytes = 0
        self._written_bytes = 0
        self._began_s = monotonic_s()

    def begin(self, total_bytes: int) -> None:
        """Writing begins."""
        self._total_bytes = total_bytes
        self._began_s = self._monotonic_s()

    def add(self, written_bytes: int) -> None:
        """Wait until so much more should have been written."""
        self._written_bytes += written_bytes
        if self._spread_s <= 0.0 or not self._total_bytes:
            return
        part = min(1.0, self._written_bytes / self._total_bytes)
        due_s = self._began_s + self._spread_s * part
        while (left_s := due_s - self._monotonic_s()) > 0.0 and not self._is_urgent():
            self._sleep(min(left_s, _POLL_S))


def begin_flush(fd: int, until_byte: int) -> None:
    """Have the system write out what a file has so far, and forget what is written: it is not read
    again soon. Returns at once."""
    with contextlib.suppress(OSError, AttributeError):
        os.posix_fadvise(fd, 0, until_byte, os.POSIX_FADV_DONTNEED)


def step_back() -> None:
    """Called in the process that writes: the training comes first."""
    import torch

    with contextlib.suppress(OSError):
        os.nice(_NICE)
    torch.set_num_threads(1)
    options: Any = getattr(torch.serialization, "set_crc32_options", None)
    if options is not None:
        options(False)  # our hashes say more

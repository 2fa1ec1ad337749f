"""What the exporter thread sleeps on: a pipe that other threads, and signals, write to."""

from __future__ import annotations

import contextlib
import os
import select

WAKE = 0


class Waker:
    """A sleep that ends early. Signal numbers arrive as bytes when Python's wakeup fd is ours."""

    def __init__(self) -> None:
        self._read_fd, self.write_fd = os.pipe()
        os.set_blocking(self._read_fd, False)
        os.set_blocking(self.write_fd, False)
        self._poll = select.poll()
        self._poll.register(self._read_fd, select.POLLIN)

    def wake(self) -> None:
        """End the sleep. Safe from any thread and from a signal handler."""
        with contextlib.suppress(BlockingIOError):  # full of wake-ups is awake enough
            os.write(self.write_fd, bytes([WAKE]))

    def sleep(self, seconds: float) -> set[int]:
        """Sleep up to ``seconds``; the bytes that ended it."""
        self._poll.poll(max(0.0, seconds) * 1000)
        with contextlib.suppress(BlockingIOError):
            return set(os.read(self._read_fd, 4096))
        return set()

    def close(self) -> None:
        """Only once nobody sleeps on it or writes to it any more."""
        os.close(self._read_fd)
        os.close(self.write_fd)

"""What the exporter thread sleeps on."""

from __future__ import annotations

import contextlib
import os
import select


class Waker:
    """A sleep that ends early. A pipe, because it may be written to from a signal handler."""

    def __init__(self) -> None:
        self._read_fd, self._write_fd = os.pipe()
        os.set_blocking(self._read_fd, False)
        os.set_blocking(self._write_fd, False)
        self._poll = select.poll()
        self._poll.register(self._read_fd, select.POLLIN)

    def wake(self) -> None:
        """End the sleep. Safe from any thread and from a signal handler."""
        with contextlib.suppress(BlockingIOError):  # full of wake-ups is awake enough
            os.write(self._write_fd, b"\0")

    def sleep(self, seconds: float) -> None:
        """Sleep up to ``seconds``."""
        self._poll.poll(max(0.0, seconds) * 1000)
        with contextlib.suppress(BlockingIOError):
            os.read(self._read_fd, 4096)

    def close(self) -> None:
        """Only once nobody sleeps on it or writes to it any more."""
        os.close(self._read_fd)
        os.close(self._write_fd)

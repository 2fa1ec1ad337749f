"""A thread of ours: runs what is due and what it is asked, and outlives every mistake."""

from __future__ import annotations

import contextlib
import logging
import os
import select
import threading
import time
from collections import deque
from collections.abc import Callable

THREAD_NAME = "otel-straggler"
"""Of the thread that sends; the names of the others begin with it."""
_LOG = logging.getLogger("otel_straggler")
Job = Callable[[], object]


class Clock:
    """Monotonic seconds for waiting, wall clock for stamps, ``perf_counter`` for lengths."""

    def monotonic_s(self) -> float:
        return time.monotonic()

    def wall_ns(self) -> int:
        return time.time_ns()

    def perf_ns(self) -> int:
        return time.perf_counter_ns()


class LogOnce:
    """Logs the first of many errors: telemetry never stops training, nor fills its log."""

    def __init__(self, message: str) -> None:
        self._message = message
        self._has_logged = False

    def __call__(self, error: Exception) -> None:
        if not self._has_logged:
            self._has_logged = True
            _LOG.warning(self._message, exc_info=error)


class Worker:
    """Calls ``tick`` when it is due, and jobs in between. A daemon: it keeps no process alive.

    Args:
        tick: does what is due at a time (monotonic), and gives the time of the next tick.
        on_error: gets what ``tick`` or a job raises; the next tick is then a second away.
    """

    def __init__(
        self,
        tick: Callable[[float], float],
        on_error: Callable[[Exception], None],
        name: str = THREAD_NAME,
    ) -> None:
        self._tick = tick
        self._on_error = on_error
        self._jobs: deque[tuple[Job, threading.Event]] = deque()
        self._is_stopping = False
        self._is_due = True
        self._waker = _Waker()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def wake(self) -> None:
        """Tick now. Safe from any thread; cost: 1 µs."""
        self._is_due = True
        self._waker.wake()

    def ask(self, job: Job) -> threading.Event | None:
        """Run ``job`` in the thread; the event is set afterwards, even if it failed. None if the
        thread has ended. Safe from a signal handler."""
        if not self._thread.is_alive():
            return None
        done = threading.Event()
        self._jobs.append((job, done))
        self._waker.wake()
        return done

    def do(self, job: Job, timeout_s: float) -> bool:
        """Run ``job`` in the thread, and wait; whether it was done in time."""
        if threading.current_thread() is self._thread:
            return False
        done = self.ask(job)
        return done is not None and done.wait(max(0.0, timeout_s))

    def stop(self, timeout_s: float) -> bool:
        """Whether the thread has ended within ``timeout_s``."""
        self._is_stopping = True
        self._waker.wake()
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join(max(0.0, timeout_s))
        has_ended = not self._thread.is_alive()
        if has_ended:
            self._waker.close()
        return has_ended

    def _run(self) -> None:
        next_s = 0.0
        while not self._is_stopping:
            if self._is_due or time.monotonic() >= next_s:
                self._is_due = False
                next_s = self._ticked()
            while self._jobs:
                job, done = self._jobs.popleft()
                try:
                    job()
                except Exception as error:  # noqa: BLE001  whoever waits must not wait in vain
                    self._on_error(error)
                done.set()
            if not self._is_stopping and not self._is_due:
                self._waker.sleep(next_s - time.monotonic())

    def _ticked(self) -> float:
        try:
            return self._tick(time.monotonic())
        except Exception as error:  # noqa: BLE001  the thread outlives every mistake
            self._on_error(error)
            return time.monotonic() + 1.0


class _Waker:
    """A sleep that ends early. A pipe, because it may be written to from a signal handler."""

    def __init__(self) -> None:
        self._read_fd, self._write_fd = os.pipe()
        os.set_blocking(self._read_fd, False)
        os.set_blocking(self._write_fd, False)
        self._poll = select.poll()
        self._poll.register(self._read_fd, select.POLLIN)

    def wake(self) -> None:
        with contextlib.suppress(BlockingIOError):  # full of wake-ups is awake enough
            os.write(self._write_fd, b"\0")

    def sleep(self, seconds: float) -> None:
        self._poll.poll(max(0.0, seconds) * 1000)
        with contextlib.suppress(BlockingIOError):
            os.read(self._read_fd, 4096)

    def close(self) -> None:
        """Only once nobody sleeps on it or writes to it any more."""
        os.close(self._read_fd)
        os.close(self._write_fd)

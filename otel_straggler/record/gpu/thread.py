"""The thread in which tiers are switched: never the one that trains, nor the one that sends."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable

from otel_straggler.record.waker import Waker

NAME = "otel-straggler-tier"
_LOG = logging.getLogger("otel_straggler")
Job = Callable[[], object]


class TierThread:
    """Calls ``tick`` when it is due, and does what it is asked between. A daemon.

    Args:
        tick: does what is due at a time (monotonic), and says when the next is.
    """

    def __init__(self, tick: Callable[[float], float]) -> None:
        self._tick = tick
        self._jobs: deque[tuple[Job, threading.Event]] = deque()
        self._is_ending = False
        self._waker = Waker()
        self._has_logged_error = False
        self._thread = threading.Thread(target=self._run, name=NAME, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def wake(self) -> None:
        """Tick now. Safe from any thread; cost: 1 µs."""
        self._waker.wake()

    def ask(self, job: Job) -> threading.Event:
        """Have ``job`` done; the event is set when it is, even if it failed."""
        done = threading.Event()
        self._jobs.append((job, done))
        self._waker.wake()
        return done

    def do(self, job: Job, timeout_s: float) -> bool:
        """The same, and wait; whether it was done in time. What hangs, hangs there."""
        is_here = threading.current_thread() is self._thread
        if is_here or not self._thread.is_alive():
            return False
        return self.ask(job).wait(max(0.0, timeout_s))

    def end(self, timeout_s: float) -> None:
        """Let it end, and wait so long."""
        self._is_ending = True
        self._waker.wake()
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join(max(0.0, timeout_s))
            if not self._thread.is_alive():
                self._waker.close()

    def _run(self) -> None:
        while not self._is_ending:
            next_s = self._guarded(lambda: self._tick(time.monotonic()))
            while self._jobs:
                job, done = self._jobs.popleft()
                self._guarded(job)
                done.set()
            if not self._is_ending:
                self._waker.sleep(next_s - time.monotonic())

    def _guarded(self, job: Callable[[], object]) -> float:
        """Telemetry never stops training: log the first error, and look again in a second."""
        try:
            next_s = job()
        except Exception as error:  # noqa: BLE001  the thread outlives every mistake
            if not self._has_logged_error:
                self._has_logged_error = True
                _LOG.warning(
                    "GPU timing could not be looked after; training goes on", exc_info=error
                )
            next_s = None
        return next_s if isinstance(next_s, float) else time.monotonic() + 1.0

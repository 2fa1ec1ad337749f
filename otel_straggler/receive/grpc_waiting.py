"""Calls whose message has not come yet. Each keeps a thread waiting, and some that never send one
would keep everybody else out.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar

_Result = TypeVar("_Result")
_LOOK_S = 0.1


class Call(Protocol):
    """gRPC's context of a call."""

    def cancel(self) -> object:
        """End it; its sender is told CANCELLED, which OTLP sends again."""


class CallThreads(ThreadPoolExecutor):
    """The threads of a gRPC server, and who of them waits for a message.

    Args:
        threads: how many calls may be waited for at once.
        slow_s: after which a call may be ended where others wait for a thread.
        most_s: after which it is in any case.
    """

    def __init__(self, threads: int, *, slow_s: float, most_s: float) -> None:
        super().__init__(threads, thread_name_prefix="otlp-grpc")
        self._threads_at_most = threads
        self._slow_s, self._most_s = slow_s, most_s
        self._calls = 0
        self._since: dict[Call, float] = {}
        self._lock = threading.Lock()
        self._has_ended = threading.Event()
        self._watch = threading.Thread(target=self._look, name="otlp-grpc-watch", daemon=True)
        self._watch.start()

    def submit(self, fn: Callable[..., _Result], /, *args: Any, **kwargs: Any) -> Future[_Result]:
        """As the base class has it; counted."""
        with self._lock:
            self._calls += 1
        try:
            future = super().submit(fn, *args, **kwargs)
        except BaseException:
            self._end_one()
            raise
        future.add_done_callback(self._end_one)
        return future

    @property
    def waited_for(self) -> int:
        """Calls whose message is waited for."""
        return len(self._since)

    @contextmanager
    def waiting(self, call: Call) -> Iterator[None]:
        """Within, the message is waited for."""
        with self._lock:
            self._since[call] = time.monotonic()
        try:
            yield
        finally:
            with self._lock:
                del self._since[call]

    def end(self) -> None:
        """Look no more; the server is gone."""
        self._has_ended.set()
        self.shutdown(wait=False)

    def _end_one(self, _: Any = None) -> None:
        with self._lock:
            self._calls -= 1

    def _look(self) -> None:
        while not self._has_ended.wait(_LOOK_S):
            for call in self._late(time.monotonic()):
                call.cancel()

    def _late(self, now_s: float) -> list[Call]:
        """Which to end: all that take too long, and for each that waits for a thread one."""
        with self._lock:
            most = max(0, self._calls - self._threads_at_most)
            slow = [call for call, since in self._since.items() if now_s - since > self._slow_s]
            gone = [call for call in slow if now_s - self._since[call] > self._most_s]
        return slow[: max(most, len(gone))]  # in the order in which they began

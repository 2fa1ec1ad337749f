"""SIGTERM: send what is known, then let the process end as it would have ended.

Python runs a signal handler only between two bytecodes of the main thread. A main thread that is
blocked in C (a collective that never returns) would make the process deaf to SIGTERM once a
handler is installed. Hence two ways in: the handler, and Python's wakeup file descriptor, which
the C part of the signal handling writes to at once and the exporter thread sleeps on.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

from otel_straggler.semconv import Outcome

_UNSET = -1
_GRACE_S = 0.5
"""How much longer than the deadline a main thread that runs Python may take."""

Flush = Callable[[float, Outcome | None], object]


class Termination:
    """Our place in the chain of SIGTERM handlers.

    Args:
        ask_to_flush: from the main thread: have the exporter thread flush, and wait.
        flush_now: in the exporter thread: flush.
        deadline_s: the most that a flush takes.
        wakeup_fd: where signal numbers shall be written.
    """

    def __init__(
        self, ask_to_flush: Flush, flush_now: Flush, deadline_s: float, wakeup_fd: int
    ) -> None:
        self._ask_to_flush = ask_to_flush
        self._flush_now = flush_now
        self._deadline_s = deadline_s
        self._wakeup_fd = wakeup_fd
        self._previous: Any = None
        self._is_installed = False
        self._is_handled = False
        self._die_at_s: float | None = None

    def install(self) -> bool:
        """Chain in, if that can neither hide a signal nor make the process deaf."""
        previous = signal.getsignal(signal.SIGTERM)
        in_main = threading.current_thread() is threading.main_thread()
        if not in_main or not (previous is signal.SIG_DFL or callable(previous)):
            return False
        if not self._take_wakeup_fd() and previous is signal.SIG_DFL:
            return False
        self._previous = previous
        signal.signal(signal.SIGTERM, self._handle)
        self._is_installed = True
        return True

    def uninstall(self) -> bool:
        """Step out of the chain, if nobody has chained in after us; whether the wakeup fd is free.

        Only the main thread may use Python's ``signal``; the C function knows no threads.
        """
        if not self._is_installed:
            return True
        self._is_installed = False
        is_last = signal.getsignal(signal.SIGTERM) == self._handle
        if threading.current_thread() is not threading.main_thread():
            if is_last and self._previous is signal.SIG_DFL:
                _reset_to_default()
            return False
        self._give_back_wakeup_fd()
        if is_last:
            signal.signal(signal.SIGTERM, self._previous)
        return True

    def on_bytes(self, signals: set[int]) -> float | None:
        """In the exporter thread: see what arrived; the time at which to be called again."""
        if signal.SIGTERM in signals and self._is_installed:
            self._die_at_s = time.monotonic() + self._deadline_s + _GRACE_S
            self._flush_now(self._deadline_s, self._outcome())
        if self._die_at_s is None:
            return None
        if self._is_handled or self._previous is not signal.SIG_DFL:
            self._die_at_s = None
        elif time.monotonic() >= self._die_at_s:
            _die_by_default()
        return self._die_at_s

    def _handle(self, signum: int, frame: FrameType | None) -> None:
        self._is_handled = True
        if self._is_installed:
            self._ask_to_flush(self._deadline_s, self._outcome())
        if self._previous is signal.SIG_DFL:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            os.kill(os.getpid(), signum)
        else:
            self._previous(signum, frame)

    def _outcome(self) -> Outcome | None:
        """With a handler of the user's own, nobody knows yet whether the process will end."""
        return "unknown" if self._previous is signal.SIG_DFL else None

    def _take_wakeup_fd(self) -> bool:
        other = signal.set_wakeup_fd(self._wakeup_fd, warn_on_full_buffer=False)
        if other == _UNSET:
            return True
        signal.set_wakeup_fd(other)
        return False

    def _give_back_wakeup_fd(self) -> None:
        current = signal.set_wakeup_fd(_UNSET)
        if current not in {_UNSET, self._wakeup_fd}:
            signal.set_wakeup_fd(current, warn_on_full_buffer=False)


def _reset_to_default() -> None:
    libc = ctypes.CDLL(None)
    libc.signal.restype = ctypes.c_void_p
    libc.signal.argtypes = [ctypes.c_int, ctypes.c_void_p]
    libc.signal(int(signal.SIGTERM), None)  # SIG_DFL is 0


def _die_by_default() -> None:
    _reset_to_default()
    with contextlib.suppress(ProcessLookupError):
        os.kill(os.getpid(), signal.SIGTERM)

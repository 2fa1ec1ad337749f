"""Stacks without the GIL: a signal whose handler is in C, from outside or by a timer of the kernel.

A thread that keeps the GIL in a C call silences every thread of Python, ours too. faulthandler's
handler for a signal writes the stacks all the same. Its own timer (``dump_traceback_later``) exists
once in a process and may be the user's (pytest's, for one), and nobody can ask whose it is; so the
timer is one of the kernel's (``timer_create``), of which there are many.
"""

from __future__ import annotations

import ctypes
import faulthandler
import os
import signal

from otel_straggler.client.diagnostics.processes import has_disposition

_MONOTONIC = 1
_SIGEV_SIGNAL = 0
_FIRST, _LAST = 7, 21
"""Real-time signals that are looked at, from SIGRTMIN on: the first few are taken by some."""


class _Event(ctypes.Structure):
    _fields_ = (
        ("value", ctypes.c_void_p),
        ("signo", ctypes.c_int),
        ("notify", ctypes.c_int),
        ("spare", ctypes.c_char * 48),
    )


class _Times(ctypes.Structure):
    _fields_ = tuple(
        (name, ctypes.c_long) for name in ("every_s", "every_ns", "after_s", "after_ns")
    )


class Alarm:
    """A real-time signal that nobody else uses, on which all stacks are written to a file.

    Args:
        file: number of the open file.

    Attributes:
        number: of the signal; None if there is none, and then nothing works.
    """

    def __init__(self, file: int) -> None:
        self.number: int | None = _free_signal()
        self._timer: ctypes.c_void_p | None = None
        self._libc = _libc()
        if self.number is not None:
            faulthandler.register(self.number, file=file, all_threads=True)

    def set(self, after_s: float) -> bool:
        """Have the stacks written ``after_s`` from now, unless this is called again before; 0: not
        at all. Whether that works here."""
        if self.number is None or self._libc is None:
            return False
        if self._timer is None and (after_s == 0 or not self._create()):
            return False
        seconds = int(after_s)
        times = _Times(0, 0, seconds, int((after_s - seconds) * 1e9))
        return bool(self._libc.timer_settime(self._timer, 0, ctypes.byref(times), None) == 0)

    def close(self) -> None:
        """The signal does again what it did before."""
        self._delete()
        self.leave_to_parent()

    def leave_to_parent(self) -> None:
        """In a forked child: the kernel's timer is the parent's, the handler is a copy."""
        self._timer = None
        number, self.number = self.number, None
        if number is not None:
            faulthandler.unregister(number)

    def _create(self) -> bool:
        assert self._libc is not None
        timer = ctypes.c_void_p()
        event = _Event(signo=self.number, notify=_SIGEV_SIGNAL)
        done = self._libc.timer_create(_MONOTONIC, ctypes.byref(event), ctypes.byref(timer))
        if done != 0:
            return False
        self._timer = timer
        return True

    def _delete(self) -> None:
        timer, self._timer = self._timer, None
        if timer is not None and self._libc is not None:
            self._libc.timer_delete(timer)


def _free_signal() -> int | None:
    if not hasattr(signal, "SIGRTMIN") or not hasattr(faulthandler, "register"):
        return None
    for number in range(signal.SIGRTMIN + _FIRST, min(signal.SIGRTMIN + _LAST, signal.SIGRTMAX)):
        is_default = signal.getsignal(number) is signal.SIG_DFL
        if is_default and not has_disposition(os.getpid(), number):
            return number
    return None


def _libc() -> ctypes.CDLL | None:
    """Where the functions are: in libc since glibc 2.34, before that in librt."""
    for name in (None, "librt.so.1"):
        try:
            library = ctypes.CDLL(name)
        except OSError:
            continue
        if hasattr(library, "timer_create"):
            return library
    return None

"""How a process ends: SIGTERM, and the exit code.

SIGTERM: send what is known, then let the process end as it would have ended.

Python runs a signal handler only between two bytecodes of the main thread, so a main thread blocked
in C (a collective that never returns) would be deaf to SIGTERM once a handler is installed. Hence a
second way: Python's wakeup file descriptor, on which a thread of its own sleeps.

Schedulers and launchers end a rank by SIGTERM, so it is a recorded end: ``preempted``. Where a
handler of the user's own decides what happens next, the rank first reports that it is
``is_ending``.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

from otel_straggler.semconv import Outcome

if TYPE_CHECKING:
    from otel_straggler.model.rank_failure import RankFailure

WATCHER_NAME = "otel-straggler-sigterm"
_STOP = 0
_NO_FD = -1
_GRACE_S = 0.5
"""Extra time after the deadline for a main thread that runs Python."""
_EXPLAINS_S = 1_800.0
"""A process that ends within this time of a SIGTERM was ended by it: it may save a checkpoint
first. One that still runs then has its own ideas, and its end another reason."""

Flush = Callable[[float, Outcome | None], object]

POSTPONING: list[Callable[[], float]] = []
"""Each is called when SIGTERM comes, in the main thread or the watcher's, maybe in both, and
returns how many seconds it needs before the process ends; it sends SIGTERM again when it is done.
A checkpoint is saved so."""
_INSTALLED: list[Termination] = []


PARENT_PID: Final = "OTEL_STRAGGLER_PARENT_PID"
"""Set by a parent for :func:`end_with_parent` of its child."""
_PR_SET_PDEATHSIG: Final = 1


def end_with_parent(number: signal.Signals, *, also_stopped: bool = False) -> int:
    """Have the kernel send this process a signal when its parent dies, however it does (Linux), or
    at once where the parent is dead already.

    Args:
        also_stopped: a process that SIGSTOP has stopped goes on then, and gets it, too. SIGKILL
            needs no such thing. Sets a handler for SIGCONT.

    Returns:
        The parent's process id; 0 if the parent has not asked for it by ``PARENT_PID``, which is
        removed, so that no child of this process takes it for its own.
    """
    parent = int(os.environ.pop(PARENT_PID, "0") or "0")
    if parent == 0:
        return 0

    def continued(_number: int, _frame: FrameType | None) -> None:
        if os.getppid() != parent:
            signal.raise_signal(number)

    if also_stopped:
        signal.signal(signal.SIGCONT, continued)
    with contextlib.suppress(OSError, AttributeError):
        sent = signal.SIGCONT if also_stopped else number
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(sent))
    if os.getppid() != parent:
        signal.raise_signal(number)
    return parent


def uncaught_exception() -> BaseException | None:
    """The exception that has ended the program; its interpreter may go on for a while."""
    error: BaseException | None = getattr(sys, "last_exc", getattr(sys, "last_value", None))
    return error


def is_installed() -> bool:
    """Whether a handler of ours is in the chain."""
    return bool(_INSTALLED)


def _postponed_s() -> float:
    return max((postpone() for postpone in list(POSTPONING)), default=0.0)


class Termination:
    """Our place in the chain of SIGTERM handlers. A flush takes ``deadline_s`` at most."""

    def __init__(self, flush: Flush, deadline_s: float) -> None:
        self._flush = flush
        self._deadline_s = deadline_s
        self._previous: Any = None
        self._is_installed = False
        self._has_come = threading.Event()
        self._came_at_s = float("-inf")
        self._read_fd = self._write_fd = _NO_FD

    def install(self) -> bool:
        """Chain in, if that can neither hide a signal nor make the process deaf."""
        previous = signal.getsignal(signal.SIGTERM)
        in_main = threading.current_thread() is threading.main_thread()
        if not in_main or not (previous is signal.SIG_DFL or callable(previous)):
            return False
        if previous is signal.SIG_DFL and not self._watch():
            return False
        self._previous = previous
        signal.signal(signal.SIGTERM, self._handle)
        self._is_installed = True
        _INSTALLED.append(self)
        return True

    @property
    def is_ending(self) -> bool:
        """Whether SIGTERM has come and explains an end that follows now: that of a program which an
        exception had not ended before."""
        return time.monotonic() - self._came_at_s < _EXPLAINS_S

    def uninstall(self) -> None:
        """Step out of the chain, if nobody has chained in after us."""
        if self._restore():
            self._stop_watching()

    def leave_to_parent(self) -> None:
        """In a forked child: the pipe is the parent's and is not touched."""
        self._restore()

    def _restore(self) -> bool:
        """Only the main thread may use Python's ``signal``; the C function knows no threads."""
        if not self._is_installed:
            return False
        self._is_installed = False
        if self in _INSTALLED:
            _INSTALLED.remove(self)
        is_last = signal.getsignal(signal.SIGTERM) == self._handle
        if threading.current_thread() is threading.main_thread():
            self._give_back_wakeup_fd()
            if is_last:
                signal.signal(signal.SIGTERM, self._previous)
            return True
        if is_last and self._previous is signal.SIG_DFL:
            _reset_to_default()
        return False

    def _handle(self, signum: int, frame: FrameType | None) -> None:
        """In the main thread. A handler of the user's own decides when the process ends."""
        if uncaught_exception() is None:
            self._came_at_s = time.monotonic()
        if self._is_installed and _postponed_s() > 0.0:
            return
        self._has_come.set()
        is_last = self._previous is signal.SIG_DFL
        if self._is_installed:
            self._flush(self._deadline_s, "preempted" if is_last else None)
        if is_last:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            os.kill(os.getpid(), signum)
        else:
            self._previous(signum, frame)

    def _watch(self) -> bool:
        """Watch for signals, unless somebody else does."""
        read_fd, write_fd = os.pipe()
        os.set_blocking(write_fd, False)
        other = signal.set_wakeup_fd(write_fd, warn_on_full_buffer=False)
        if other != _NO_FD:
            signal.set_wakeup_fd(other)
            os.close(read_fd)
            os.close(write_fd)
            return False
        self._read_fd, self._write_fd = read_fd, write_fd
        threading.Thread(target=self._wait_for_signals, name=WATCHER_NAME, daemon=True).start()
        return True

    def _wait_for_signals(self) -> None:
        while True:
            arrived = os.read(self._read_fd, 4096)
            if signal.SIGTERM in arrived and self._is_installed:
                self._end_unless_handled()
            if _STOP in arrived:
                os.close(self._read_fd)
                return

    def _end_unless_handled(self) -> None:
        """If the main thread has not run our handler by the deadline, it never will."""
        until_s = time.monotonic() + _postponed_s()
        while POSTPONING and time.monotonic() < until_s:
            if self._has_come.wait(_GRACE_S):
                return
        self._flush(self._deadline_s, "preempted")
        if not self._has_come.wait(self._deadline_s + _GRACE_S):
            _reset_to_default()
            with contextlib.suppress(ProcessLookupError):
                os.kill(os.getpid(), signal.SIGTERM)

    def _stop_watching(self) -> None:
        if self._write_fd != _NO_FD:
            write_fd, self._write_fd = self._write_fd, _NO_FD
            os.write(write_fd, bytes([_STOP]))
            os.close(write_fd)

    def _give_back_wakeup_fd(self) -> None:
        current = signal.set_wakeup_fd(_NO_FD)
        if current not in {_NO_FD, self._write_fd}:
            signal.set_wakeup_fd(current, warn_on_full_buffer=False)


class ExitCode:
    """The code of ``sys.exit()``, which nothing else in Python keeps until the interpreter's end:
    a program that leaves with an error has failed. ``raise SystemExit(1)`` is not seen here, but by
    ``NativeExport.correct_at_exit()``.

    Args:
        step: the last step begun. A ``sys.exit()`` that the program caught and outlived says
            nothing about its end.
    """

    def __init__(self, step: Callable[[], int | None]) -> None:
        self._step = step
        self._previous: Any = None
        self._code: object = None
        self._failure: RankFailure | None = None
        self._at_step: int | None = None

    def install(self) -> None:
        self._code = None
        if self._previous is None:
            self._previous, sys.exit = sys.exit, self._exit

    def uninstall(self) -> None:
        """Step out of the way, if nobody has wrapped ``sys.exit`` after us."""
        if sys.exit == self._exit:
            sys.exit, self._previous = self._previous, None

    @property
    def is_failure(self) -> bool:
        return self._code not in {None, 0} and self._step() == self._at_step

    @property
    def failure(self) -> RankFailure | None:
        """How it failed, if it did; the exception that was handled then says more than the code."""
        return self._failure if self.is_failure else None

    def _exit(self, status: object = None, /) -> Any:
        if threading.current_thread() is threading.main_thread():  # elsewhere it ends a thread
            self._code = status if isinstance(status, int) or status is None else 1
            self._at_step = self._step()
            if self._code not in {None, 0}:
                from otel_straggler.client.failures import failure_of

                self._failure = failure_of(sys.exc_info()[1], self._code)
        self._previous(status)


def _reset_to_default() -> None:
    """``signal(SIGTERM, SIG_DFL)`` in C, from any thread."""
    libc = ctypes.CDLL(None)
    libc.signal.restype = ctypes.c_void_p
    libc.signal.argtypes = [ctypes.c_int, ctypes.c_void_p]
    libc.signal(int(signal.SIGTERM), None)

"""Stacks of this process: written when asked, when it is stuck by its own clock, and, where
somebody keeps the GIL, by a signal whose handler is in C.
"""

from __future__ import annotations

import ctypes
import faulthandler
import logging
import os
import signal
import tempfile
import threading
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

from otel_straggler.client.diagnostics.processes import (
    has_disposition,
    is_stacks_signal,
    started_ticks,
)
from otel_straggler.client.recorder import open_work
from otel_straggler.client.worker import Clock
from otel_straggler.config import ClientSettings
from otel_straggler.model.diagnostics import ANNOUNCED, SUFFIX, StacksHead, file_stem
from otel_straggler.regular_files import create_folder, open_regular

if TYPE_CHECKING:
    from otel_straggler.client.native_recorder import NativeRecorder

MAX_BYTES = 4 * 1024 * 1024
MAX_DUMPS = 32
OLDER = ".stacks.older.txt"
_CLOSE_S = 0.2
_WRITE_S = 30.0
_LOG = logging.getLogger("otel_straggler")
_MONOTONIC = 1
_SIGEV_SIGNAL = 0


class Stacks:
    """Writes the stacks of all threads of this process to its file in ``evidence_dir``.

    Raises:
        OSError: the folder cannot be written to.
    """

    def __init__(self, settings: ClientSettings, recorder: NativeRecorder, clock: Clock) -> None:
        self._settings = settings
        self._recorder = recorder
        self._clock = clock
        self._limit_ns = int(settings.evidence_after_s * 1e9)
        self._lock = threading.Lock()
        self._is_closed = False
        self._dumped = 0, 0  # start_ns of what was dumped last, and its next time
        folder = Path(settings.evidence_dir)
        create_folder(folder)
        stem = file_stem(
            run_id=settings.run_id,
            group=settings.group,
            rank=settings.rank,
            session_id=recorder.session.session_id,
        )
        self._file = StacksFile(folder / (stem + SUFFIX))
        self._alarm = Alarm(self._file.descriptor)
        self._announcement = self._identity()
        self._file.announce(self._announcement)

    @property
    def path(self) -> Path:
        return self._file.path

    def check(self, next_check_s: float) -> None:
        """Write stacks if the open section is too old: at the limit, and whenever that time has
        doubled. Should this not be called again in time, since somebody keeps the GIL, the kernel
        has them written."""
        if not self._limit_ns:
            return
        self.arm(next_check_s)
        doing = open_work(self._recorder)
        if doing is None:
            return
        age_ns = self._clock.perf_ns() - doing.start_ns
        began_ns, due_ns = self._dumped
        if began_ns != doing.start_ns:
            due_ns = self._limit_ns
        if age_ns >= due_ns:
            self._dumped = doing.start_ns, 2 * max(age_ns, due_ns)
            self.dump(f"{doing.name} is open for {age_ns / 1e9:.0f} s")

    def arm(self, next_check_s: float) -> None:
        """Have the kernel watch from now on; the first check may come too late."""
        if self._limit_ns:
            self._alarm.set(self._limit_ns / 1e9 + 2 * next_check_s)

    def dump(self, why: str) -> None:
        """Append the stacks of now. Cost: some hundred microseconds with the GIL, more with
        hundreds of threads.

        Raises:
            OSError: they cannot be written.
        """
        with self._lock:
            if self._is_closed:
                return
            if self._limit_ns:  # to write may take long, and whoever gets the GIL may keep it
                self._alarm.set(self._limit_ns / 1e9 + _WRITE_S)
            self._file.dump(self._announcement, self._head(why))
        _LOG.info("stacks of all threads are in %s: %s", self._file.path, why)

    def close(self) -> None:
        """A dump that hangs, on a folder that is gone, is left behind with its file: numbers of
        files are given out again."""
        self._alarm.close()
        self._is_closed = True
        if self._lock.acquire(timeout=_CLOSE_S):
            self._file.close()
            self._lock.release()

    def leave_to_parent(self) -> None:
        """In a forked child: the file is the parent's."""
        self._alarm.leave_to_parent()

    def _identity(self) -> StacksHead:
        settings, pid = self._settings, os.getpid()
        main = threading.main_thread().ident or 0
        return StacksHead(
            run=settings.run_id,
            group=settings.group,
            rank=str(settings.rank),
            node=settings.node,
            pid=str(pid),
            session=self._recorder.session.session_id,
            started=started_ticks(pid),
            at=_utc(self._clock.wall_ns()),
            why=ANNOUNCED,
            main_thread=f"0x{main:016x}",
            signal="" if self._alarm.number is None else str(self._alarm.number),
        )

    def _head(self, why: str) -> StacksHead:
        doing, context = open_work(self._recorder), self._recorder.context
        step = None if context is None else context.step
        wall_ns = self._clock.wall_ns()
        since_ns = 0 if doing is None else wall_ns - self._clock.perf_ns() + doing.start_ns
        return replace(
            self._announcement,
            session=self._recorder.session.session_id,
            at=_utc(wall_ns),
            why=why,
            by="faulthandler",
            step="" if step is None else str(step),
            section="" if doing is None else doing.name,
            since="" if doing is None else _utc(since_ns),
        )


def _utc(wall_ns: int) -> str:
    return datetime.fromtimestamp(wall_ns / 1e9, timezone.utc).isoformat(timespec="milliseconds")


class StacksFile:
    """One file of stacks, and the one before it. For one thread at a time. Beyond ``max_bytes`` or
    ``max_dumps`` the file becomes the older one.

    Raises:
        OSError: it cannot be written.
    """

    def __init__(
        self, path: Path, *, max_bytes: int = MAX_BYTES, max_dumps: int = MAX_DUMPS
    ) -> None:
        self.path = path
        self._max_bytes = max_bytes
        self._max_dumps = max_dumps
        self.descriptor = _opened(path)  # the same as long as the file is open
        self._dumps = 0
        self._announced_bytes = 0

    def announce(self, head: StacksHead) -> None:
        """Write a head that nothing belongs to."""
        self._announced_bytes = os.write(self.descriptor, head.text().encode())

    def dump(self, announcement: StacksHead, head: StacksHead) -> None:
        """Append the stacks of all threads. They are dumped with the GIL and written without it: a
        folder that hangs holds up this thread alone.

        Raises:
            OSError: the disk is full, or gone.
        """
        stacks = _stacks()
        self._turn_over(announcement)
        os.write(self.descriptor, head.text().encode() + stacks)
        self._dumps += 1

    def close(self) -> None:
        """An empty file goes."""
        says_nothing = os.fstat(self.descriptor).st_size <= self._announced_bytes
        os.close(self.descriptor)
        if says_nothing:
            self.path.unlink(missing_ok=True)

    def _turn_over(self, announcement: StacksHead) -> None:
        if self._dumps < self._max_dumps and os.fstat(self.descriptor).st_size < self._max_bytes:
            return
        self.path.replace(self.path.with_name(self.path.name.removesuffix(SUFFIX) + OLDER))
        fresh = _opened(self.path)
        os.dup2(fresh, self.descriptor, inheritable=False)  # who writes by number goes on here
        os.close(fresh)
        self._dumps = 0
        self.announce(announcement)


def _stacks() -> bytes:
    """In memory, which never blocks."""
    if hasattr(os, "memfd_create"):
        memory = os.memfd_create("otel-straggler-stacks", os.MFD_CLOEXEC)
        try:
            return _dumped(memory)
        finally:
            os.close(memory)
    with tempfile.TemporaryFile() as file:
        return _dumped(file.fileno())


def _dumped(file: int) -> bytes:
    faulthandler.dump_traceback(file=file, all_threads=True)
    return os.pread(file, os.fstat(file).st_size, 0)


def _opened(path: Path) -> int:
    return open_regular(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)


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
    ``number`` of the signal: None if there is none, and then nothing works."""

    def __init__(self, file: int) -> None:
        self.number: int | None = _free_signal()
        self._timer: ctypes.c_void_p | None = None
        self._libc = _libc()
        if self.number is not None:
            faulthandler.register(self.number, file=file, all_threads=True)

    def set(self, after_s: float) -> bool:
        """Have the stacks written in ``after_s``, unless this is called again before; 0: not at
        all. Whether that works here."""
        if self.number is None or self._libc is None:
            return False
        if self._timer is None and (after_s == 0 or not self._create()):
            return False
        seconds = int(after_s)
        times = _Times(0, 0, seconds, int((after_s - seconds) * 1e9))
        return bool(self._libc.timer_settime(self._timer, 0, ctypes.byref(times), None) == 0)

    def close(self) -> None:
        if self._timer is not None and self._libc is not None:
            self._libc.timer_delete(self._timer)
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


def _free_signal() -> int | None:
    if not hasattr(signal, "SIGRTMIN") or not hasattr(faulthandler, "register"):
        return None
    for number in filter(is_stacks_signal, range(signal.SIGRTMIN, signal.SIGRTMAX)):
        is_default = signal.getsignal(number) is signal.SIG_DFL
        if is_default and not has_disposition(os.getpid(), number):
            return number
    return None


def _libc() -> ctypes.CDLL | None:
    """The library with the functions: libc since glibc 2.34, before that librt."""
    for name in (None, "librt.so.1"):
        try:
            library = ctypes.CDLL(name)
        except OSError:
            continue
        if hasattr(library, "timer_create"):
            return library
    return None

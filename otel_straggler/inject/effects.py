"""What faults do to their own process. Each is a context: entered, it lasts; left, it is undone."""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import resource
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from otel_straggler.errors import UnavailableError
from otel_straggler.inject.faults import Fault, Place
from otel_straggler.inject.keeper import Keeper
from otel_straggler.inject.plan import InjectionPlan

MiB: Final = 1024 * 1024
_LEAK_EVERY_S: Final = 0.05
_MEMORY_SHARE: Final = 0.5
"""A leak takes at most this part of the memory that is available when it begins."""


class InjectedError(RuntimeError):
    """Raised in the main thread of a rank whose plan has an ``exception``."""

    def __init__(self, message: str = "injected by OTEL_STRAGGLER_INJECT") -> None:
        super().__init__(message)


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a fault may need to know.

    Attributes:
        place: of the rank.
        plan: for its folder, file and interface.
        section_type: the class of sections, whose executions slow faults make longer.
    """

    place: Place
    plan: InjectionPlan
    section_type: type[Any]


Effect = Callable[[Fault, Surroundings], AbstractContextManager[object]]


@contextlib.contextmanager
def killed(_fault: Fault, _of: Surroundings) -> Iterator[None]:
    """SIGKILL."""
    os.kill(os.getpid(), signal.SIGKILL)
    yield


@contextlib.contextmanager
def hung(fault: Fault, _of: Surroundings) -> Iterator[None]:
    """SIGSTOP; a process of our own sends SIGCONT."""
    keeper = Keeper([("continue",)], fault.lasts_s)
    os.kill(os.getpid(), signal.SIGSTOP)
    try:
        yield
    finally:
        keeper.close()


@contextlib.contextmanager
def stuck(fault: Fault, _of: Surroundings) -> Iterator[None]:
    """The main thread waits for a lock, as soon as it runs Python."""
    lock = threading.Lock()
    lock.acquire()
    until_s = time.monotonic() + fault.lasts_s

    def wait(_: object) -> int:
        lock.acquire(timeout=max(0.0, until_s - time.monotonic()))
        return 0

    callback = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(wait)
    _PENDING.append(callback)  # Python may call it after this fault
    while ctypes.pythonapi.Py_AddPendingCall(callback, None):  # there are 31 before it
        time.sleep(0.01)
    try:
        yield
    finally:
        lock.release()


_PENDING: list[object] = []


@contextlib.contextmanager
def gil_locked(fault: Fault, _of: Surroundings) -> Iterator[None]:
    """A C call that holds the GIL, and returns by itself: no thread of Python can end it."""
    ctypes.PyDLL(None).poll(None, 0, int(fault.lasts_s * 1e3))
    yield


@contextlib.contextmanager
def raising(_fault: Fault, _of: Surroundings) -> Iterator[None]:
    """``InjectedError`` in the main thread, as soon as it runs Python."""
    main = ctypes.c_ulong(threading.main_thread().ident or 0)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(main, ctypes.py_object(InjectedError))
    yield


@contextlib.contextmanager
def leaking(fault: Fault, _of: Surroundings) -> Iterator[None]:
    """Memory is taken bit by bit, and given back at the end."""
    taken: list[mmap.mmap] = []  # not the allocator's, which may keep what is given back
    max_bytes = int(_available_bytes() * _MEMORY_SHARE)
    piece = b"\x01" * max(1, int(fault.size * MiB * _LEAK_EVERY_S))
    ended = threading.Event()

    def leak() -> None:
        while not ended.wait(_LEAK_EVERY_S):
            if (len(taken) + 1) * len(piece) <= max_bytes:
                taken.append(mmap.mmap(-1, len(piece)))
                taken[-1].write(piece)

    thread = threading.Thread(target=leak, name="otel-straggler-leak", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        for one in taken:
            one.close()


def _available_bytes() -> int:
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return 0


@contextlib.contextmanager
def disk_full(fault: Fault, of: Surroundings) -> Iterator[None]:
    """Writing fails: with EFBIG in this process, or in a folder on a file system of its own with
    ENOSPC."""
    if of.plan.folder:
        with _filled(Path(of.plan.folder), int(fault.size * MiB), fault.lasts_s):
            yield
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    limit = int(fault.size * MiB)
    limit = limit if soft == resource.RLIM_INFINITY else min(limit, soft)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@contextlib.contextmanager
def _filled(folder: Path, size: int, lasts_s: float) -> Iterator[None]:
    if folder.stat().st_dev in {Path("/").stat().st_dev, Path.home().stat().st_dev}:
        raise UnavailableError.of(
            "disk_full",
            str(folder),
            "a folder on a file system of its own, so that the host's disk is never filled",
            "Mount a small one there (mount -t tmpfs -o size=64m none FOLDER), or leave the folder "
            "out to limit the size of files instead.",
        )
    path = folder / f"otel-straggler-disk-full-{os.getpid()}"
    keeper = Keeper([("remove", str(path))], lasts_s)
    try:
        free = os.statvfs(folder)
        size = min(size, free.f_bavail * free.f_frsize)
        with path.open("xb") as file:
            if size:
                os.posix_fallocate(file.fileno(), 0, size)
        yield
    finally:
        keeper.close()


IN_PROCESS: Final[dict[str, Effect]] = {
    "rank_killed": killed,
    "rank_hung": hung,
    "rank_stuck": stuck,
    "gil_locked": gil_locked,
    "exception": raising,
    "memory_leak": leaking,
    "disk_full": disk_full,
}
"""By kind."""

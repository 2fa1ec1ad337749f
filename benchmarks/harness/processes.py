"""Servers in processes of their own, and the processor time that others have used."""

from __future__ import annotations

import contextlib
import ctypes
import os
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

_LIBC = ctypes.CDLL(None, use_errno=True)


@contextlib.contextmanager
def serving(command: Sequence[str]) -> Iterator[tuple[str, int]]:
    """The first line that it prints, and its process id; it is ended afterwards.

    Raises:
        RuntimeError: it has ended without a line.
    """
    with subprocess.Popen(command, stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        try:
            line = server.stdout.readline().decode().strip()
            if not line:
                raise RuntimeError(f"{' '.join(command)} has ended; its error is above")
            yield line, server.pid
        finally:
            server.terminate()


def family_of(pid: int) -> list[int]:
    """A process and its children, which any of its threads may have started."""
    lists = Path(f"/proc/{pid}/task").glob("*/children")
    return [pid, *(int(child) for of_thread in lists for child in of_thread.read_text().split())]


def cpu_ns(pid: int) -> int:
    """User and system time of all threads of a process, those that have ended too.

    Raises:
        OSError: there is no such process.
    """
    clock = ctypes.c_int()
    if error := _LIBC.clock_getcpuclockid(pid, ctypes.byref(clock)):
        raise OSError(error, os.strerror(error), str(pid))
    return time.clock_gettime_ns(clock.value)

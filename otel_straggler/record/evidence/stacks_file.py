"""The file that a rank's stacks go to: bounded, and written whole whatever the others do."""

from __future__ import annotations

import faulthandler
import os
import tempfile
from pathlib import Path

from otel_straggler.model.diagnostics import SUFFIX, StacksHead

MOST_BYTES = 4 * 1024 * 1024
MOST_DUMPS = 32
OLDER = ".stacks.older.txt"


class StacksFile:
    """One file of stacks, and the one before it. For one thread at a time.

    Args:
        path: of the file; what is there is appended to.
        most_bytes, most_dumps: beyond either the file becomes the older one, whose place it takes.

    Raises:
        OSError: it cannot be written.
    """

    def __init__(
        self, path: Path, *, most_bytes: int = MOST_BYTES, most_dumps: int = MOST_DUMPS
    ) -> None:
        self.path = path
        self._most_bytes = most_bytes
        self._most_dumps = most_dumps
        self._file = _opened(path)
        self._dumps = 0
        self._announced_bytes = 0

    @property
    def number(self) -> int:
        """Its file descriptor, the same as long as the file is open."""
        return self._file

    def announce(self, head: StacksHead) -> None:
        """Write a head that nothing belongs to."""
        self._announced_bytes = os.write(self._file, head.text().encode())

    def dump(self, announcement: StacksHead, head: StacksHead) -> None:
        """Append the stacks of all threads. They are taken with the GIL, so nothing moves
        meanwhile, and written without it: a folder that hangs holds up this thread alone.

        Raises:
            OSError: the disk is full, or gone.
        """
        stacks = _stacks()
        self._turn_over(announcement)
        os.write(self._file, head.text().encode() + stacks)
        self._dumps += 1

    def close(self) -> None:
        """A file that says nothing goes."""
        says_nothing = os.fstat(self._file).st_size <= self._announced_bytes
        os.close(self._file)
        if says_nothing:
            self.path.unlink(missing_ok=True)

    def _turn_over(self, announcement: StacksHead) -> None:
        if self._dumps < self._most_dumps and os.fstat(self._file).st_size < self._most_bytes:
            return
        self.path.replace(self.path.with_name(self.path.name.removesuffix(SUFFIX) + OLDER))
        fresh = _opened(self.path)
        os.dup2(fresh, self._file, inheritable=False)  # who writes by number goes on here
        os.close(fresh)
        self._dumps = 0
        self.announce(announcement)


def _stacks() -> bytes:
    """Of now. In memory, which never blocks."""
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
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    return os.open(path, flags, 0o600)

"""One writer a file: a lock that ends with the process, however it ends."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from otel_straggler.errors import UnavailableError, describe

try:
    import fcntl
except ImportError:  # Windows: SQLite's own locks remain
    fcntl = None  # type: ignore[assignment]

SUFFIX: Final = ".lock"


class WriterLock:
    """Held on a file of its own beside the database. SQLite's locks cannot say it: its readers
    would be shut out too; and a lock on the database itself would end theirs."""

    def __init__(self, path: Path) -> None:
        self._path = path.with_name(path.name + SUFFIX)
        self._history = path
        self._file: int | None = None

    def take(self) -> None:
        """Raises:
        UnavailableError: another process, or another history of this one, has it.
        OSError: the file cannot be made.
        """
        file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            if fcntl is not None:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(file, 0)
            os.pwrite(file, str(os.getpid()).encode(), 0)
        except BlockingIOError:
            holder = os.pread(file, 20, 0).decode("ascii", "replace") or "?"
            os.close(file)
            raise UnavailableError(
                describe(
                    where=str(self._history),
                    value=f"a history in use by process {holder}",
                    expected="one collector a file",
                    remedy="Stop that one, or name another file with --history.",
                )
            ) from None
        except BaseException:
            os.close(file)
            raise
        self._file = file

    def release(self) -> None:
        """The file stays: whoever removed it could remove another's."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

"""Opening files in folders that others may write to, such as /tmp.

A path there may be a symbolic link, a pipe that nobody reads, or a file of another user. Lock
files, histories, rings, stacks and the spool are opened here, and nowhere else.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import Final

_FLAGS: Final = (
    getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
)
_WRITES: Final = os.O_WRONLY | os.O_RDWR
_KINDS: Final = {
    stat.S_IFDIR: "a directory",
    stat.S_IFLNK: "a symbolic link",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}
MODE: Final = 0o600
FOLDER_MODE: Final = 0o700


class UnsafeFileError(OSError):
    """A path leads to something that is not opened: a link, no regular file, or another user's."""


def open_regular(path: Path | str, flags: int, *, owner: int | None = None) -> int:
    """Open a regular file; returns its descriptor. Waits for nobody and follows no link at the end
    of the path. What is written to has one name and belongs to this user; a new file has mode 0600.

    Args:
        flags: as for :func:`os.open`; ``os.O_TRUNC`` is not allowed, as it would act too early.
        owner: user id that a file to be written must belong to, instead of this user's.

    Raises:
        UnsafeFileError: there is something else.
        OSError: it cannot be opened.
    """
    if flags & os.O_TRUNC:
        raise ValueError("O_TRUNC truncates before the file is checked")
    try:
        file = os.open(path, flags | _FLAGS, MODE)
    except OSError as error:
        raise _explained(error, path) from None
    try:
        _check(os.fstat(file), path, owner=owner if flags & _WRITES else None, flags=flags)
    except BaseException:
        os.close(file)
        raise
    return file


def create_regular(path: Path | str) -> None:
    """Create an empty file, or check one that exists without opening it: to close a descriptor
    would release the locks that SQLite has on the same file in this process.

    Raises:
        UnsafeFileError: there is something else; see :func:`open_regular`.
        OSError: it cannot be created.
    """
    try:
        os.close(open_regular(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        _check(os.lstat(path), path, owner=None, flags=os.O_WRONLY)


def read_tail(path: Path | str, max_bytes: int) -> bytes:
    """Read the end of a regular file, at most ``max_bytes``.

    Raises:
        OSError: it cannot be read; see :func:`open_regular`.
    """
    file = open_regular(path, os.O_RDONLY)
    try:
        return os.pread(file, max_bytes, max(0, os.fstat(file).st_size - max_bytes))
    finally:
        os.close(file)


def create_folder(path: Path) -> None:
    """Create a folder that only this user can enter, with its parents; one that exists stays as it
    is.

    Raises:
        OSError: it cannot be created.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    path.mkdir(mode=FOLDER_MODE, exist_ok=True)


def _check(found: os.stat_result, path: Path | str, *, owner: int | None, flags: int) -> None:
    if not stat.S_ISREG(found.st_mode):
        kind = _KINDS.get(stat.S_IFMT(found.st_mode), "no regular file")
        raise _unsafe(path, f"is {kind}")
    if not flags & _WRITES or not hasattr(os, "geteuid"):
        return
    expected = os.geteuid() if owner is None else owner
    if found.st_uid != expected:
        raise _unsafe(path, f"belongs to user {found.st_uid}, not to user {expected}")
    if found.st_nlink > 1:
        raise _unsafe(path, f"has {found.st_nlink} names (hard links)")


def _explained(error: OSError, path: Path | str) -> OSError:
    """The same error; of a link or a pipe one that says so."""
    if error.errno in {errno.ELOOP, errno.EMLINK} and Path(path).is_symlink():
        return _unsafe(path, "is a symbolic link")
    if error.errno == errno.ENXIO:
        return _unsafe(path, "is a pipe, a socket, or a device")
    return error


def _unsafe(path: Path | str, what: str) -> UnsafeFileError:
    message = f"it {what}; expected a regular file of this user. Remove it, or choose another path"
    return UnsafeFileError(errno.EPERM, message, str(path))


def sync_folder(path: Path) -> None:
    """Bring the names in it to the disk."""
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)

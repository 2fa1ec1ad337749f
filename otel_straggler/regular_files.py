"""Files in folders that others may write to, such as /tmp: opened, read, created and locked.

A path there may be a symbolic link, a pipe that nobody reads, a device without an end, or a file of
another user. All files of ours are opened here; a test lists what is read otherwise, and why.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import Any, Final

from otel_straggler.errors import InputError
from otel_straggler.strict_json import SMALL_BYTES, parse_object

try:
    import fcntl
except ImportError:  # Windows: nothing is locked
    fcntl = None  # type: ignore[assignment]

_NOFOLLOW: Final = getattr(os, "O_NOFOLLOW", 0)
_FLAGS: Final = _NOFOLLOW | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
_WRITES: Final = os.O_WRONLY | os.O_RDWR
_KINDS: Final = {
    stat.S_IFDIR: "a directory",
    stat.S_IFLNK: "a symbolic link",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}
_REMEDY: Final = "Remove it, or name another one."
MODE: Final = 0o600
FOLDER_MODE: Final = 0o700


class UnsafeFileError(OSError):
    """A path leads to something that is not opened: a link, no regular file, or another user's."""


def open_regular(
    path: Path | str,
    flags: int,
    *,
    owner: int | None = None,
    follow: bool = False,
    mode: int = MODE,
) -> int:
    """Open a regular file; returns its descriptor. Waits for nobody and follows no link at the end
    of the path. What is written to has one name and belongs to this user.

    Args:
        flags: as for :func:`os.open`; ``os.O_TRUNC`` is not allowed, as it would act too early.
        owner: user id that a file to be written must belong to, instead of this user's.
        follow: links, too: of what the user has named, such as a token that Kubernetes mounts.
        mode: of a new file, less the umask.

    Raises:
        UnsafeFileError: there is something else.
        OSError: it cannot be opened.
    """
    if flags & os.O_TRUNC:
        raise ValueError("O_TRUNC truncates before the file is checked")
    try:
        file = os.open(path, flags | (_FLAGS & ~_NOFOLLOW if follow else _FLAGS), mode)
    except OSError as error:
        raise _explained(error, path) from None
    try:
        _check(os.fstat(file), path, owner=owner if flags & _WRITES else None, flags=flags)
    except BaseException:
        os.close(file)
        raise
    return file


def check_readable(path: Path | str) -> None:
    """Open a regular file to read, and close it; links are followed.

    Raises:
        OSError: it cannot be read; see :func:`open_regular`.
    """
    os.close(open_regular(path, os.O_RDONLY, follow=True))


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


def file_of(path: Path) -> tuple[int, int] | None:
    """Device and inode of the file that has this name now; None if there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


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


def read_small(
    path: Path | str,
    max_bytes: int = SMALL_BYTES,
    *,
    follow: bool = False,
    expected: str = "a file",
) -> bytes:
    """Read a regular file whole.

    Args:
        follow: links, too; see :func:`open_regular`.
        expected: names it in the error.

    Raises:
        InputError: it is larger.
        OSError: it cannot be read; see :func:`open_regular`.
    """
    with os.fdopen(open_regular(path, os.O_RDONLY, follow=follow), "rb") as file:
        content = file.read(max_bytes + 1)
    if len(content) > max_bytes:
        value = f"more than {max_bytes:,} bytes"
        raise InputError.of(str(path), value, f"{expected} of at most that size", _REMEDY)
    return content


def read_small_text(
    path: Path | str,
    max_bytes: int = SMALL_BYTES,
    *,
    follow: bool = False,
    expected: str = "a file",
) -> str:
    """The same as text.

    Raises:
        InputError: it is larger, or not UTF-8.
        OSError: it cannot be read; see :func:`open_regular`.
    """
    content = read_small(path, max_bytes, follow=follow, expected=expected)
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise InputError.of(str(path), str(error), f"{expected} in UTF-8", _REMEDY) from None


def read_json(
    path: Path | str,
    max_bytes: int = SMALL_BYTES,
    *,
    follow: bool = False,
    expected: str = "a JSON object",
) -> dict[str, Any]:
    """The JSON object in a regular file; each key once.

    Raises:
        InputError: it is larger, or no such object; see :func:`parse_json`.
        OSError: it cannot be read; see :func:`open_regular`.
    """
    content = read_small(path, max_bytes, follow=follow, expected=expected)
    try:
        return parse_object(content, max_bytes)
    except ValueError as error:
        raise InputError.of(str(path), str(error), expected, _REMEDY) from None


class LockedError(OSError):
    """Another process, or another lock of this one, has the file. ``holder``: what it wrote."""

    def __init__(self, path: Path | str, holder: str) -> None:
        super().__init__(errno.EWOULDBLOCK, f"it is locked by {holder}", str(path))
        self.holder = holder


class FileLock:
    """A lock on a file, which ends with this process however it ends: a forked child, such as a
    worker of a data loader, closes its copy before it runs anything else.

    Args:
        text: who this is, for the error of the next one.
        owner: user id of the file, instead of this user's.
        is_waiting: until nobody has it.

    Raises:
        LockedError: somebody has it.
        UnsafeFileError, OSError: see :func:`open_regular`.
    """

    def __init__(
        self,
        path: Path | str,
        text: str = "",
        *,
        owner: int | None = None,
        is_waiting: bool = False,
    ) -> None:
        self._file: int | None = open_regular(path, os.O_RDWR | os.O_CREAT, owner=owner)
        _HELD.add(self)
        try:
            if fcntl is not None:
                fcntl.flock(self._file, fcntl.LOCK_EX | (0 if is_waiting else fcntl.LOCK_NB))
            os.ftruncate(self._file, 0)
            os.pwrite(self._file, (text or str(os.getpid())).encode(), 0)
        except BlockingIOError:
            holder = os.pread(self._file, 200, 0).decode("utf-8", "replace")
            self.release()
            raise LockedError(path, holder or "?") from None
        except BaseException:
            self.release()
            raise

    def release(self) -> None:
        """Release it; the file stays, as it may be another process's by then. Safe to call twice,
        and in a forked child, where it does nothing."""
        file, self._file = self._file, None
        _HELD.discard(self)
        if file is not None:
            os.close(file)


_HELD: Final[set[FileLock]] = set()


def _release_in_child() -> None:
    for lock in tuple(_HELD):
        lock.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_release_in_child)


def create_folder(path: Path) -> None:
    """Create a folder that only this user can enter, and what is missing above it; one that exists
    stays as it is.

    Raises:
        OSError: it cannot be created.
    """
    for each in reversed([each for each in (path, *path.parents) if not each.exists()]):
        each.mkdir(mode=FOLDER_MODE, exist_ok=True)
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

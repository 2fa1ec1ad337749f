"""Files of checkpoints, on a disk or behind a URL: reading, writing, copying, hashing them."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import BinaryIO, Final, cast

from otel_straggler.checkpoint.manifest import FileEntry
from otel_straggler.errors import InputError, UnavailableError
from otel_straggler.regular_files import open_regular, read_small
from otel_straggler.strict_json import SMALL_BYTES

_CHUNK_BYTES: Final = 4 << 20
_MODE: Final = 0o666


def folder_of(given: str | Path) -> Path:
    """A path, or for a URL what stands for a path in fsspec's filesystem for it.

    Raises:
        UnavailableError: the library for such URLs is not installed.
    """
    if "://" not in str(given):
        return Path(given).absolute()
    try:
        from upath import UPath

        return cast("Path", UPath(given))
    except (ImportError, ValueError) as error:
        raise UnavailableError.of(
            "checkpoints", given, "a URL that fsspec can open",
            f"pip install 'otel-straggler[remote]', and what fsspec names: {error}",
        ) from None  # fmt: skip


def is_remote(folder: Path) -> bool:
    """Whether it is behind a URL: no rename, no lock."""
    return not isinstance(folder, Path)


def read_small_file(path: Path, max_bytes: int = SMALL_BYTES) -> bytes:
    """A file that is small, or what a URL names; see :func:`.read_small`.

    Raises:
        InputError: it is larger.
        OSError: it cannot be read.
    """
    if not is_remote(path):
        return read_small(path, max_bytes)
    with path.open("rb") as file:
        content = file.read(max_bytes + 1)
    if len(content) > max_bytes:
        value = f"more than {max_bytes:,} bytes"
        raise InputError.of(str(path), value, "less", "It is not one of ours.")
    return content


def write_synced(path: Path, content: bytes) -> None:
    if is_remote(path):
        path.write_bytes(content)
        return
    with _open_to_write(path) as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _open_to_write(path: Path) -> BinaryIO:
    """A regular file of this user, emptied, with the mode that the umask leaves, for a team may
    share a folder of checkpoints; or what a URL names."""
    if is_remote(path):
        return cast("BinaryIO", path.open("wb"))
    file = open_regular(path, os.O_WRONLY | os.O_CREAT, mode=_MODE)
    os.ftruncate(file, 0)
    return os.fdopen(file, "wb")


def open_to_read(path: Path) -> BinaryIO:
    """A regular file, without following links; or what a URL names.

    Raises:
        OSError: it is neither.
    """
    if is_remote(path):
        return cast("BinaryIO", path.open("rb"))
    return os.fdopen(open_regular(path, os.O_RDONLY), "rb", buffering=0)


def problem_of(path: Path, entry: FileEntry) -> str:
    """Read a file and compare size and hash; returns the problem, or nothing."""
    digest, size = hashlib.sha256(), 0
    try:
        with open_to_read(path) as file:
            while chunk := file.read(_CHUNK_BYTES):
                digest.update(chunk)
                size += len(chunk)
    except OSError as error:
        return f"cannot be read: {error.strerror or error}"
    if problem := size_problem(size, entry):
        return problem
    return "" if digest.hexdigest() == entry.sha256 else "differs from what was written"


def copy_checked(source: BinaryIO, target: Path, entry: FileEntry) -> None:
    """Copy a file on its way comparing size and hash; a path is synced.

    Raises:
        ValueError: it differs from what was written.
        OSError: it cannot be read or written.
    """
    digest, size = hashlib.sha256(), 0
    with _open_to_write(target) as file:
        while chunk := source.read(_CHUNK_BYTES):
            digest.update(chunk)
            size += len(chunk)
            file.write(chunk)
        if not is_remote(target):
            file.flush()
            os.fsync(file.fileno())
    if size != entry.size_bytes or digest.hexdigest() != entry.sha256:
        raise ValueError(f"{target.name} differs from what was written")


def size_problem(size_bytes: int, entry: FileEntry) -> str:
    if size_bytes == entry.size_bytes:
        return ""
    return f"has {size_bytes:,} bytes, not {entry.size_bytes:,}"

"""Files that a verb writes: as a whole, or not at all."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from otel_straggler.errors import UnavailableError

STDOUT = "-"


def write_file(path: str, text: str) -> None:
    """Write the whole text or nothing; ``-``: to standard output.

    Raises:
        UnavailableError: it cannot be written.
    """
    content = text.encode()
    if path == STDOUT:
        sys.stdout.buffer.write(content)
        sys.stdout.buffer.flush()
        return
    try:
        _replace(Path(path), content)
    except OSError as error:
        value, expected = error.strerror or str(error), "a file that can be written"
        remedy = "Does its folder exist, is there room on the disk, and may you write there?"
        raise UnavailableError.of(path, value, expected, remedy) from error


def _replace(target: Path, content: bytes) -> None:
    handle, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        Path(name).chmod(0o666 & ~_umask())  # as any other file
        Path(name).replace(target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask

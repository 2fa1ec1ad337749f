"""Copies of a history file: made while a collector writes it, and put back while none does."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Final

from otel_straggler.collector.history.database import WriterLock
from otel_straggler.collector.history.postgres import is_postgres
from otel_straggler.collector.history.reader import HistoryReader, translated
from otel_straggler.errors import ConfigError, InputError, UnavailableError
from otel_straggler.regular_files import create_folder, create_regular

_BUSY_S: Final = 30.0
_BESIDE: Final = ("", "-wal", "-shm")
"""A database and what SQLite keeps next to it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Copied:
    """A copy, checked page by page.

    Attributes:
        runs: that it has.
        size_bytes: of the file.
        aside: where the file of before is now; None if there was none.
    """

    runs: int
    size_bytes: int
    aside: Path | None = None


def back_up(history: Path | str, target: Path) -> Copied:
    """Copy a history as of one moment; collectors may write it meanwhile, and wait for nothing.
    The copy is one file, with mode 0600, and is there as a whole or not at all.

    Raises:
        ConfigError: the history is in PostgreSQL, or of another program, or the target exists.
        UnavailableError: it cannot be read, is of another version, or the target cannot be written.
        InputError: the history is damaged.
    """
    if is_postgres(history):
        raise ConfigError.of(
            where="history backup",
            value="a PostgreSQL database",
            expected="the path of a history file",
            remedy="Its server makes backups: pg_dump --schema=otel_straggler.",
        )
    if target.exists():
        raise ConfigError.of(
            where=str(target),
            value="a file that exists",
            expected="a name that is free",
            remedy="Choose another name, for example with the date, or remove the file.",
        )
    return _copied(Path(history), target)


def restore(backup: Path, history: Path, *, wall_s: float) -> Copied:
    """Put a copy in the place of a history; the file of before is moved aside, not deleted. What
    root puts back belongs to the user whose folder it is, such as that of a service.

    Raises:
        ConfigError, InputError: see :func:`back_up`.
        UnavailableError: the same; or a collector uses the history.
    """
    with HistoryReader(backup):  # of this version: else nothing is touched
        pass
    with _written(history):
        create_folder(history.parent)
    lock = _locked(history)
    try:
        new = history.with_name(f".{history.name}.restored")
        copied = _copied(backup, new)
        with _written(history):
            _give_to_owner(new)
            aside = _move_aside(history, wall_s)
            new.replace(history)
        return Copied(runs=copied.runs, size_bytes=copied.size_bytes, aside=aside)
    finally:
        lock.release()


def _locked(history: Path) -> WriterLock:
    """The lock of a collector, which has it while it runs."""
    file = history.with_name(f"{history.name}.lock")
    with _written(file):
        if not file.exists():
            create_regular(file)
            _give_to_owner(file)
        owner = file.stat().st_uid if _is_root() else None
        lock = WriterLock(history, flag="history restore", owner=owner)
        lock.acquire()
    return lock


def _give_to_owner(file: Path) -> None:
    """For root: to the user whose folder it is in, who is to write it."""
    folder = file.parent.stat()
    if _is_root() and file.stat().st_uid != folder.st_uid:
        os.chown(file, folder.st_uid, folder.st_gid)


def _is_root() -> bool:
    return hasattr(os, "geteuid") and os.geteuid() == 0  # Windows has none


def _copied(source: Path, target: Path) -> Copied:
    with HistoryReader(source) as reader:
        runs = len(reader.runs())
    part = target.with_name(f".{target.name}.part")
    try:
        with _written(target):
            part.unlink(missing_ok=True)
            create_regular(part)
        with translated(source):
            _copy(source, part)
        with _written(target):
            part.replace(target)
            size_bytes = target.stat().st_size
    finally:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)
    return Copied(runs=runs, size_bytes=size_bytes)


def _copy(source: Path, part: Path) -> None:
    """In one step, which reads one state of the database: after the first of several, each write of
    a collector would restart the copy."""
    address = f"{source.resolve().as_uri()}?mode=ro"
    with (
        contextlib.closing(sqlite3.connect(address, uri=True, timeout=_BUSY_S)) as original,
        contextlib.closing(sqlite3.connect(part, timeout=_BUSY_S)) as copy,
    ):
        original.backup(copy, pages=-1)
        copy.execute("PRAGMA journal_mode = DELETE").fetchall()  # one file
        [(found,)] = copy.execute("PRAGMA quick_check(1)").fetchall()
    if found != "ok":
        raise InputError.of(
            where=str(source),
            value=f"a damaged file ({found})",
            expected="a history whose pages are whole",
            remedy="A collector that starts with it moves it aside and begins a new one.",
        )


def _move_aside(history: Path, wall_s: float) -> Path | None:
    if not history.exists():
        return None
    stamp = f"{datetime.fromtimestamp(wall_s, timezone.utc):%Y%m%dT%H%M%SZ}"
    aside = history.with_name(f"{history.name}.before-{stamp}")
    for suffix in _BESIDE:
        file = history.with_name(history.name + suffix)
        if file.exists():
            file.replace(aside.with_name(aside.name + suffix))
    return aside


@contextlib.contextmanager
def _written(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UnavailableError.of(
            where=str(path),
            value=error.strerror or str(error),
            expected="a file that can be written",
            remedy="Does its folder exist, is there room on the disk, and may you write there?",
        ) from None

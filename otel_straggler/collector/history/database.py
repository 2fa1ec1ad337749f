"""The SQLite file of a history, open for writing: lock, tables, one transaction per call."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from otel_straggler.collector.history.tables import (
    SCHEMA_VERSION,
    TABLES,
    Row,
    Tables,
    check_schema_version,
)
from otel_straggler.errors import ConfigError, UnavailableError
from otel_straggler.regular_files import FileLock, LockedError, create_regular, file_of

_APPLICATION_ID: Final = 0x6F747331
"""``PRAGMA application_id``: "ots1"."""
BUSY_S: Final = 5.0
"""Time that a statement waits for another program that holds the file."""
_WAL_LIMIT_BYTES: Final = 4 * 1024 * 1024


class Database(Tables):
    """Every method may raise sqlite3.Error and has then written nothing. A new file has mode 0600.
    ``is_durable``: what is written is on the disk, and survives a power cut.

    Raises:
        OSError: the path leads to no regular file, or to another user's.
        ConfigError, UnavailableError: see :func:`check_version`.
    """

    row_bytes = 8192  # two pages

    def __init__(self, path: Path, *, is_durable: bool = False) -> None:
        # SQLite gives its log the mode of the file, which is private from its first byte on.
        create_regular(path)
        self._connection = connection = sqlite3.connect(
            path, timeout=BUSY_S, isolation_level=None, check_same_thread=False
        )
        try:
            if not _is_empty(connection):  # before anything is written to it
                check_version(connection, where=str(path))
            # Has no effect after the first table.
            connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
            connection.execute("PRAGMA journal_mode = WAL").fetchall()
            # Safe with WAL; with NORMAL a power cut may cost the last seconds.
            connection.execute(f"PRAGMA synchronous = {'FULL' if is_durable else 'NORMAL'}")
            connection.execute(f"PRAGMA journal_size_limit = {_WAL_LIMIT_BYTES}")
            _prepare(connection, where=str(path))
            self._page_bytes = _number(self._connection, "PRAGMA page_size")
            self._files = (path, path.with_name(f"{path.name}-wal"))
            self._identities = tuple(map(file_of, self._files))
        except BaseException:
            connection.close()
            raise

    def close(self) -> None:
        """Close; the last connection writes the log back into the file."""
        self._connection.close()

    def was_replaced(self) -> bool:
        """True if the file or its log was replaced or removed."""
        return tuple(map(file_of, self._files)) != self._identities

    def shrink(self) -> None:
        """Give free pages back to the file system."""
        if _number(self._connection, "PRAGMA freelist_count") == 0:
            return
        # A cursor would step only once, which frees one page.
        self._connection.executescript("PRAGMA incremental_vacuum")
        self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def used_bytes(self) -> int:
        pages = _number(self._connection, "PRAGMA page_count") - _number(
            self._connection, "PRAGMA freelist_count"
        )
        return pages * self._page_bytes

    def _query(self, question: str, values: Row | None = None) -> list[Any]:
        return self._connection.execute(question, values or {}).fetchall()

    def _execute(self, statement: str, rows: Sequence[Row]) -> int:
        return self._connection.executemany(statement, rows).rowcount if rows else 0

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._connection.execute("COMMIT")
        except BaseException:
            if self._connection.in_transaction:  # SQLite itself rolls back when the disk is full
                self._connection.execute("ROLLBACK")
            raise


# --- one writer per file ------------------------------------------------------------------------


class WriterLock:
    """A lock file alongside the database, released when the process ends. SQLite's own locks would
    exclude readers, and a lock on the database itself would release theirs.

    Args:
        owner: user id of the file, instead of this user's.
    """

    def __init__(
        self,
        path: Path,
        what: str = "a history",
        flag: str = "--history",
        owner: int | None = None,
    ) -> None:
        self._path = path.with_name(path.name + ".lock")
        self._locked = path
        self._owner = owner
        self._what, self._flag = what, flag
        self._lock: FileLock | None = None

    def acquire(self) -> None:
        """
        Raises:
            UnavailableError: another process, or another history of this one, holds it.
            OSError: the file cannot be created, or is no regular file of this user.
        """
        try:
            self._lock = FileLock(self._path, owner=self._owner)
        except LockedError as error:
            raise UnavailableError.of(
                where=str(self._locked),
                value=f"{self._what} in use by process {error.holder}",
                expected="one collector per path",
                remedy=f"Stop that process, or choose another path with {self._flag}.",
            ) from None

    def release(self) -> None:
        """Release the lock; the file stays, as it may be another process's by then."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None


# --- the tables and their version ---------------------------------------------------------------


def check_version(connection: sqlite3.Connection, *, where: str) -> None:
    """
    Raises:
        ConfigError: the database belongs to another program.
        UnavailableError: another version of this package wrote it.
        sqlite3.Error: the file cannot be read, or is damaged.
    """
    if _number(connection, "PRAGMA application_id") != _APPLICATION_ID:
        raise ConfigError.of(
            where=where,
            value="a database of another program",
            expected="a history of otel-straggler, or no file",
            remedy="Choose another file.",
        )
    version = _number(connection, "SELECT value FROM meta WHERE key = 'schema_version'")
    check_schema_version(version, where=where)


def _prepare(connection: sqlite3.Connection, *, where: str) -> None:
    """Create the tables in an empty file, unless another process just did."""
    connection.execute("BEGIN IMMEDIATE")
    with connection:
        if _is_empty(connection):
            connection.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
            for table in TABLES:
                connection.execute(table)
            version = str(SCHEMA_VERSION)
            connection.execute("INSERT INTO meta VALUES ('schema_version', ?)", (version,))
        check_version(connection, where=where)


def _is_empty(connection: sqlite3.Connection) -> bool:
    return _number(connection, "SELECT count(*) FROM sqlite_master") == 0


def _number(connection: sqlite3.Connection, question: str) -> int:
    with contextlib.closing(connection.execute(question)) as cursor:
        row = cursor.fetchone()
    try:
        return int(row[0])
    except (TypeError, ValueError):
        text = f"database disk image is malformed: {question} gives {row!r}"
        raise sqlite3.DatabaseError(text) from None

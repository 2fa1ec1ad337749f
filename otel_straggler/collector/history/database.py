"""The SQLite file of a history, open for writing: lock, tables, one transaction per call."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias

from otel_straggler.errors import ConfigError, UnavailableError
from otel_straggler.regular_files import create_regular, open_regular

try:
    import fcntl
except ImportError:  # Windows: SQLite's own locks remain
    fcntl = None  # type: ignore[assignment]

SCHEMA_VERSION: Final = 4
"""Incremented with every change of the tables or of their blobs."""
_APPLICATION_ID: Final = 0x6F747331
"""``PRAGMA application_id``: "ots1"."""
BUSY_S: Final = 5.0
"""Time that a statement waits for another program that holds the file."""
Row: TypeAlias = Mapping[str, Any]
"""Values by column."""
_WAL_LIMIT_BYTES: Final = 4 * 1024 * 1024
_TOUCH_NS: Final = 86_400 * 10**9
_ROOM: Final = 0.05
"""Part freed in addition, so that not every write must make room."""
_TABLES: Final = (
    "CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL)",
    """CREATE TABLE runs (
        run_id TEXT PRIMARY KEY, job TEXT NOT NULL,
        first_seen_ns INTEGER NOT NULL, last_seen_ns INTEGER NOT NULL)""",
    """CREATE TABLE state (
        key TEXT PRIMARY KEY, written_at_ns INTEGER NOT NULL, blob BLOB NOT NULL)""",
    """CREATE TABLE changes (
        id INTEGER PRIMARY KEY, run_id TEXT NOT NULL, seq INTEGER NOT NULL,
        at_ns INTEGER NOT NULL, written_at_ns INTEGER NOT NULL,
        subject_id TEXT NOT NULL, verdict TEXT NOT NULL, UNIQUE (run_id, seq))""",
    """CREATE TABLE windows (
        id INTEGER PRIMARY KEY, run_id TEXT NOT NULL, group_name TEXT NOT NULL,
        attempt INTEGER NOT NULL, first_step INTEGER, last_step INTEGER,
        start_ns INTEGER NOT NULL, end_ns INTEGER NOT NULL, written_at_ns INTEGER NOT NULL,
        ranks INTEGER NOT NULL, stragglers INTEGER NOT NULL, blob BLOB NOT NULL)""",
    "CREATE INDEX windows_of_run ON windows (run_id, id)",
    """CREATE TABLE summaries (
        run_id TEXT NOT NULL, group_name TEXT NOT NULL, written_at_ns INTEGER NOT NULL,
        blob BLOB NOT NULL, PRIMARY KEY (run_id, group_name))""",
)
_INSERT_RUN: Final = (
    "INSERT INTO runs VALUES (:run_id, :job, :now, :now) ON CONFLICT (run_id) DO UPDATE SET "
    "last_seen_ns = :now, job = CASE WHEN :job = '' THEN job ELSE :job END"
)
_INSERT: Final = {
    "changes": "INSERT INTO changes (run_id, seq, at_ns, written_at_ns, subject_id, verdict) "
    "VALUES (:run_id, (SELECT coalesce(max(seq) + 1, 0) FROM changes WHERE run_id = :run_id), "
    ":at_ns, :now, :subject_id, :verdict)",
    "windows": "INSERT INTO windows (run_id, group_name, attempt, first_step, last_step, "
    "start_ns, end_ns, written_at_ns, ranks, stragglers, blob) VALUES (:run_id, :group, :attempt, "
    ":first_step, :last_step, :start_ns, :end_ns, :now, :ranks, :stragglers, :blob)",
    "summaries": "INSERT OR REPLACE INTO summaries VALUES (:run_id, :group, :now, :blob)",
}


class Database:
    """Not thread-safe. Every method may raise sqlite3.Error and has then written nothing. A new
    file has mode 0600. ``is_durable``: what is written is on the disk, and survives a power cut.

    Raises:
        OSError: the path leads to no regular file, or to another user's.
        ConfigError, UnavailableError: see :func:`check_version`.
    """

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
            self._identities = tuple(map(_identity, self._files))
        except BaseException:
            connection.close()
            raise

    def close(self) -> None:
        """Close; the last connection writes the log back into the file."""
        self._connection.close()

    def was_replaced(self) -> bool:
        """True if the file or its log was replaced or removed."""
        return tuple(map(_identity, self._files)) != self._identities

    def write(
        self,
        *,
        windows: Sequence[Row],
        changes: Sequence[Row],
        states: Mapping[str, bytes],
        summaries: Sequence[Row],
        now_ns: int,
    ) -> None:
        with self._transaction():
            for key, blob in states.items():
                self._write_state(key, blob, now_ns)
            for table, rows in (
                ("changes", changes),
                ("windows", windows),
                ("summaries", summaries),
            ):
                for row in rows:
                    self._connection.execute(_INSERT_RUN, {"job": "", **row, "now": now_ns})
                    self._connection.execute(_INSERT[table], {**row, "now": now_ns})

    def drop_older(self, than_ns: int) -> bool:
        """Drop what was written before; True if there was any."""
        with self._transaction():
            gone = sum(
                self._connection.execute(
                    f"DELETE FROM {table} WHERE written_at_ns < ?",  # noqa: S608 - names of ours
                    (than_ns,),
                ).rowcount
                for table in ("windows", "changes", "state", "summaries")
            )
            self._connection.execute(
                "DELETE FROM runs WHERE last_seen_ns < ? AND NOT EXISTS "
                "(SELECT 1 FROM windows WHERE windows.run_id = runs.run_id) AND NOT EXISTS "
                "(SELECT 1 FROM changes WHERE changes.run_id = runs.run_id) AND NOT EXISTS "
                "(SELECT 1 FROM summaries WHERE summaries.run_id = runs.run_id)",
                (than_ns,),
            )
        return gone > 0

    def keep_within(self, max_bytes: int) -> list[str]:
        """Drop the oldest windows, then the oldest changes, then the oldest summaries, then the
        largest states, as needed; return the names of dropped states and summaries."""
        lost: list[str] = []
        if self.used_bytes() <= max_bytes:
            return lost
        target = int(max_bytes * (1 - _ROOM))
        # Sizes are upper bounds (+ two pages): several rounds are better than dropping too much.
        for table, size in (("windows", "length(blob)"), ("changes", "length(verdict)")):
            while self.used_bytes() > target and self._drop_oldest(table, size, target):
                pass
        for question in (
            "SELECT 'summaries', rowid, run_id FROM summaries ORDER BY written_at_ns, rowid",
            "SELECT 'state', rowid, key FROM state ORDER BY length(blob) DESC",
        ):
            while self.used_bytes() > max_bytes and (dropped := self._drop_one(question)):
                lost.append(dropped)
        self.shrink()
        return lost

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

    def oldest_at_ns(self) -> int | None:
        """Time when the oldest window or change was written."""
        question = (
            "SELECT min(t) FROM ("
            "SELECT (SELECT written_at_ns FROM windows ORDER BY id LIMIT 1) AS t UNION ALL "
            "SELECT (SELECT written_at_ns FROM changes ORDER BY id LIMIT 1))"
        )
        result: int | None = self._connection.execute(question).fetchone()[0]
        return result

    def states(self) -> list[tuple[str, bytes]]:
        """Keys and blobs, last written first."""
        question = "SELECT key, blob FROM state ORDER BY written_at_ns DESC, key"
        return self._connection.execute(question).fetchall()

    def drop_damaged_summaries(self, is_whole: Callable[[str, bytes], bool]) -> None:
        """Drop the summaries that are not ``is_whole(run id, blob)``."""
        question = "SELECT rowid, run_id, blob FROM summaries"
        with contextlib.closing(self._connection.execute(question)) as rows:
            damaged = [(number,) for number, run_id, blob in rows if not is_whole(run_id, blob)]
        with self._transaction():
            self._connection.executemany("DELETE FROM summaries WHERE rowid = ?", damaged)

    # --- rows -------------------------------------------------------------------------------

    def _write_state(self, key: str, blob: bytes, now_ns: int) -> None:
        """Write a state that has changed; refresh an unchanged one once a day."""
        question = "SELECT 1 FROM state WHERE key = ? AND written_at_ns > ? AND blob = ?"
        values = (key, now_ns - _TOUCH_NS, blob)
        if self._connection.execute(question, values).fetchone() is None:
            self._connection.execute(
                "INSERT OR REPLACE INTO state VALUES (?, ?, ?)", (key, now_ns, blob)
            )

    def _drop_oldest(self, table: str, size: str, target: int) -> bool:
        """Drop as many of the oldest rows as hold the excess; False if there were none."""
        excess = self.used_bytes() - target
        last: int | None = None
        question = f"SELECT id, {size} + 8192 FROM {table} ORDER BY id"  # noqa: S608 - names of ours
        with contextlib.closing(self._connection.execute(question)) as rows:
            while excess > 0 and (row := rows.fetchone()) is not None:
                last = row[0]
                excess -= row[1]
        if last is None:
            return False
        with self._transaction():
            self._connection.execute(f"DELETE FROM {table} WHERE id <= ?", (last,))  # noqa: S608
        return True

    def _drop_one(self, question: str) -> str:
        """Drop the first row that ``question`` gives as table, rowid, and name; return its name."""
        row = self._connection.execute(question).fetchone()
        if row is None:
            return ""
        table, number, name = row
        with self._transaction():
            self._connection.execute(f"DELETE FROM {table} WHERE rowid = ?", (number,))  # noqa: S608
        return f"{table} {name}"

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


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        result = path.stat()
    except OSError:
        return None
    return result.st_dev, result.st_ino


# --- one writer per file ------------------------------------------------------------------------


class WriterLock:
    """A lock file alongside the database, released when the process ends. SQLite's own locks would
    exclude readers, and a lock on the database itself would release theirs."""

    def __init__(self, path: Path, what: str = "a history", flag: str = "--history") -> None:
        self._path = path.with_name(path.name + ".lock")
        self._locked = path
        self._what, self._flag = what, flag
        self._file: int | None = None

    def acquire(self) -> None:
        """
        Raises:
            UnavailableError: another process, or another history of this one, holds it.
            OSError: the file cannot be created, or is no regular file of this user.
        """
        file = open_regular(self._path, os.O_RDWR | os.O_CREAT)
        try:
            if fcntl is not None:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(file, 0)
            os.pwrite(file, str(os.getpid()).encode(), 0)
        except BlockingIOError:
            holder = os.pread(file, 20, 0).decode("ascii", "replace") or "?"
            os.close(file)
            raise UnavailableError.of(
                where=str(self._locked),
                value=f"{self._what} in use by process {holder}",
                expected="one collector per path",
                remedy=f"Stop that process, or choose another path with {self._flag}.",
            ) from None
        except BaseException:
            os.close(file)
            raise
        self._file = file

    def release(self) -> None:
        """Release the lock; the file stays, as it may be another process's by then."""
        if self._file is not None:
            os.close(self._file)
            self._file = None


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
    result = _number(connection, "SELECT value FROM meta WHERE key = 'schema_version'")
    if result != SCHEMA_VERSION:
        age = "newer" if result > SCHEMA_VERSION else "older"
        raise UnavailableError.of(
            where=where,
            value=f"schema version {result}",
            expected=f"version {SCHEMA_VERSION}",
            remedy=f"A {age} otel-straggler wrote it: use that one, or choose another file.",
        )


def _prepare(connection: sqlite3.Connection, *, where: str) -> None:
    """Create the tables in an empty file, unless another process just did."""
    connection.execute("BEGIN IMMEDIATE")
    with connection:
        if _is_empty(connection):
            connection.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
            for table in _TABLES:
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

"""The tables of a history, their version, and how an older file becomes a newer one."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping
from contextlib import closing
from typing import Final

from otel_straggler.errors import ConfigError, UnavailableError, describe

SCHEMA_VERSION: Final = 2
"""1: without ``summaries``."""
APPLICATION_ID: Final = 0x6F747331
"""In the head of the file (``PRAGMA application_id``): "ots1"."""

Migration = Callable[[sqlite3.Connection], None]
_SUMMARIES: Final = """CREATE TABLE summaries (
        run_id TEXT NOT NULL, group_name TEXT NOT NULL, written_at_ns INTEGER NOT NULL,
        blob BLOB NOT NULL, PRIMARY KEY (run_id, group_name))"""
_TABLES: Final = (
    "CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL)",
    """CREATE TABLE runs (
        run_id TEXT PRIMARY KEY, job TEXT NOT NULL,
        first_seen_ns INTEGER NOT NULL, last_seen_ns INTEGER NOT NULL)""",
    """CREATE TABLE state (
        key TEXT PRIMARY KEY, written_at_ns INTEGER NOT NULL,
        digest BLOB NOT NULL, blob BLOB NOT NULL)""",
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
    _SUMMARIES,
)


def _add_summaries(connection: sqlite3.Connection) -> None:
    connection.execute(_SUMMARIES)


MIGRATIONS: Final[Mapping[int, Migration]] = {1: _add_summaries}
"""By the version that it starts from; each makes one version more, inside one transaction."""


def prepare(
    connection: sqlite3.Connection,
    *,
    where: str,
    version: int = SCHEMA_VERSION,
    migrations: Mapping[int, Migration] = MIGRATIONS,
) -> None:
    """Make the tables in an empty file, or bring an older file to ``version``.

    Raises:
        ConfigError: the database belongs to another program.
        UnavailableError: it is of a newer version, or of one from which no way leads here.
        sqlite3.Error: the file cannot be read or written, or is damaged.
    """
    connection.execute("BEGIN IMMEDIATE")
    with connection:
        if _is_empty(connection):
            _create(connection, version)
        found = check_version(connection, where=where, newest=version)
        for step in range(found, version):
            if step not in migrations:
                raise _no_way(where, step, version)
            migrations[step](connection)
            _note_version(connection, step + 1)


def refuse_others(connection: sqlite3.Connection, *, where: str) -> None:
    """Look, without writing, whether the file may be used: it is empty, or a history of ours.

    Raises:
        ConfigError, UnavailableError, sqlite3.Error: as :func:`prepare`.
    """
    if not _is_empty(connection):
        check_version(connection, where=where)


def check_version(
    connection: sqlite3.Connection, *, where: str, newest: int = SCHEMA_VERSION
) -> int:
    """The version of the file, if this is a history and not a newer one.

    Raises:
        ConfigError, UnavailableError, sqlite3.Error: as :func:`prepare`.
    """
    if _number(connection, "PRAGMA application_id") != APPLICATION_ID:
        raise ConfigError(
            describe(
                where=where,
                value="a database of another program",
                expected="a history of otel-straggler, or no file",
                remedy="Name another file.",
            )
        )
    found = _number(connection, "SELECT value FROM meta WHERE key = 'schema_version'")
    if found > newest:
        raise UnavailableError(
            describe(
                where=where,
                value=f"schema version {found}",
                expected=f"{newest} at most",
                remedy="A newer otel-straggler wrote it: use that one, or name another file.",
            )
        )
    return found


def _is_empty(connection: sqlite3.Connection) -> bool:
    return _number(connection, "SELECT count(*) FROM sqlite_master") == 0


def _create(connection: sqlite3.Connection, version: int) -> None:
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    for table in _TABLES:
        connection.execute(table)
    _note_version(connection, version)


def _note_version(connection: sqlite3.Connection, version: int) -> None:
    text = "INSERT OR REPLACE INTO meta VALUES ('schema_version', ?)"
    connection.execute(text, (str(version),))


def _number(connection: sqlite3.Connection, question: str) -> int:
    with closing(connection.execute(question)) as cursor:
        row = cursor.fetchone()
    try:
        return int(row[0])
    except (TypeError, ValueError):
        text = f"database disk image is malformed: {question} gives {row!r}"
        raise sqlite3.DatabaseError(text) from None


def _no_way(where: str, found: int, version: int) -> UnavailableError:
    return UnavailableError(
        describe(
            where=where,
            value=f"schema version {found}",
            expected=f"one from which a way leads to {version}",
            remedy="Name another file.",
        )
    )

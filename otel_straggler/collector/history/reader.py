"""Read-only access to a history, over its own connection."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

from otel_straggler.collector.history.codec import (
    WindowSummary,
    decode_blob,
    read_verdict,
    read_window,
)
from otel_straggler.collector.history.database import check_version
from otel_straggler.collector.history.failures import REASONS, PostgresError, reason_of
from otel_straggler.collector.history.postgres import PostgresReader, is_postgres
from otel_straggler.errors import InputError, UnavailableError
from otel_straggler.model.verdict import Verdict
from otel_straggler.secret import reveal, without_secrets

_BUSY_S = 5.0
_MIN_BYTES = 512
"""Smallest page of SQLite."""


@dataclass(frozen=True, slots=True)
class RunEntry:
    """A run; times are of the collector that wrote it. ``collector``: in a database of several, the
    one that heard from the run last."""

    run_id: str
    job: str
    first_seen_ns: int
    last_seen_ns: int
    windows: int
    changes: int
    collector: str = ""


@dataclass(frozen=True, slots=True)
class WindowEntry:
    """A window without its tables; see :meth:`HistoryReader.window`."""

    id: int
    group: str
    attempt: int
    first_step: int | None
    last_step: int | None
    start_ns: int
    end_ns: int
    ranks: int
    stragglers: int


class HistoryReader:
    """Reads while collectors write; each query is consistent.

    Args:
        path: of a file, or the URL of a PostgreSQL database.
        busy_s: time to wait for a program that holds the file, or for the server.

    Raises:
        ConfigError, UnavailableError: there is no such file, it is no history, or a newer one.
        InputError: (also of every method) the file is damaged.
    """

    def __init__(self, path: Path | str, *, busy_s: float = _BUSY_S) -> None:
        self._path = without_secrets(reveal(path)) if is_postgres(path) else path
        with translated(self._path):
            self._source: _Source
            if is_postgres(path):
                self._source = PostgresReader(path, timeout_s=busy_s)
            else:
                self._source = _File(Path(path), busy_s)

    def __enter__(self) -> HistoryReader:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        self._source.close()

    def runs(self) -> list[RunEntry]:
        rows = self._query(
            "SELECT run_id, job, first_seen_ns, last_seen_ns, "
            "(SELECT count(*) FROM windows WHERE windows.run_id = runs.run_id), "
            "(SELECT count(*) FROM changes WHERE changes.run_id = runs.run_id), "
            "coalesce((SELECT collector FROM summaries WHERE summaries.run_id = runs.run_id "
            "ORDER BY heard_at_ns DESC LIMIT 1), '') "
            "FROM runs ORDER BY last_seen_ns, run_id"
        )
        return [RunEntry(*row) for row in rows]

    def windows(self, run_id: str) -> list[WindowEntry]:
        """Windows of a run, in the order in which they were closed."""
        rows = self._query(
            "SELECT id, group_name, attempt, first_step, last_step, start_ns, end_ns, ranks, "
            "stragglers FROM windows WHERE run_id = ? ORDER BY id",
            run_id,
        )
        return [WindowEntry(*row) for row in rows]

    def window(self, window_id: int) -> WindowSummary | None:
        """Medians and scores of a window; None if it has been dropped."""
        rows = self._query("SELECT blob FROM windows WHERE id = ?", window_id)
        if not rows:
            return None
        where = f"{self._path}: window {window_id}"
        return read_window(decode_blob(rows[0][0], where=where), where=where)

    def summaries(self, run_id: str) -> dict[str, int]:
        """Groups with a summary, and the times (ns) at which those were written."""
        question = "SELECT group_name, written_at_ns FROM summaries WHERE run_id = ? ORDER BY 1"
        return dict(self._query(question, run_id))

    def summary(self, run_id: str, group: str) -> Any:
        """The value of :class:`Summary` of a run and group; None without one."""
        question = "SELECT blob FROM summaries WHERE run_id = ? AND group_name = ?"
        rows = self._query(question, run_id, group)
        return decode_blob(rows[0][0], where=f"{self._path}: summary {run_id}") if rows else None

    def changes(self, run_id: str) -> list[Verdict]:
        question = "SELECT id, verdict FROM changes WHERE run_id = ? ORDER BY seq"
        return [
            read_verdict(text, where=f"{self._path}: change {number}")
            for number, text in self._query(question, run_id)
        ]

    def _query(self, question: str, *values: str | int) -> list[Any]:
        with translated(self._path):
            return self._source.query(question, values)


class _Source(Protocol):
    def query(self, question: str, values: Sequence[str | int]) -> list[Any]: ...

    def close(self) -> None: ...


class _File:
    """An SQLite file."""

    def __init__(self, path: Path, busy_s: float) -> None:
        self._path = path
        self._busy_s = busy_s
        self._connection = self._opened()

    def query(self, question: str, values: Sequence[str | int]) -> list[Any]:
        return self._connection.execute(question, values).fetchall()

    def close(self) -> None:
        self._connection.close()

    def _opened(self) -> sqlite3.Connection:
        if not self._path.is_file():
            raise _unreadable(self._path, "a folder" if self._path.is_dir() else "no file")
        if self._path.stat().st_size < _MIN_BYTES:
            raise _unreadable(self._path, "an empty file, or the beginning of one")
        try:
            return self._connected("mode=ro")
        except sqlite3.OperationalError:
            # Perhaps a copy in a read-only folder, where SQLite cannot create its index.
            if self._path.with_name(self._path.name + "-wal").exists():
                raise
            return self._connected("mode=ro&immutable=1")

    def _connected(self, how: str) -> sqlite3.Connection:
        address = f"{self._path.resolve().as_uri()}?{how}"
        connection = sqlite3.connect(address, uri=True, timeout=self._busy_s, isolation_level=None)
        try:
            check_version(connection, where=str(self._path))
        except BaseException:
            connection.close()
            raise
        return connection


@contextmanager
def translated(path: Path | str) -> Iterator[None]:
    """Errors of the database as those that :class:`HistoryReader` raises."""
    try:
        yield
    except PostgresError as error:
        raise _unreadable(path, f"{REASONS[error.reason]} ({error})") from None
    except sqlite3.Error as error:
        reason = reason_of(error)
        if reason == "damaged":
            raise InputError.of(
                where=str(path),
                value=f"a file that SQLite cannot read ({error})",
                expected="a history of otel-straggler",
                remedy="Check the path. A collector moves a damaged file aside.",
            ) from None
        raise _unreadable(path, f"{REASONS[reason]} ({error})") from None


def _unreadable(path: Path | str, value: str) -> UnavailableError:
    return UnavailableError.of(
        where=str(path),
        value=value,
        expected="a history that can be read",
        remedy="Check where it is, its permissions, and the programs that use it.",
    )

"""One PostgreSQL database for the histories of several collectors, by psycopg.

Tables are in the schema ``otel_straggler``. Each collector holds an advisory lock on its name.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeGuard

from otel_straggler.collector.history.failures import PostgresError, Reason
from otel_straggler.collector.history.tables import (
    SCHEMA_VERSION,
    TABLES,
    Row,
    Tables,
    check_schema_version,
)
from otel_straggler.errors import ConfigError, UnavailableError
from otel_straggler.secret import reveal, without_secrets

if TYPE_CHECKING:
    import psycopg

SCHEMA: Final = "otel_straggler"
_LOCK: Final = 0x6F747331
"""First half of our advisory locks: "ots1"."""
_CONNECT_S: Final = 5.0
_NAME: Final = re.compile(r"(?<!:):([a-z_]+)")
_PREFIXES: Final = ("postgresql://", "postgres://")
_DEFAULTS: Final[dict[str, str | int]] = {
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 25_000,
}
"""So that a server that is gone without a word is noticed in half a minute."""
_SESSION: Final = {
    "search_path": SCHEMA,
    "statement_timeout": "60s",
    "lock_timeout": "30s",
    "idle_in_transaction_session_timeout": "60s",
    "tcp_keepalives_idle": "10",
    "tcp_keepalives_interval": "5",
    "tcp_keepalives_count": "3",
}
"""The last three: a server that lost us gives the lock back in half a minute."""
_REASONS: Final[tuple[tuple[str, Reason], ...]] = (
    ("53100", "disk_full"),
    ("25006", "read_only"),
    ("42501", "read_only"),
    ("40", "locked"),
    ("55P03", "locked"),
    ("57014", "locked"),
    ("22", "error"),
    ("23", "error"),
)
"""Beginnings of SQLSTATEs."""


def is_postgres(path: Path | str) -> TypeGuard[str]:
    """Whether a history is in PostgreSQL, not in a file."""
    return isinstance(path, str) and reveal(path).startswith(_PREFIXES)


def connect(
    url: str, *, timeout_s: float = _CONNECT_S, session: Mapping[str, str] | None = None
) -> Any:
    """A psycopg connection, on which each statement is a transaction of its own.

    Args:
        url: passwords may also come from PGPASSWORD, ~/.pgpass, or another place of libpq.
        session: settings of the server for this connection.

    Raises:
        ConfigError: it is no URL of a database.
        UnavailableError: psycopg is not installed.
        PostgresError: the server does not answer, or refuses.
    """
    try:
        import psycopg
        from psycopg import conninfo
    except ImportError as error:
        msg = (
            "A history in PostgreSQL needs the package psycopg, which is not installed. "
            "Install it with: pip install 'otel-straggler[postgres]'"
        )
        raise UnavailableError(msg) from error
    text = reveal(url)
    try:
        given = conninfo.conninfo_to_dict(text)
    except psycopg.ProgrammingError as error:
        raise ConfigError.of(
            "--history",
            without_secrets(text),
            "postgresql://HOST:PORT/DATABASE",
            f"{error}".strip() + ".",
        ) from None
    defaults = {**_DEFAULTS, "connect_timeout": max(2, round(timeout_s)),
                "application_name": "otel-straggler"}  # fmt: skip
    options = {key: value for key, value in defaults.items() if key not in given}
    with _translated():
        connection = psycopg.connect(text, autocommit=True, **options)  # type: ignore[arg-type]
        try:
            for name, value in {**_SESSION, **(session or {})}.items():
                connection.execute("SELECT set_config(%s, %s, false)", (name, value))
        except BaseException:
            connection.close()
            raise
    return connection


@contextlib.contextmanager
def _translated() -> Iterator[None]:
    import psycopg

    try:
        yield
    except psycopg.Error as error:
        text = " ".join(without_secrets(str(error)).split()) or type(error).__name__
        code = error.sqlstate or ""
        reasons = (reason for head, reason in _REASONS if code.startswith(head))
        reason: Reason = next(reasons, "unreachable")
        is_lasting = isinstance(error, psycopg.DataError | psycopg.IntegrityError)
        raise PostgresError(text, reason, is_lasting=is_lasting) from error


class NameTakenError(UnavailableError):
    """Another collector that is running has the name."""


class PostgresReader:
    """A connection that only reads; see :class:`HistoryReader`."""

    def __init__(self, url: str, *, timeout_s: float) -> None:
        self._connection = connect(
            url, timeout_s=timeout_s, session={"default_transaction_read_only": "on"}
        )
        try:
            _check_version(self._connection, where=without_secrets(reveal(url)))
        except BaseException:
            self._connection.close()
            raise

    def query(self, question: str, values: Sequence[str | int]) -> list[Any]:
        """Rows; ``?`` stands for each value. May raise PostgresError."""
        with _translated():
            rows: list[Any] = self._connection.execute(
                question.replace("?", "%s"), [_text(value) for value in values]
            ).fetchall()
        return rows

    def close(self) -> None:
        self._connection.close()


class PostgresTables(Tables):
    """Every method may raise PostgresError and has then written nothing, except for a COMMIT that
    got no answer: see :meth:`has_batch`.

    Raises:
        UnavailableError: another version of this package wrote it, or another process has the name.
    """

    row_bytes = 200

    def __init__(self, url: str, collector: str, *, is_durable: bool) -> None:
        self.collector = collector
        self._where = without_secrets(reveal(url))
        commit = {"synchronous_commit": "on"} if is_durable else {}
        self._connection: psycopg.Connection[Any] = connect(url, session=commit)
        try:
            with _translated():
                self._prepare()
                self._lock()
        except BaseException:
            self._connection.close()
            raise

    def close(self) -> None:
        with contextlib.suppress(Exception):
            self._connection.close()

    def has_batch(self, name: str) -> bool:
        """Whether the last batch of this collector has the name."""
        rows = self._query("SELECT value FROM meta WHERE key = :key", {"key": self._batch_key})
        return bool(rows) and rows[0][0] == name

    def write_once(self, name: str, rows: Row) -> None:
        """Write, and leave the name."""
        mark = (
            "INSERT INTO meta (key, value) VALUES (:key, :value) "
            "ON CONFLICT (key) DO UPDATE SET value = excluded.value"
        )
        with self._transaction():
            self._execute(mark, [{"key": self._batch_key, "value": name}])
            self.write(**rows)

    def used_bytes(self) -> int:
        """Of values and rows. Tables take more on the disk, until they are vacuumed."""
        parts = (
            ("windows", "blob"),
            ("changes", "verdict"),
            ("summaries", "blob"),
            ("state", "blob"),
        )
        sums = " UNION ALL ".join(
            f"SELECT coalesce(sum(length({column}) + {self.row_bytes}), 0) AS n FROM {table}"  # noqa: S608 - names of ours
            for table, column in parts
        )
        return int(self._query(f"SELECT sum(n) FROM ({sums}) AS parts")[0][0])  # noqa: S608

    def size_bytes(self) -> int:
        """On the disk, with indexes."""
        question = (
            "SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0) FROM pg_class c JOIN "
            "pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = :schema AND c.relkind = 'r'"
        )
        return int(self._query(question, {"schema": SCHEMA})[0][0])

    @property
    def _batch_key(self) -> str:
        return f"batch/{self.collector}"

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        with _translated(), self._connection.transaction():
            yield

    def _query(self, question: str, values: Row | None = None) -> list[Any]:
        with _translated():
            return self._connection.execute(*_as_psycopg(question, values or {})).fetchall()

    def _execute(self, statement: str, rows: Sequence[Row]) -> int:
        if not rows:
            return 0
        with _translated(), self._connection.cursor() as cursor:
            sent = [_as_psycopg(statement, row)[1] for row in rows]
            cursor.executemany(_as_psycopg(statement, {})[0], sent)
            return cursor.rowcount

    def _prepare(self) -> None:
        """Create the tables, unless another collector just did."""
        with self._connection.transaction():
            self._connection.execute("SELECT pg_advisory_xact_lock(%s, 0)", (_LOCK,))
            if self._query("SELECT to_regnamespace(:name)", {"name": SCHEMA})[0][0] is None:
                self._connection.execute(f"CREATE SCHEMA {SCHEMA}")
            if self._query("SELECT to_regclass(:name)", {"name": f"{SCHEMA}.meta"})[0][0] is None:
                self._connection.execute(_table(TABLES[0]))
                version = {"version": str(SCHEMA_VERSION)}
                self._execute("INSERT INTO meta VALUES ('schema_version', :version)", [version])
            _check_version(self._connection, where=self._where)
            for table in TABLES:
                self._connection.execute(_table(table))

    def _lock(self) -> None:
        question = "SELECT pg_try_advisory_lock(%s, hashtext(%s))"
        row = self._connection.execute(question, (_LOCK, self.collector)).fetchone()
        if not (row and row[0]):
            raise NameTakenError.of(
                where=self._where,
                value=f"a history in use by another collector named {self.collector!r}",
                expected="one collector per name",
                remedy="Stop that process, or name this one in metrics.collector_id.",
            )


def _check_version(connection: Any, *, where: str) -> None:
    """
    Raises:
        UnavailableError: another version of this package wrote it, or nobody.
    """
    with _translated():
        question = "SELECT to_regclass(%s)"
        if connection.execute(question, (f"{SCHEMA}.meta",)).fetchone()[0] is None:
            raise UnavailableError.of(
                where,
                "a database without a history",
                f"one to which a collector has written (schema {SCHEMA})",
                "Name it in --history of a collector first.",
            )
        question = "SELECT value FROM meta WHERE key = 'schema_version'"
        row = connection.execute(question).fetchone()
    check_schema_version(int(row[0]) if row else 0, where=where)


def _as_psycopg(statement: str, values: Row) -> tuple[str, dict[str, Any]]:
    """
    >>> _as_psycopg("SELECT 1 FROM runs WHERE run_id = :run_id", {"run_id": "a"})
    ('SELECT 1 FROM runs WHERE run_id = %(run_id)s', {'run_id': 'a'})
    """
    return _NAME.sub(r"%(\1)s", statement), {key: _text(value) for key, value in values.items()}


def _text(value: Any) -> Any:
    """PostgreSQL has no NUL in texts."""
    return value.replace("\0", "\ufffd") if isinstance(value, str) else value


def _table(statement: str) -> str:
    """In PostgreSQL's types."""
    identity = "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY"
    statement = statement.replace("INTEGER PRIMARY KEY", identity)
    return statement.replace("INTEGER", "BIGINT").replace("BLOB", "BYTEA")

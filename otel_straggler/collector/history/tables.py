"""The tables of a history, in SQL that SQLite and PostgreSQL share."""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from otel_straggler.errors import UnavailableError

SCHEMA_VERSION: Final = 5
"""Incremented with every change of the tables or of their blobs."""
Row: TypeAlias = Mapping[str, Any]
"""Values by column."""
_ROOM: Final = 0.05
"""Part freed in addition, so that not every write must make room."""
_AT_ONCE: Final = 1_000
"""Rows dropped in one transaction."""
TABLES: Final = (
    "CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value TEXT NOT NULL)",
    """CREATE TABLE IF NOT EXISTS runs (
        run_id TEXT PRIMARY KEY, job TEXT NOT NULL,
        first_seen_ns INTEGER NOT NULL, last_seen_ns INTEGER NOT NULL)""",
    """CREATE TABLE IF NOT EXISTS state (
        collector TEXT NOT NULL, key TEXT NOT NULL, written_at_ns INTEGER NOT NULL,
        blob BLOB NOT NULL, PRIMARY KEY (collector, key))""",
    """CREATE TABLE IF NOT EXISTS changes (
        id INTEGER PRIMARY KEY, run_id TEXT NOT NULL, seq INTEGER NOT NULL,
        at_ns INTEGER NOT NULL, written_at_ns INTEGER NOT NULL,
        subject_id TEXT NOT NULL, verdict TEXT NOT NULL, UNIQUE (run_id, seq))""",
    """CREATE TABLE IF NOT EXISTS windows (
        id INTEGER PRIMARY KEY, run_id TEXT NOT NULL, group_name TEXT NOT NULL,
        attempt INTEGER NOT NULL, first_step INTEGER, last_step INTEGER,
        start_ns INTEGER NOT NULL, end_ns INTEGER NOT NULL, written_at_ns INTEGER NOT NULL,
        ranks INTEGER NOT NULL, stragglers INTEGER NOT NULL, blob BLOB NOT NULL)""",
    "CREATE INDEX IF NOT EXISTS windows_of_run ON windows (run_id, id)",
    """CREATE TABLE IF NOT EXISTS summaries (
        run_id TEXT NOT NULL, group_name TEXT NOT NULL, collector TEXT NOT NULL,
        heard_at_ns INTEGER NOT NULL, written_at_ns INTEGER NOT NULL, blob BLOB NOT NULL,
        PRIMARY KEY (run_id, group_name))""",
)
_PUT_RUN: Final = (
    "INSERT INTO runs (run_id, job, first_seen_ns, last_seen_ns) VALUES (:run_id, :job, :now, :now)"
    " ON CONFLICT (run_id) DO UPDATE SET last_seen_ns = excluded.last_seen_ns, "
    "job = CASE WHEN excluded.job = '' THEN runs.job ELSE excluded.job END"
)
_PUT: Final = {
    "changes": "INSERT INTO changes (run_id, seq, at_ns, written_at_ns, subject_id, verdict) "
    "VALUES (:run_id, (SELECT coalesce(max(seq) + 1, 0) FROM changes WHERE run_id = :run_id), "
    ":at_ns, :now, :subject_id, :verdict)",
    "windows": "INSERT INTO windows (run_id, group_name, attempt, first_step, last_step, "
    "start_ns, end_ns, written_at_ns, ranks, stragglers, blob) VALUES (:run_id, :group, :attempt, "
    ":first_step, :last_step, :start_ns, :end_ns, :now, :ranks, :stragglers, :blob)",
    # Of a run that moves, the shard that has left it may write later than the one that has it.
    "summaries": "INSERT INTO summaries (run_id, group_name, collector, heard_at_ns, "
    "written_at_ns, blob) VALUES (:run_id, :group, :collector, :heard_at_ns, :now, :blob) "
    "ON CONFLICT (run_id, group_name) DO UPDATE SET collector = excluded.collector, "
    "heard_at_ns = excluded.heard_at_ns, written_at_ns = excluded.written_at_ns, "
    "blob = excluded.blob WHERE summaries.heard_at_ns <= excluded.heard_at_ns "
    "OR summaries.collector = excluded.collector",
}
_PUT_STATE: Final = (
    "INSERT INTO state (collector, key, written_at_ns, blob) VALUES (:collector, :key, :now, :blob)"
    " ON CONFLICT (collector, key) DO UPDATE SET written_at_ns = excluded.written_at_ns, "
    "blob = excluded.blob WHERE state.blob <> excluded.blob "
    "OR state.written_at_ns <= excluded.written_at_ns - 86400000000000"
)
"""Writes a state that has changed; refreshes an unchanged one once a day."""
_DROP_RUNS: Final = (
    "DELETE FROM runs WHERE last_seen_ns < :than_ns AND NOT EXISTS "
    "(SELECT 1 FROM windows WHERE windows.run_id = runs.run_id) AND NOT EXISTS "
    "(SELECT 1 FROM changes WHERE changes.run_id = runs.run_id) AND NOT EXISTS "
    "(SELECT 1 FROM summaries WHERE summaries.run_id = runs.run_id)"
)


class Tables(ABC):
    """Not thread-safe. A method that raises has written nothing.

    Attributes:
        collector: whose states these are. Each of several that share a database has its own;
            windows, changes, and summaries belong to the run, whoever writes them.
        row_bytes: at most so much of a row is not in its text or blob.
    """

    collector = ""
    row_bytes = 0

    @abstractmethod
    def close(self) -> None: ...

    @abstractmethod
    def used_bytes(self) -> int:
        """Compared with the limit of the history."""

    @abstractmethod
    def _transaction(self) -> contextlib.AbstractContextManager[Any]: ...

    @abstractmethod
    def _query(self, question: str, values: Row | None = None) -> list[Any]:
        """Rows."""

    @abstractmethod
    def _execute(self, statement: str, rows: Sequence[Row]) -> int:
        """Execute once for each row; returns the number of changed rows."""

    def shrink(self) -> None:  # noqa: B027 - PostgreSQL does it
        """Give room that was freed back."""

    def write(
        self,
        *,
        windows: Sequence[Row],
        changes: Sequence[Row],
        states: Mapping[str, bytes],
        summaries: Sequence[Row],
        now_ns: int,
    ) -> None:
        common = {"now": now_ns, "collector": self.collector}
        parts = {"changes": changes, "windows": windows, "summaries": summaries}
        with self._transaction():
            rows = [{"key": key, "blob": blob, **common} for key, blob in states.items()]
            self._execute(_PUT_STATE, rows)
            jobs: dict[str, str] = {}
            for row in (row for part in parts.values() for row in part):
                jobs[row["run_id"]] = row.get("job") or jobs.get(row["run_id"], "")
            # In order: two collectors never wait for each other's runs.
            runs = [{"run_id": run_id, "job": jobs[run_id], **common} for run_id in sorted(jobs)]
            self._execute(_PUT_RUN, runs)
            for table, part in parts.items():
                self._execute(_PUT[table], [{**row, **common} for row in part])

    def drop_older(self, than_ns: int) -> bool:
        """Drop what was written before; True if there was any."""
        than = [{"than_ns": than_ns}]
        with self._transaction():
            gone = sum(
                self._execute(f"DELETE FROM {table} WHERE written_at_ns < :than_ns", than)  # noqa: S608 - names of ours
                for table in ("windows", "changes", "state", "summaries")
            )
            self._execute(_DROP_RUNS, than)
        return gone > 0

    def keep_within(self, max_bytes: int) -> list[str]:
        """Drop the oldest windows, then the oldest changes, then the oldest summaries, then the
        largest states, as needed; return the names of dropped states and summaries."""
        lost: list[str] = []
        if self.used_bytes() <= max_bytes:
            return lost
        target = int(max_bytes * (1 - _ROOM))
        # Sizes are upper bounds: several rounds are better than dropping too much.
        for table, size in (("windows", "length(blob)"), ("changes", "length(verdict)")):
            while self.used_bytes() > target and self._drop_oldest(table, size, target):
                pass
        for drop in (self._drop_oldest_summary, self._drop_largest_state):
            while self.used_bytes() > max_bytes and (dropped := drop()):
                lost.append(dropped)
        self.shrink()
        return lost

    def oldest_at_ns(self) -> int | None:
        """Time when the oldest window or change was written."""
        question = (
            "SELECT min(t) FROM ("
            "SELECT (SELECT written_at_ns FROM windows ORDER BY id LIMIT 1) AS t UNION ALL "
            "SELECT (SELECT written_at_ns FROM changes ORDER BY id LIMIT 1)) AS oldest"
        )
        result: int | None = self._query(question)[0][0]
        return result

    def states(self) -> list[tuple[str, bytes]]:
        """Keys and blobs of this collector, last written first."""
        question = (
            "SELECT key, blob FROM state WHERE collector = :collector "
            "ORDER BY written_at_ns DESC, key"
        )
        return self._query(question, {"collector": self.collector})

    def drop_damaged_summaries(self, is_whole: Callable[[str, bytes], bool]) -> None:
        """Drop the summaries of this collector that are not ``is_whole(run id, blob)``."""
        question = "SELECT run_id, group_name FROM summaries WHERE collector = :collector"
        for run_id, group in self._query(question, {"collector": self.collector}):
            key = {"run_id": run_id, "group": group}
            where = "FROM summaries WHERE run_id = :run_id AND group_name = :group"
            if any(
                not is_whole(run_id, blob) for (blob,) in self._query(f"SELECT blob {where}", key)
            ):
                with self._transaction():
                    self._execute(f"DELETE {where}", [key])

    # --- rows -------------------------------------------------------------------------------

    def _drop_oldest(self, table: str, size: str, target: int) -> bool:
        """Drop as many of the oldest rows as hold the excess; False if there were none."""
        excess = self.used_bytes() - target
        last: int | None = None
        question = f"SELECT id, {size} FROM {table} ORDER BY id LIMIT {_AT_ONCE}"  # noqa: S608 - names of ours
        for number, n_bytes in self._query(question):
            if excess <= 0:
                break
            last = number
            excess -= n_bytes + self.row_bytes
        if last is None:
            return False
        with self._transaction():
            self._execute(f"DELETE FROM {table} WHERE id <= :last", [{"last": last}])  # noqa: S608
        return True

    def _drop_oldest_summary(self) -> str:
        """Its name; empty if there is none."""
        order = "ORDER BY written_at_ns, run_id, group_name LIMIT 1"
        for run_id, group in self._query(f"SELECT run_id, group_name FROM summaries {order}"):  # noqa: S608
            statement = "DELETE FROM summaries WHERE run_id = :run_id AND group_name = :group"
            with self._transaction():
                self._execute(statement, [{"run_id": run_id, "group": group}])
            return f"summaries {run_id}"
        return ""

    def _drop_largest_state(self) -> str:
        order = "ORDER BY length(blob) DESC LIMIT 1"
        for collector, key in self._query(f"SELECT collector, key FROM state {order}"):  # noqa: S608
            statement = "DELETE FROM state WHERE collector = :collector AND key = :key"
            with self._transaction():
                self._execute(statement, [{"collector": collector, "key": key}])
            return f"state {key}"
        return ""


def check_schema_version(result: int, *, where: str) -> None:
    """
    Raises:
        UnavailableError: another version of this package wrote it.
    """
    if result == SCHEMA_VERSION:
        return
    age = "newer" if result > SCHEMA_VERSION else "older"
    raise UnavailableError.of(
        where=where,
        value=f"schema version {result}",
        expected=f"version {SCHEMA_VERSION}",
        remedy=f"A {age} otel-straggler wrote it: use that one, or choose another history.",
    )

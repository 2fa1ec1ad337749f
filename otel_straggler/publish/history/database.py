"""The file of a history, open for writing: one transaction a call, and never larger than told."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

from otel_straggler.publish.history import schema
from otel_straggler.publish.history.blobs import digest_of
from otel_straggler.publish.history.rows import ChangeRow, SummaryRow, WindowRow

BUSY_S: Final = 5.0
"""How long a statement waits for another program that holds the file."""
_WAL_LIMIT_BYTES: Final = 4 * 1024 * 1024
_TOUCH_NS: Final = 86_400 * 10**9
_ROOM: Final = 0.05
"""Freed beyond what is needed, so that not every write must make room."""


class Database:
    """Not thread-safe. Every method may raise sqlite3.Error; then nothing of it was written.

    Raises:
        ConfigError, UnavailableError: see :func:`schema.prepare`.
    """

    def __init__(self, path: Path) -> None:
        self._connection = connection = sqlite3.connect(
            path, timeout=BUSY_S, isolation_level=None, check_same_thread=False
        )
        try:
            schema.refuse_others(connection, where=str(path))
            # Before the first table, or it never holds.
            connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
            connection.execute("PRAGMA journal_mode = WAL").fetchall()
            # With WAL nothing tears; a power cut may cost the last seconds.
            connection.execute("PRAGMA synchronous = NORMAL")
            connection.execute(f"PRAGMA journal_size_limit = {_WAL_LIMIT_BYTES}")
            schema.prepare(connection, where=str(path))
            self._page_bytes = self._number("PRAGMA page_size")
            self._files = (path, path.with_name(f"{path.name}-wal"))
            self._places = tuple(map(_place, self._files))
        except BaseException:
            connection.close()
            raise

    def close(self) -> None:
        """The last one to close brings what is in the log into the file."""
        self._connection.close()

    def is_elsewhere(self) -> bool:
        """Whether the file or its log was replaced or removed: what is written has no name then."""
        return tuple(map(_place, self._files)) != self._places

    def write(
        self,
        *,
        windows: Sequence[WindowRow],
        changes: Sequence[ChangeRow],
        states: dict[str, bytes],
        now_ns: int,
        summaries: Sequence[SummaryRow] = (),
    ) -> None:
        """All of it, or nothing."""
        with self._transaction():
            for key, blob in states.items():
                self._write_state(key, blob, now_ns)
            for change in changes:
                self._note_run(change.run_id, "", now_ns)
                self._write_change(change, now_ns)
            for window in windows:
                self._note_run(window.run_id, window.job, now_ns)
                self._write_window(window, now_ns)
            for summary in summaries:
                self._note_run(summary.run_id, summary.job, now_ns)
                self._write_summary(summary, now_ns)

    def drop_older(self, than_ns: int) -> bool:
        """What was written before then goes; whether there was any."""
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
        """Make room: the oldest windows go first, then the oldest changes, then the oldest
        summaries, then the largest states.

        Returns:
            what of states and summaries went.
        """
        lost: list[str] = []
        if self.used_bytes() <= max_bytes:
            return lost
        target = int(max_bytes * (1 - _ROOM))
        # Two pages more than a row may take at most: rather several rounds than too much dropped.
        for table, size in (("windows", "length(blob)"), ("changes", "length(verdict)")):
            while self.used_bytes() > target and self._drop_oldest(table, size, target):
                pass
        while self.used_bytes() > max_bytes and (key := self._drop_oldest_summary()):
            lost.append(key)
        while self.used_bytes() > max_bytes and (key := self._drop_largest_state()):
            lost.append(key)
        self.shrink()
        return lost

    def shrink(self) -> None:
        """Give free pages back to the file system."""
        if self._number("PRAGMA freelist_count") == 0:
            return
        # A cursor would step once, which frees one page: the pragma has no columns to fetch.
        self._connection.executescript("PRAGMA incremental_vacuum")
        self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def used_bytes(self) -> int:
        """Of the file, without free pages."""
        pages = self._number("PRAGMA page_count") - self._number("PRAGMA freelist_count")
        return pages * self._page_bytes

    def oldest_at_ns(self) -> int | None:
        """When the oldest window or change was written."""
        question = (
            "SELECT min(t) FROM ("
            "SELECT (SELECT written_at_ns FROM windows ORDER BY id LIMIT 1) AS t UNION ALL "
            "SELECT (SELECT written_at_ns FROM changes ORDER BY id LIMIT 1))"
        )
        found: int | None = self._connection.execute(question).fetchone()[0]
        return found

    def states(self) -> list[tuple[str, bytes]]:
        """Key and blob, what was written last first."""
        question = "SELECT key, blob FROM state ORDER BY written_at_ns DESC, key"
        return self._connection.execute(question).fetchall()

    def drop_damaged_summaries(self, is_whole: Callable[[str, bytes], bool]) -> int:
        """Drop the summaries that are not ``is_whole(run id, blob)``; how many went."""
        question = "SELECT rowid, run_id, blob FROM summaries"
        with contextlib.closing(self._connection.execute(question)) as rows:
            gone = [number for number, run_id, blob in rows if not is_whole(run_id, blob)]
        with self._transaction():
            for number in gone:
                self._connection.execute("DELETE FROM summaries WHERE rowid = ?", (number,))
        return len(gone)

    # --- rows -------------------------------------------------------------------------------

    def _write_state(self, key: str, blob: bytes, now_ns: int) -> None:
        """What has not changed is not written again, only shown to be in use once a day."""
        digest = digest_of(blob)
        known = self._connection.execute(
            "SELECT digest, written_at_ns FROM state WHERE key = ?", (key,)
        ).fetchone()
        if known is not None and known[0] == digest and now_ns - known[1] < _TOUCH_NS:
            return
        self._connection.execute(
            "INSERT OR REPLACE INTO state VALUES (?, ?, ?, ?)", (key, now_ns, digest, blob)
        )

    def _write_change(self, change: ChangeRow, now_ns: int) -> None:
        self._connection.execute(
            "INSERT INTO changes (run_id, seq, at_ns, written_at_ns, subject_id, verdict) VALUES ("
            ":run, (SELECT coalesce(max(seq) + 1, 0) FROM changes WHERE run_id = :run), "
            ":at, :now, :subject, :verdict)",
            {
                "run": change.run_id,
                "at": change.at_ns,
                "now": now_ns,
                "subject": change.subject_id,
                "verdict": change.verdict,
            },
        )

    def _write_window(self, window: WindowRow, now_ns: int) -> None:
        self._connection.execute(
            "INSERT INTO windows (run_id, group_name, attempt, first_step, last_step, start_ns, "
            "end_ns, written_at_ns, ranks, stragglers, blob) VALUES (?,?,?,?,?,?,?,?,?,?,?)",
            (
                window.run_id,
                window.group,
                window.attempt,
                window.first_step,
                window.last_step,
                window.start_ns,
                window.end_ns,
                now_ns,
                window.ranks,
                window.stragglers,
                window.blob,
            ),
        )

    def _write_summary(self, summary: SummaryRow, now_ns: int) -> None:
        self._connection.execute(
            "INSERT OR REPLACE INTO summaries VALUES (?, ?, ?, ?)",
            (summary.run_id, summary.group, now_ns, summary.blob),
        )

    def _note_run(self, run_id: str, job: str, now_ns: int) -> None:
        self._connection.execute(
            "INSERT INTO runs VALUES (:run, :job, :now, :now) ON CONFLICT (run_id) DO UPDATE SET "
            "last_seen_ns = :now, job = CASE WHEN :job = '' THEN job ELSE :job END",
            {"run": run_id, "job": job, "now": now_ns},
        )

    def _drop_oldest(self, table: str, size: str, target: int) -> bool:
        """As many of the oldest rows as hold what is too much; whether there were any."""
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

    def _drop_largest_state(self) -> str:
        question = "SELECT key FROM state ORDER BY length(blob) DESC LIMIT 1"
        found = self._connection.execute(question).fetchone()
        if found is None:
            return ""
        with self._transaction():
            self._connection.execute("DELETE FROM state WHERE key = ?", found)
        return f"state {found[0]}"

    def _drop_oldest_summary(self) -> str:
        question = "SELECT rowid, run_id FROM summaries ORDER BY written_at_ns, rowid LIMIT 1"
        found = self._connection.execute(question).fetchone()
        if found is None:
            return ""
        with self._transaction():
            self._connection.execute("DELETE FROM summaries WHERE rowid = ?", found[:1])
        return f"summary {found[1]}"

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._connection.execute("COMMIT")
        except BaseException:
            if self._connection.in_transaction:  # SQLite itself goes back when the disk is full
                self._connection.execute("ROLLBACK")
            raise

    def _number(self, question: str) -> int:
        return int(self._connection.execute(question).fetchone()[0])


def _place(path: Path) -> tuple[int, int] | None:
    """What tells a file from another one of the same name; None if there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino

"""The file of a history: opening, recovery from damage, writing, limits."""

from __future__ import annotations

import logging
import sqlite3
import time
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Final

from otel_straggler.collector.history.database import Database, WriterLock
from otel_straggler.collector.history.failures import Failures, Reason, reason_of
from otel_straggler.collector.history.store import (
    MAINTAIN_EVERY_S,
    MAX_CHANGES,
    SPOOL,
    Batch,
    HistoryStore,
    Limits,
)
from otel_straggler.errors import StragglerError
from otel_straggler.model.scores import WindowScores
from otel_straggler.model.verdict import Verdict
from otel_straggler.regular_files import create_folder

_log = logging.getLogger(__name__)

RETRY_S: Final = 60.0
"""Interval of attempts to open the file."""
_TRANSIENT: Final[frozenset[Reason]] = frozenset({"disk_full", "read_only", "io_error", "locked"})
MAX_WINDOWS: Final = 1_000
"""Windows of checkpoints that failed, to be written with the next one."""


class HistoryFile(HistoryStore):
    """An SQLite file with one writer."""

    def __init__(
        self,
        path: Path,
        failures: Failures,
        wall_s: Callable[[], float],
        limits: Limits,
        release: Callable[[int], None] | None = None,
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(str(path), failures, wall_s, limits, release, monotonic_s)
        self._path = path
        self._lock = WriterLock(path)
        self._database: Database | None = None
        self._unwritten: list[Verdict] = []
        self._unwritten_windows: list[WindowScores] = []
        self._unwritten_because: Reason = "error"
        self._maintained_at_s = float("-inf")
        self._tried_at_s = float("-inf")

    def open(self) -> dict[str, Any]:
        try:
            create_folder(self._path.parent)
            self._lock.acquire()
            restored = self._opened()
            self._was_restored = True
            return restored
        except (sqlite3.Error, OSError) as error:
            self._disable(error)
            return {}
        except StragglerError:
            self._lock.release()
            raise

    def keep(self, batch: Batch) -> None:
        """Write a batch, then make room. Changes of verdicts that could not be written are retried
        with the next batch."""
        batch.changes[:0] = self._unwritten
        batch.windows[:0] = self._unwritten_windows
        self._unwritten, self._unwritten_windows = [], []
        if self._database is None:
            self._failures.count(self.off or "error", len(batch))
            self._reopen_if_possible()
            return
        try:
            if len(batch):
                self._database.write(**self._rows(batch))
                self._failures.recovered()
                self._release_spool(batch)
                batch = Batch()
            self._maintain(self._database)
        except (sqlite3.Error, OSError) as error:
            self._record_loss(batch, error)

    def close(self) -> None:
        """Close the file and release the lock. May be called twice."""
        unwritten = len(self._unwritten) + len(self._unwritten_windows)
        self._failures.count(self._unwritten_because, unwritten)
        self._unwritten, self._unwritten_windows = [], []
        self._close_file()

    def _reopen_if_possible(self) -> None:
        """Retry after a transient failure. A file that this process has never read is not
        overwritten."""
        now_s = time.monotonic()
        if self.off not in _TRANSIENT or now_s - self._tried_at_s < RETRY_S:
            return
        self._tried_at_s = now_s
        try:
            create_folder(self._path.parent)
            self._lock.acquire()
            restored = self._opened()
        except (sqlite3.Error, OSError, StragglerError) as error:
            _log.debug("the history %s cannot be opened yet: %s", self._path, error)
            self._close_file()
            return
        if restored and not self._was_restored:
            self._close_file()
            self.off = "unread"
            self._failures.count(self.off, 1)
        else:
            self._was_restored = True
            self._failures.recovered()

    def _close_file(self) -> None:
        database, self._database = self._database, None
        if database is not None:
            try:
                database.close()
            except sqlite3.Error as error:
                self._failures.count(reason_of(error), 1, str(error))
        self._lock.release()

    # --- opening ----------------------------------------------------------------------------

    def _opened(self) -> dict[str, Any]:
        try:
            self._database = database = Database(self._path, is_durable=self._release is not None)
            self._maintain(database)
            restored = self._states(database)
            database.drop_damaged_summaries(self._is_whole)
        except sqlite3.Error as error:
            if reason_of(error) != "damaged":
                raise
            self._start_new_file(str(error))
            restored = {}
        self.off = None
        return restored

    def _start_new_file(self, why: str) -> None:
        """Move a damaged file and its log aside and create a new one; may raise OSError and
        sqlite3.Error."""
        self._failures.count("damaged", 1, why)
        if self._database is not None:
            self._database.close()
            self._database = None
        now = datetime.fromtimestamp(self._wall_s(), timezone.utc)
        aside = f"{self._path.name}.damaged-{now:%Y%m%dT%H%M%SZ}"
        for suffix in ("", "-wal", "-shm"):
            file = self._path.with_name(self._path.name + suffix)
            if file.exists():
                file.rename(self._path.with_name(aside + suffix))
        _log.warning("the damaged file %s is now %s; a new history begins", self._path, aside)
        self._database = Database(self._path, is_durable=self._release is not None)

    def _reopen(self, database: Database) -> None:
        """Switch to the file that has the name now."""
        self._failures.count("damaged", 1, "the file or its log was replaced or removed")
        self._database = None
        database.close()  # which brings the log into the file, if that is still the same
        try:
            self._database = Database(self._path, is_durable=self._release is not None)
        except (StragglerError, OSError) as error:
            self.off = "read_only"
            self._failures.count(self.off, 1, str(error))
            self.close()
        except sqlite3.Error as error:
            if reason_of(error) != "damaged":
                self._disable(error)
            else:
                self._start_new_file(str(error))

    def _disable(self, error: Exception) -> None:
        self.off = reason_of(error)
        self._tried_at_s = time.monotonic()
        self._failures.count(self.off, 1, str(error))
        self.close()

    # --- writing ----------------------------------------------------------------------------

    def _maintain(self, database: Database) -> None:
        """Apply the limits and measure the file."""
        now_s = self._wall_s()
        if abs(now_s - self._maintained_at_s) >= MAINTAIN_EVERY_S:
            self._maintained_at_s = now_s
            if not self._path.exists():
                self._start_new_file("the file is gone")
                return
            if database.was_replaced():
                self._reopen(database)
                return
            if database.drop_older(self._oldest_kept_ns()):
                database.shrink()
        self._limit(database)
        self.size_bytes = sum(
            file.stat().st_size
            for suffix in ("", "-wal")
            if (file := self._path.with_name(self._path.name + suffix)).exists()
        )

    def _record_loss(self, batch: Batch, error: Exception) -> None:
        reason = reason_of(error)
        self._unwritten, self._unwritten_because = batch.changes[-MAX_CHANGES:], reason
        if SPOOL in batch.states:
            self._unwritten_windows = batch.windows[-MAX_WINDOWS:]
        kept = len(self._unwritten) + len(self._unwritten_windows)
        self._failures.count(reason, max(1, len(batch) - kept), str(error))
        if reason == "damaged":
            try:
                self._start_new_file(str(error))
            except (sqlite3.Error, OSError) as second:
                self._disable(second)

"""The file of a history: opening, recovery from damage, writing, limits."""

from __future__ import annotations

import logging
import sqlite3
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

from otel_straggler.collector.history.codec import (
    decode_blob,
    encode_blob,
    verdict_text,
    window_value,
)
from otel_straggler.collector.history.database import Database, Row, WriterLock
from otel_straggler.collector.history.failures import Failures, Reason, reason_of
from otel_straggler.errors import InputError, StragglerError
from otel_straggler.model.scores import WindowScores
from otel_straggler.model.verdict import Verdict
from otel_straggler.regular_files import create_folder

_log = logging.getLogger(__name__)

MAINTAIN_EVERY_S: Final = 60.0
RETRY_S: Final = 60.0
"""Interval of attempts to open the file."""
_TRANSIENT: Final[frozenset[Reason]] = frozenset({"disk_full", "read_only", "io_error", "locked"})
_SUMMARY_SHARE: Final = 8
"""A summary may take this fraction (1 / 8) of the file."""
MAX_CHANGES: Final = 10_000
"""Maximum waiting to be written."""
MAX_WINDOWS: Final = 1_000
"""Windows of checkpoints that failed, to be written with the next one."""
OPEN_WINDOWS: Final = "open_windows"
"""Key of the state with the rows of open windows, large and soon replaced."""
SPOOL: Final = "spool"
"""Key of the state that makes a batch a checkpoint: ``sequence`` is that of its last request,
``released`` that of the last one that the spool may forget, if it is another."""
_Encoded = TypeVar("_Encoded")


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """Newest view of a run and group. ``make`` returns the value for a blob; the thread of the
    history calls it, at most once."""

    run_id: str
    job: str
    group: str
    make: Callable[[], dict[str, Any]]


@dataclass(slots=True, kw_only=True)
class Batch:
    """One transaction."""

    windows: list[WindowScores] = field(default_factory=list)
    changes: list[Verdict] = field(default_factory=list)
    states: dict[str, Any] = field(default_factory=dict)
    summaries: dict[tuple[str, str], Summary] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.windows) + len(self.changes) + len(self.states) + len(self.summaries)


class HistoryFile:
    """For one thread at a time. Only ``open`` raises; failures are counted and logged.

    Attributes:
        off: reason why nothing is written; None while it works.
        oldest_at_s: time at which the oldest window or change was written.
    """

    def __init__(
        self,
        path: Path,
        failures: Failures,
        wall_s: Callable[[], float],
        *,
        keep_s: float,
        max_bytes: int,
        release: Callable[[int], None] | None = None,
    ) -> None:
        self._release = release
        self._path = path
        self._keep_s = keep_s
        self._max_bytes = max_bytes
        self._failures = failures
        self._wall_s = wall_s
        self._lock = WriterLock(path)
        self._database: Database | None = None
        self._unwritten: list[Verdict] = []
        self._unwritten_windows: list[WindowScores] = []
        self._unwritten_because: Reason = "error"
        self._maintained_at_s = float("-inf")
        self._tried_at_s = float("-inf")
        self._was_restored = False
        self.off: Reason | None = "error"
        self.size_bytes = 0
        self.oldest_at_s: float | None = None

    def open(self) -> dict[str, Any]:
        """Open the file and return the states of the last process, last written first.

        Raises:
            UnavailableError, ConfigError: see :meth:`History.open`.
        """
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
                self._write(self._database, batch)
                self._failures.recovered()
                if self._release is not None and SPOOL in batch.states:
                    checkpoint = batch.states[SPOOL]
                    self._release(checkpoint.get("released", checkpoint["sequence"]))
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

    def _states(self, database: Database) -> dict[str, Any]:
        result = {}
        for key, blob in database.states():
            try:
                result[key] = decode_blob(blob, where=f"{self._path}: state {key}")
            except InputError as error:
                self._failures.count("damaged", 1, str(error))
        return result

    def _is_whole(self, run_id: str, blob: bytes) -> bool:
        try:
            decode_blob(blob, where=f"{self._path}: summary {run_id}")
        except InputError as error:
            self._failures.count("damaged", 1, str(error))
            return False
        return True

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

    def _write(self, database: Database, batch: Batch) -> None:
        states = {
            key: blob
            for key, state in batch.states.items()
            for blob in self._try(partial(encode_blob, is_large=key == OPEN_WINDOWS), state)
        }
        database.write(
            windows=[row for window in batch.windows for row in self._try(_window_row, window)],
            changes=[row for change in batch.changes for row in self._try(_change_row, change)],
            states=self._small_enough(states),
            summaries=self._small_summaries(batch),
            now_ns=int(self._wall_s() * 1e9),
        )

    def _small_summaries(self, batch: Batch) -> list[Row]:
        rows = [row for each in batch.summaries.values() for row in self._try(_summary_row, each)]
        maximum = self._max_bytes // _SUMMARY_SHARE
        for row in (row for row in rows if len(row["blob"]) > maximum):
            what = f"summary {row['run_id']}: {len(row['blob'])} bytes"
            self._failures.count("too_large", 1, what)
        return [row for row in rows if len(row["blob"]) <= maximum]

    def _small_enough(self, blobs: dict[str, bytes]) -> dict[str, bytes]:
        """Leave out states larger than half of the file."""
        maximum = self._max_bytes // 2
        for key in [key for key, blob in blobs.items() if len(blob) > maximum]:
            self._failures.count("too_large", 1, f"state {key}: {len(blobs.pop(key))} bytes")
        return blobs

    def _try(self, encode: Callable[[Any], _Encoded], value: Any) -> list[_Encoded]:
        """One result, or none if it cannot be encoded, so that the others are written."""
        try:
            return [encode(value)]
        except Exception:  # noqa: BLE001 - logged and counted
            self._failures.count("error", 1)
            _log.exception("a part of the history could not be encoded")
            return []

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
            if database.drop_older(int((now_s - self._keep_s) * 1e9)):
                database.shrink()
        for key in database.keep_within(self._max_bytes):
            self._failures.count("too_large", 1, key)
        oldest_at_ns = database.oldest_at_ns()
        self.oldest_at_s = None if oldest_at_ns is None else oldest_at_ns / 1e9
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


# --- rows ---------------------------------------------------------------------------------------


def _window_row(window: WindowScores) -> Row:
    """Cost: O(ranks * sections); about 3 ms per 1,000 ranks and 10 sections."""
    names = ("attempt", "first_step", "last_step", "start_ns", "end_ns")
    return {
        **{name: getattr(window, name) for name in names},
        "run_id": _text(window.run_id),
        "job": _text(window.job),
        "group": _text(window.group),
        "ranks": len(window.sources),
        "stragglers": len({s.source.rank for s in window.stragglers}),
        "blob": encode_blob(window_value(window)),
    }


def _change_row(verdict: Verdict) -> Row:
    return {
        "run_id": _text(verdict.run_id),
        "subject_id": _text(verdict.subject_id),
        "at_ns": verdict.at_ns,
        "verdict": verdict_text(verdict),
    }


def _summary_row(summary: Summary) -> Row:
    return {
        "run_id": _text(summary.run_id),
        "job": _text(summary.job),
        "group": _text(summary.group),
        "blob": encode_blob(summary.make()),
    }


def _text(text: str) -> str:
    """Replace invalid UTF-8, such as half a surrogate pair, which SQLite rejects."""
    return text.encode("utf-8", "replace").decode()

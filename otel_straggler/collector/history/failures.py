"""Failures of a history, counted by reason and logged once."""

from __future__ import annotations

import errno
import logging
import sqlite3
import threading
from collections import Counter
from typing import Final, Literal

_log = logging.getLogger(__name__)

Reason = Literal[
    "queue_full",
    "disk_full",
    "read_only",
    "locked",
    "damaged",
    "too_large",
    "io_error",
    "unreachable",
    "unread",
    "error",
]
REASONS: Final[dict[Reason, str]] = {
    "queue_full": "the disk was slower than the data",
    "disk_full": "there was no room on the disk",
    "read_only": "the file or its folder is not writable, or does not exist",
    "locked": "another program held the file",
    "damaged": "the file, or a part of it, was damaged",
    "too_large": "it took too large a part of `history.max_mib`, or did not fit alongside the rest",
    "io_error": "the disk failed in another way",
    "unreachable": "PostgreSQL did not answer, or refused; what waits is written once it does. "
    "An outage counts as one",
    "unread": "the history could not be read when this collector started, but can now: restart the "
    "collector, so that it resumes from it",
    "error": "a bug in this package; see the log",
}


class PostgresError(OSError):
    """A PostgreSQL server does not answer, or refuses.

    Attributes:
        reason: for the counts.
        is_lasting: trying again would not help.
    """

    def __init__(self, text: str, reason: Reason, *, is_lasting: bool = False) -> None:
        super().__init__(text)
        self.reason: Reason = reason
        self.is_lasting = is_lasting


_MESSAGES: Final[tuple[tuple[str, Reason], ...]] = (
    ("is full", "disk_full"),
    ("readonly", "read_only"),
    ("unable to open", "read_only"),
    ("is locked", "locked"),
    ("malformed", "damaged"),
    ("not a database", "damaged"),
    ("no such table", "damaged"),
    ("no such column", "damaged"),
    ("disk i/o", "io_error"),
)
"""Parts of SQLite's messages; Python 3.10 has no error codes."""


def reason_of(error: Exception) -> Reason:
    """
    >>> reason_of(sqlite3.OperationalError("database or disk is full"))
    'disk_full'
    """
    if isinstance(error, sqlite3.Error):
        text = str(error).lower()
        return next((reason for mark, reason in _MESSAGES if mark in text), "error")
    if isinstance(error, PostgresError):
        return error.reason
    if isinstance(error, OSError):
        return "disk_full" if error.errno in (errno.ENOSPC, errno.EDQUOT) else "read_only"
    return "error"


class Failures:
    """Each reason is logged once, until writing works again.

    Attributes:
        why: the last reason, as a sentence; it stays once writing works again.
    """

    def __init__(self, where: str) -> None:
        self._where = where
        self._counts: Counter[str] = Counter()
        self._logged: set[str] = set()
        self._lock = threading.Lock()
        self.why = ""

    @property
    def is_failing(self) -> bool:
        """Whether nothing has been written since the last failure."""
        return bool(self._logged)

    def count(self, reason: Reason, number: int, what: str = "") -> None:
        """Count lost items. From any thread."""
        if number == 0:
            return
        with self._lock:
            self._counts[reason] += number
            is_new = reason not in self._logged
            self._logged.add(reason)
        if is_new:
            detail = f" ({what})" if what else ""
            self.why = f"the history {self._where} cannot be written: {REASONS[reason]}{detail}"
            _log.warning(
                "%s. Scoring continues; straggler_collector_history_failures_total counts the "
                "lost items.", self.why,
            )  # fmt: skip

    def recovered(self) -> None:
        with self._lock:
            was_failing = bool(self._logged)
            self._logged.clear()
        if was_failing:
            _log.info("the history %s can be written again", self._where)

    def counts(self) -> dict[str, int]:
        with self._lock:
            return {reason: self._counts[reason] for reason in REASONS}

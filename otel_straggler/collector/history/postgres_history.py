"""A history in PostgreSQL: a batch that could not be written waits until the server answers again.

Later batches wait in the queue, which is bounded: nothing is lost by a short outage. Each batch
leaves its name in ``meta`` in the same transaction, so that one whose COMMIT got no answer is not
written twice.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Callable
from typing import Any, Final

from otel_straggler.collector.history.failures import Failures, PostgresError
from otel_straggler.collector.history.postgres import NameTakenError, PostgresTables
from otel_straggler.collector.history.store import MAINTAIN_EVERY_S, Batch, HistoryStore, Limits
from otel_straggler.errors import StragglerError
from otel_straggler.secret import reveal, without_secrets

_log = logging.getLogger(__name__)

PATIENCE_S: Final = 10.0
"""At the start, for a server that does not answer, and for the lock of a process that has ended."""
RETRY_S: Final = 3.0
"""Interval of attempts to write what could not be written."""
_LOOK_S: Final = 0.5


class PostgresHistory(HistoryStore):
    """A batch that could not be written is tried again until it is, on the history's thread."""

    def __init__(
        self,
        url: str,
        collector: str,
        failures: Failures,
        wall_s: Callable[[], float],
        limits: Limits,
        release: Callable[[int], None] | None = None,
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        where = without_secrets(reveal(url))
        super().__init__(where, failures, wall_s, limits, release, monotonic_s)
        self._url = url
        self._collector = collector
        self._tables: PostgresTables | None = None
        self._maintained_at_s = float("-inf")
        self._tried_at_s = float("-inf")
        self._hurries = threading.Event()

    def open(self) -> dict[str, Any]:
        until_s = time.monotonic() + PATIENCE_S
        while True:
            try:
                restored = self._opened()
            except (PostgresError, NameTakenError) as error:
                self._disconnect()
                if time.monotonic() < until_s and not self._hurries.wait(_LOOK_S):
                    continue
                if isinstance(error, NameTakenError):
                    raise
                self._tried_at_s = time.monotonic()
                self.off = error.reason
                self._failures.count(self.off, 1, str(error))
                return {}
            except BaseException:
                self._disconnect()
                raise
            self._was_restored = True
            return restored

    def keep(self, batch: Batch) -> None:
        if self.off is not None:
            self._failures.count(self.off, len(batch))
            self._reopen_if_possible()
            return
        if len(batch):
            self._write(batch)
        self._maintain()

    def hurry(self) -> None:
        self._hurries.set()

    def close(self) -> None:
        self._disconnect()

    def _opened(self) -> dict[str, Any]:
        self._tables = tables = self._connected()
        restored = self._states(tables)
        tables.drop_damaged_summaries(self._is_whole)
        self.off = None
        return restored

    def _connected(self) -> PostgresTables:
        if self._tables is None:
            is_durable = self._release is not None
            self._tables = PostgresTables(self._url, self._collector, is_durable=is_durable)
        return self._tables

    def _disconnect(self) -> None:
        tables, self._tables = self._tables, None
        if tables is not None:
            tables.close()

    def _reopen_if_possible(self) -> None:
        """States that this process has never read are not overwritten."""
        if self.off == "unread" or time.monotonic() - self._tried_at_s < RETRY_S:
            return
        self._tried_at_s, why = time.monotonic(), self.off
        try:
            restored = self._opened()
        except (PostgresError, StragglerError) as error:
            _log.debug("the history %s cannot be opened yet: %s", self._where, error)
            self._disconnect()
            self.off = why
            return
        if restored and not self._was_restored:
            self._disconnect()
            self.off = "unread"
            self._failures.count(self.off, 1)
        else:
            self._was_restored = True
            self._failures.recovered()

    def _write(self, batch: Batch) -> None:
        """Try until it is written, or the collector stops."""
        name, rows, is_retry = uuid.uuid4().hex, self._rows(batch), False
        while True:
            try:
                tables = self._connected()
                if not (is_retry and tables.has_batch(name)):
                    tables.write_once(name, rows)
            except (PostgresError, StragglerError) as error:
                self._disconnect()
                reason = error.reason if isinstance(error, PostgresError) else "locked"
                is_lost = self._is_lasting(error) or self._hurries.is_set()
                if is_lost or not is_retry:
                    lost = max(1, len(batch) - is_retry) if is_lost else 1
                    self._failures.count(reason, lost, str(error))
                if is_lost:
                    return
                is_retry = True
                self._hurries.wait(RETRY_S)
            else:
                self._failures.recovered()
                self._release_spool(batch)
                return

    def _is_lasting(self, error: Exception) -> bool:
        if isinstance(error, PostgresError):
            return error.is_lasting
        if isinstance(error, NameTakenError):
            return False
        self.off = "read_only"  # another version has taken the database over
        return True

    def _maintain(self) -> None:
        """Apply the limits and measure the database, once a minute."""
        now_s = self._wall_s()
        if abs(now_s - self._maintained_at_s) < MAINTAIN_EVERY_S or self._hurries.is_set():
            return
        self._maintained_at_s = now_s
        try:
            tables = self._connected()
            tables.drop_older(self._oldest_kept_ns())
            self._limit(tables)
            self.size_bytes = tables.size_bytes()
        except (PostgresError, StragglerError) as error:
            self._disconnect()
            reason = error.reason if isinstance(error, PostgresError) else "locked"
            self._failures.count(reason, 1, str(error))

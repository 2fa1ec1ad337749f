"""A history: data that survive a restart of the collector, in one SQLite file with one writer, or
in one PostgreSQL database for all shards."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Final

import numpy as np

from otel_straggler.collector.history.failures import Failures
from otel_straggler.collector.history.file import HistoryFile
from otel_straggler.collector.history.postgres import is_postgres
from otel_straggler.collector.history.postgres_history import PostgresHistory
from otel_straggler.collector.history.store import (
    MAINTAIN_EVERY_S,
    MAX_CHANGES,
    Batch,
    HistoryStore,
    Limits,
    Summary,
)
from otel_straggler.model.scores import WindowScores
from otel_straggler.model.verdict import Verdict
from otel_straggler.secret import reveal, without_secrets

_log = logging.getLogger(__name__)

MiB: Final = 1024 * 1024
DAY_S: Final = 86_400.0
MAX_WAITING_BYTES: Final = 128 * MiB
MAX_SUMMARIES: Final = 1_000
_CLOSE_S: Final = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryCounts:
    """Bytes on disk, time of the oldest window or verdict, lost or late items by reason;
    bytes of the spool (None: there is none), and its failures by reason; whether the history fails
    now, and why it and the spool last did."""

    size_bytes: int = 0
    oldest_at_s: float | None = None
    failures: Mapping[str, int] = field(default_factory=dict)
    spool_bytes: int | None = None
    spool_failures: Mapping[str, int] = field(default_factory=dict)
    is_failing: bool = False
    why: str = ""
    why_spool: str = ""


class History:
    """Writes states, changes of verdicts, windows, and summaries on its own thread.

    ``put`` never waits for the disk. Lost items are counted by reason, and logged once per reason;
    only ``open`` raises.

    Args:
        path: created, with its folder, if missing; or the URL of a PostgreSQL database.
        keep_s, max_bytes: limits; see :meth:`Tables.keep_within`.
        max_waiting_bytes: limit of the queue.
        release: called with a sequence of the spool once what led to it is in the history, and on
            the disk.
        collector: name of this one among those that share a PostgreSQL database.
    """

    def __init__(
        self,
        path: Path | str,
        *,
        keep_s: float = 7 * DAY_S,
        max_bytes: int = 512 * MiB,
        wall_s: Callable[[], float] = time.time,
        monotonic_s: Callable[[], float] = time.monotonic,
        max_waiting_bytes: int = MAX_WAITING_BYTES,
        release: Callable[[int], None] | None = None,
        collector: str = "",
    ) -> None:
        limits = Limits(keep_s=keep_s, max_bytes=max_bytes)
        self._file: HistoryStore
        if is_postgres(path):
            self._failures = Failures(without_secrets(reveal(path)))
            self._file = PostgresHistory(
                path, collector, self._failures, wall_s, limits, release, monotonic_s
            )
        else:
            resolved = Path(path).resolve()
            self._failures = Failures(str(resolved))
            self._file = HistoryFile(resolved, self._failures, wall_s, limits, release, monotonic_s)
        self._queue = WriteQueue(max_waiting_bytes)
        self._thread = threading.Thread(target=self._run, name="straggler-history", daemon=True)

    def open(self) -> dict[str, Any]:
        """Open it and return the states of the last process, last written first. An unusable one
        is logged and counted, and nothing is written; a damaged file is moved aside.

        Raises:
            UnavailableError: another collector, or another version of otel-straggler, uses it; or
                a package for it is not installed.
            ConfigError: it is a database of another program, or no URL of one.
        """
        restored = self._file.open()
        self._thread.start()
        return restored

    def put(
        self,
        *,
        windows: Sequence[WindowScores] = (),
        changes: Sequence[Verdict] = (),
        states: Mapping[str, Any] | None = None,
        summaries: Sequence[Summary] = (),
        is_whole: bool = False,
    ) -> bool:
        """Queue for one transaction. States, and the sources of summaries, must not change
        afterwards; a function is a state that the thread of the history makes. From any thread.
        Cost: microseconds.

        Args:
            is_whole: put all or nothing; False is returned if there is no room now.
        """
        states = states or {}
        count = len(windows) + len(changes) + len(states) + len(summaries)
        if self._file.off is not None:
            self._failures.count(self._file.off, count)
        elif refused := self._queue.put(windows, changes, states, summaries, is_whole=is_whole):
            if is_whole:
                return False
            self._failures.count("queue_full", refused)
        return True

    def refuse(self, key: str, why: str) -> None:
        """Count a restored state that its reader rejects. From any thread."""
        self._failures.count("damaged", 1, f"state {key}: {why}")

    def flush(self, timeout_s: float = _CLOSE_S) -> bool:
        """Wait until the queue has been written, or counted as lost; False on a timeout."""
        return not self._thread.is_alive() or self._queue.wait_until_idle(timeout_s)

    def close(self, timeout_s: float = _CLOSE_S) -> None:
        """Write the queue, within the time, and close the file. May be called twice."""
        self._queue.close()
        self._file.hurry()
        if self._thread.is_alive():
            self._thread.join(timeout_s)
        if not self._thread.is_alive():
            self._file.close()
        elif waiting := len(self._queue):
            self._failures.count("queue_full", waiting, "there was no time left to write the queue")

    def counts(self) -> HistoryCounts:
        """From any thread."""
        return HistoryCounts(
            size_bytes=self._file.size_bytes,
            oldest_at_s=self._file.oldest_at_s,
            failures=self._failures.counts(),
            is_failing=self._failures.is_failing,
            why=self._failures.why,
        )

    def _run(self) -> None:
        while (batch := self._queue.drain(MAINTAIN_EVERY_S)) is not None:
            try:
                self._file.keep(batch)
            except Exception:  # noqa: BLE001 - the thread must survive its bugs
                self._failures.count("error", max(1, len(batch)))
                _log.exception("the history could not be written")


# --- the queue ----------------------------------------------------------------------------------


class WriteQueue:
    """Bounded queue between the scoring thread and the writer. A newer state of a key, or summary
    of a run, replaces the waiting one."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._batch = Batch()
        self._bytes = 0
        self._state_bytes: dict[str, int] = {}
        self._is_closed = self._takes_all = False
        self._is_idle = True
        self._changed = threading.Condition()

    def put(
        self,
        windows: Sequence[WindowScores],
        changes: Sequence[Verdict],
        states: Mapping[str, Any],
        summaries: Sequence[Summary] = (),
        *,
        is_whole: bool = False,
    ) -> int:
        """Add items; return the number of rejected ones. ``is_whole``: all of them, or none."""
        refused = 0
        with self._changed:
            if is_whole and not self._has_room_for_all(windows, changes, states):
                return max(1, len(windows) + len(changes) + len(states))
            self._takes_all = is_whole
            for window in windows:
                n_bytes = _bytes_of_window(window)
                if self._has_room(n_bytes):
                    self._batch.windows.append(window)
                    self._bytes += n_bytes
                else:
                    refused += 1
            for key, state in states.items():
                refused += not self._put_state(key, state)
            room = max(0, MAX_CHANGES - len(self._batch.changes))
            self._batch.changes += changes[:room]
            refused += max(0, len(changes) - room)
            refused += sum(not self._put_summary(summary) for summary in summaries)
            self._changed.notify_all()
        return refused

    def drain(self, timeout_s: float) -> Batch | None:
        """Remove and return all items, maybe none after the timeout; None once closed and empty."""
        with self._changed:
            self._is_idle = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: len(self._batch) or self._is_closed, timeout_s)
            if self._is_closed and not len(self._batch):
                return None
            drained, self._batch = self._batch, Batch()
            self._bytes = 0
            self._state_bytes.clear()
            self._is_idle = not len(drained)
            return drained

    def __len__(self) -> int:
        with self._changed:
            return len(self._batch)

    def close(self) -> None:
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def wait_until_idle(self, timeout_s: float) -> bool:
        """Wait until the writer has finished the queue; False on a timeout."""
        with self._changed:
            return self._changed.wait_for(lambda: self._is_idle and not len(self._batch), timeout_s)

    def _has_room(self, n_bytes: int) -> bool:
        return self._takes_all or self._bytes == 0 or self._bytes + n_bytes <= self._max_bytes

    def _has_room_for_all(
        self,
        windows: Sequence[WindowScores],
        changes: Sequence[Verdict],
        states: Mapping[str, Any],
    ) -> bool:
        """An empty queue has room for anything."""
        if not len(self._batch):
            return True
        replaced = sum(self._state_bytes.get(key, 0) for key in states)
        n_bytes = sum(map(_bytes_of_window, windows)) + sum(map(_bytes_of, states.values()))
        has_bytes = self._bytes - replaced + n_bytes <= self._max_bytes
        return has_bytes and len(self._batch.changes) + len(changes) <= MAX_CHANGES

    def _put_state(self, key: str, state: Any) -> bool:
        self._bytes -= self._state_bytes.pop(key, 0)
        self._batch.states.pop(key, None)
        n_bytes = _bytes_of(state)
        if not self._has_room(n_bytes):
            return False
        self._batch.states[key] = state
        self._state_bytes[key] = n_bytes
        self._bytes += n_bytes
        return True

    def _put_summary(self, summary: Summary) -> bool:
        key, waiting = (summary.run_id, summary.group), self._batch.summaries
        if key not in waiting and len(waiting) >= MAX_SUMMARIES:
            return False
        waiting[key] = summary
        return True


def _bytes_of_window(window: WindowScores) -> int:
    return _bytes_of([getattr(window, f.name) for f in fields(window)]) + 200 * len(window.sources)


def _bytes_of(value: Any) -> int:
    if isinstance(value, np.ndarray):
        return int(value.nbytes)
    children: Iterable[Any] = ()
    if isinstance(value, dict):
        children = value.values()
    elif isinstance(value, list) and value and isinstance(value[0], dict | list | np.ndarray):
        children = value
    return 64 + sum(map(_bytes_of, children))

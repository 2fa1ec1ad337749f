"""What a history keeps, and how it is encoded and bounded, whatever database it is in."""

from __future__ import annotations

import logging
import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, TypeVar

from otel_straggler.collector.history.codec import (
    decode_blob,
    encode_blob,
    verdict_text,
    window_value,
)
from otel_straggler.collector.history.failures import Failures, Reason
from otel_straggler.collector.history.tables import Row, Tables
from otel_straggler.errors import InputError
from otel_straggler.model.scores import WindowScores
from otel_straggler.model.verdict import Verdict

_log = logging.getLogger(__name__)

MAINTAIN_EVERY_S: Final = 60.0
_SUMMARY_SHARE: Final = 8
"""A summary may take this fraction (1 / 8) of the database."""
MAX_CHANGES: Final = 10_000
"""Maximum waiting to be written."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Age in seconds and bytes of what is kept; see :meth:`Tables.keep_within`."""

    keep_s: float
    max_bytes: int


@dataclass(slots=True, kw_only=True)
class Batch:
    """One transaction."""

    windows: list[WindowScores] = field(default_factory=list)
    changes: list[Verdict] = field(default_factory=list)
    states: dict[str, Any] = field(default_factory=dict)
    summaries: dict[tuple[str, str], Summary] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.windows) + len(self.changes) + len(self.states) + len(self.summaries)


class HistoryStore(ABC):
    """For one thread at a time. Only ``open`` raises; failures are counted and logged.

    Args:
        where: for messages.
        release: called with a sequence of the spool once what led to it is safe.

    Attributes:
        off: reason why nothing is written; None while it works.
        oldest_at_s: time at which the oldest window or change was written.
    """

    def __init__(
        self,
        where: str,
        failures: Failures,
        wall_s: Callable[[], float],
        limits: Limits,
        release: Callable[[int], None] | None = None,
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._where = where
        self._failures = failures
        self._wall_s = wall_s
        self._monotonic_s = monotonic_s
        self._believed_s = (math.inf, 0.0)
        self._keep_s = limits.keep_s
        self._max_bytes = limits.max_bytes
        self._release = release
        self._was_restored = False
        self.off: Reason | None = "error"
        self.size_bytes = 0
        self.oldest_at_s: float | None = None

    @abstractmethod
    def open(self) -> dict[str, Any]:
        """Open it and return the states of the last process, last written first.

        Raises:
            UnavailableError, ConfigError: see :meth:`History.open`.
        """

    @abstractmethod
    def keep(self, batch: Batch) -> None:
        """Write a batch, then make room."""

    @abstractmethod
    def close(self) -> None:
        """Close it for others. May be called twice."""

    def hurry(self) -> None:  # noqa: B027 - a file has nothing to wait for
        """Wait for nothing any more: the collector stops. From any thread."""

    def _oldest_kept_ns(self) -> int:
        """Nanoseconds since 1970, before which nothing is kept. By a clock that goes ahead no
        faster than time does: one that is set ahead by a year deletes nothing."""
        wall_s, monotonic_s = self._believed_s
        at_s = self._monotonic_s()
        now_s = min(self._wall_s(), wall_s + at_s - monotonic_s)
        self._believed_s = (now_s, at_s)
        return int((now_s - self._keep_s) * 1e9)

    # --- for the databases ------------------------------------------------------------------

    def _states(self, database: Tables) -> dict[str, Any]:
        result = {}
        for key, blob in database.states():
            try:
                result[key] = decode_blob(blob, where=f"{self._where}: state {key}")
            except InputError as error:
                self._failures.count("damaged", 1, str(error))
        return result

    def _is_whole(self, run_id: str, blob: bytes) -> bool:
        try:
            decode_blob(blob, where=f"{self._where}: summary {run_id}")
        except InputError as error:
            self._failures.count("damaged", 1, str(error))
            return False
        return True

    def _release_spool(self, batch: Batch) -> None:
        """Of a batch that is safe."""
        if self._release is not None and SPOOL in batch.states:
            checkpoint = batch.states[SPOOL]
            self._release(checkpoint.get("released", checkpoint["sequence"]))

    def _rows(self, batch: Batch) -> dict[str, Any]:
        """Arguments of :meth:`Tables.write`."""
        states = {
            key: blob
            for key, state in batch.states.items()
            for blob in self._try(partial(_state_blob, is_large=key == OPEN_WINDOWS), state)
        }
        return {
            "windows": [row for each in batch.windows for row in self._try(_window_row, each)],
            "changes": [row for each in batch.changes for row in self._try(_change_row, each)],
            "states": self._small_enough(states),
            "summaries": self._small_summaries(batch),
            "now_ns": int(self._wall_s() * 1e9),
        }

    def _small_summaries(self, batch: Batch) -> list[Row]:
        rows = [row for each in batch.summaries.values() for row in self._try(_summary_row, each)]
        maximum = self._max_bytes // _SUMMARY_SHARE
        for row in (row for row in rows if len(row["blob"]) > maximum):
            what = f"summary {row['run_id']}: {len(row['blob'])} bytes"
            self._failures.count("too_large", 1, what)
        return [row for row in rows if len(row["blob"]) <= maximum]

    def _small_enough(self, blobs: dict[str, bytes]) -> dict[str, bytes]:
        """Leave out states larger than half of the database."""
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

    def _limit(self, database: Tables) -> None:
        """Make room; find the oldest row."""
        for key in database.keep_within(self._max_bytes):
            self._failures.count("too_large", 1, key)
        oldest_at_ns = database.oldest_at_ns()
        self.oldest_at_s = None if oldest_at_ns is None else oldest_at_ns / 1e9


# --- rows ---------------------------------------------------------------------------------------


def _state_blob(state: Any, *, is_large: bool) -> bytes:
    """Of a state, or of what makes it."""
    return encode_blob(state() if callable(state) else state, is_large=is_large)


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
    value = summary.make()
    return {
        "run_id": _text(summary.run_id),
        "job": _text(summary.job),
        "group": _text(summary.group),
        "heard_at_ns": int(1e9 * (value.get("received_at_s") or 0.0)),
        "blob": encode_blob(value),
    }


def _text(text: str) -> str:
    """Replace invalid UTF-8, such as half a surrogate pair, which SQLite rejects."""
    return text.encode("utf-8", "replace").decode()

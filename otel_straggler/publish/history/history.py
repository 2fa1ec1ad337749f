"""A history: what survives a restart of the collector, in one SQLite file with one writer."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from otel_straggler.model.scores import WindowScores
from otel_straggler.model.verdict import Verdict
from otel_straggler.publish.history.failures import Failures
from otel_straggler.publish.history.file import LOOK_EVERY_S, HistoryFile, Limits, Restored
from otel_straggler.publish.history.rows import Summary
from otel_straggler.publish.history.waiting import Waiting

_log = logging.getLogger(__name__)

MiB: Final = 1024 * 1024
DAY_S: Final = 86_400.0
MOST_WAITING_BYTES: Final = 128 * MiB
_PATIENCE_S: Final = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryCounts:
    """What a history says about itself.

    Attributes:
        size_bytes: of the file and its log.
        oldest_at_s: when the oldest window or verdict in it was written; None if there is none.
        failures: things that were not kept, by reason.
    """

    size_bytes: int = 0
    oldest_at_s: float | None = None
    failures: Mapping[str, int] = field(default_factory=dict)


class History:
    """Keeps states, changes of verdicts, windows and summaries on a thread of its own.

    ``put`` never waits for the disk. What cannot be kept is counted by reason and logged once per
    reason; nothing but ``open`` raises.

    Args:
        path: the file; made, with its folder, if there is none.
        keep_s: what is older goes.
        max_bytes: size of the file; the oldest windows go first, then changes, summaries, states.
        wall_s: clock.
        most_waiting_bytes: that may wait to be written.
    """

    def __init__(
        self,
        path: Path | str,
        *,
        keep_s: float = 7 * DAY_S,
        max_bytes: int = 512 * MiB,
        wall_s: Callable[[], float] = time.time,
        most_waiting_bytes: int = MOST_WAITING_BYTES,
    ) -> None:
        resolved = Path(path).resolve()
        self._failures = Failures(str(resolved))
        limits = Limits(keep_s=keep_s, max_bytes=max_bytes)
        self._file = HistoryFile(resolved, limits, self._failures, wall_s)
        self._waiting = Waiting(most_waiting_bytes)
        self._thread = threading.Thread(target=self._run, name="straggler-history", daemon=True)

    def open(self) -> Restored:
        """Take the file; what the last process left in it. A file that cannot be used is said and
        counted, and nothing is kept; a damaged one is moved aside, and a new one begun.

        Raises:
            UnavailableError: another collector writes to it, or a newer otel-straggler has.
            ConfigError: it is a database of another program.
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
    ) -> None:
        """Hand over; what is handed over together is written together. States, and what summaries
        are made from, must not change afterwards. From any thread. Cost: microseconds."""
        states = states or {}
        if self._file.off is not None:
            lost = len(windows) + len(changes) + len(states) + len(summaries)
            self._failures.count(self._file.off, lost)
        elif refused := self._waiting.put(windows, changes, states, summaries):
            self._failures.count("queue_full", refused)

    def refuse(self, key: str, why: str) -> None:
        """A state that was restored says nothing to whom it was given, or a summary to who reads
        it (``summary RUN``). From any thread."""
        what = key if key.startswith("summary ") else f"state {key}"
        self._failures.count("damaged", 1, f"{what}: {why}")

    def flush(self, timeout_s: float = _PATIENCE_S) -> bool:
        """Whether all that was put has been written, or counted, by then."""
        return not self._thread.is_alive() or self._waiting.wait_until_idle(timeout_s)

    def close(self, timeout_s: float = _PATIENCE_S) -> None:
        """Write what waits, within the time, and let the file go. May be called twice."""
        self._waiting.close()
        if self._thread.is_alive():
            self._thread.join(timeout_s)
        if not self._thread.is_alive():
            self._file.close()
        elif waiting := len(self._waiting):
            self._failures.count("queue_full", waiting, "there was no time left to write it")

    def counts(self) -> HistoryCounts:
        """From any thread."""
        return HistoryCounts(
            size_bytes=self._file.size_bytes,
            oldest_at_s=self._file.oldest_at_s,
            failures=self._failures.counts(),
        )

    def _run(self) -> None:
        while (batch := self._waiting.take(LOOK_EVERY_S)) is not None:
            try:
                self._file.keep(batch)
            except Exception:  # noqa: BLE001 - the thread must outlive its mistakes
                self._failures.count("error", max(1, len(batch)))
                _log.exception("the history could not be written")

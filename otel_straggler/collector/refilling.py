"""At the start, the newest windows of the history become the first columns of the timelines."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from otel_straggler.collector.page_history import PageHistory
from otel_straggler.collector.runs.timeline import MAX_COLUMNS
from otel_straggler.errors import StragglerError
from otel_straggler.publish.picture import Column

_log = logging.getLogger(__name__)

MAX_S: Final = 5.0
"""Reading goes on for so long, the newest first; what is older stays in the history."""


class Backfilled(Protocol):
    """Takes older windows, each world's oldest first."""

    def backfill(self, run_id: str, group: str, columns: Sequence[Column]) -> None: ...

    def end_backfill(self) -> None: ...


class Backfill:
    """One thread that reads, once, beside everything else.

    Args:
        history: where from.
        worker: where to.
        keep_s: runs that were seen within this time may go on.
        wall_s: clock.
    """

    def __init__(
        self,
        history: PageHistory,
        worker: Backfilled,
        keep_s: float,
        wall_s: Callable[[], float] = time.time,
    ) -> None:
        self._history = history
        self._worker = worker
        self._keep_s = keep_s
        self._wall_s = wall_s

    def start(self) -> None:
        threading.Thread(target=self._run, name="straggler-refill", daemon=True).start()

    def _run(self) -> None:
        try:
            self._read(time.monotonic() + MAX_S)
        except StragglerError as error:  # the history itself says so to people
            _log.debug("the timelines of before cannot be shown: %s", error)
        except Exception:  # noqa: BLE001 - logged; the page does without
            _log.exception("the timelines of before cannot be shown")
        finally:
            self._worker.end_backfill()

    def _read(self, until_s: float) -> None:
        since_ns = (self._wall_s() - self._keep_s) * 1e9
        for run in self._history.runs():
            if run.last_seen_ns < since_ns or time.monotonic() >= until_s:
                return
            for group in self._groups(run.run_id):
                columns = self._history.newest(run.run_id, group, MAX_COLUMNS, until_s)
                self._worker.backfill(run.run_id, group, columns)

    def _groups(self, run_id: str) -> tuple[str, ...]:
        worlds = self._history.worlds(run_id)
        return tuple(seen.group for seen in worlds if seen.table is not None)

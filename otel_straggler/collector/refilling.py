"""At the start, the newest windows of the history become the first columns of the timelines."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Final

from otel_straggler.collector.page_history import PageHistory
from otel_straggler.collector.recent import MOST_COLUMNS, Recent
from otel_straggler.errors import StragglerError

_log = logging.getLogger(__name__)

LONGEST_S: Final = 5.0
"""Reading goes on for so long, the newest first; what is older stays in the history."""
_PATIENCE_S: Final = 10.0


class Refilling:
    """One thread that reads, once, beside everything else.

    Args:
        history: where from.
        recent: where to.
        keep_s: runs that were seen within this time may go on.
        wall_s: clock.
    """

    def __init__(
        self,
        history: PageHistory,
        recent: Recent,
        keep_s: float,
        wall_s: Callable[[], float] = time.time,
    ) -> None:
        self._history = history
        self._recent = recent
        self._keep_s = keep_s
        self._wall_s = wall_s
        self._is_done = threading.Event()

    def start(self) -> None:
        threading.Thread(target=self._run, name="straggler-refill", daemon=True).start()

    def wait(self) -> None:
        """Until it is done, or for ten seconds: a timeline grows at its end only."""
        self._is_done.wait(_PATIENCE_S)

    def _run(self) -> None:
        try:
            self._read(time.monotonic() + LONGEST_S)
        except StragglerError as error:  # the history itself says so to people
            _log.debug("the timelines of before cannot be shown: %s", error)
        except Exception:  # noqa: BLE001 - logged; the page does without
            _log.exception("the timelines of before cannot be shown")
        finally:
            self._is_done.set()

    def _read(self, until_s: float) -> None:
        since_ns = (self._wall_s() - self._keep_s) * 1e9
        for run in self._history.runs():
            if run.last_seen_ns < since_ns or time.monotonic() >= until_s:
                return
            for group in self._groups(run.run_id):
                columns = self._history.newest(run.run_id, group, MOST_COLUMNS, until_s)
                self._recent.put_before(run.run_id, group, columns)

    def _groups(self, run_id: str) -> tuple[str, ...]:
        worlds = self._history.worlds(run_id)
        return tuple(seen.group for seen in worlds if seen.table is not None)

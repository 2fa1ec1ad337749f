"""Timeouts learned from the intervals between heartbeats, and a watch that reports when one is
exceeded. File format and rules are those of NVRx."""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Final

from otel_straggler.agent.timeouts_json import read_heartbeat
from otel_straggler.detect.hangs.rank_timeouts import (
    SAFETY_FACTOR,
    HeartbeatTimeouts,
    averaged_heartbeat_timeouts,
)
from otel_straggler.errors import StragglerError
from otel_straggler.regular_files import open_regular, read_json

_CHECK_S: Final = 1.0


def calculated_timeouts(
    longest_initial_s: float, longest_s: float, current: HeartbeatTimeouts
) -> HeartbeatTimeouts:
    """Five times the longest interval; averaged with the current timeouts, if these were calculated
    too.

    >>> print(calculated_timeouts(2.0, 1.0, HeartbeatTimeouts(20.0, 15.0, True)))
    HeartbeatTimeouts(initial=15.00, subsequent=10.00, were_calculated=True)
    """
    return averaged_heartbeat_timeouts(
        SAFETY_FACTOR * longest_initial_s, SAFETY_FACTOR * longest_s, current
    )


def read_timeouts(path: Path) -> HeartbeatTimeouts:
    """Those in the file; unknown ones if there is no file, or none in it.

    Raises:
        ValueError: it is no such file.
    """
    try:
        current = read_json(path)["current_timeouts"]
        return read_heartbeat(current.get("heartbeat", {}))
    except FileNotFoundError:
        return HeartbeatTimeouts()
    except (OSError, StragglerError, LookupError, AttributeError) as error:
        message = f"{path} holds no heartbeat timeouts ({error!r}). Remove it to learn them again."
        raise ValueError(message) from error


def write_timeouts(path: Path, timeouts: HeartbeatTimeouts) -> None:
    """Replace the file as a whole."""
    partial = path.with_suffix(".partial")
    file = open_regular(partial, os.O_WRONLY | os.O_CREAT)
    with os.fdopen(file, "w", encoding="utf-8") as out:
        out.truncate()
        json.dump({"current_timeouts": {"heartbeat": asdict(timeouts)}}, out)
    partial.replace(path)


class HeartbeatWatch:
    """Measures intervals between heartbeats, and logs an error, with the stack of the thread that
    should beat, when one lasts longer than its timeout. It ends no process.

    Attributes:
        longest_initial_s, longest_s: 0 before the first heartbeat, and before the second.
        timeouts: may be replaced at any time.
    """

    def __init__(
        self,
        rank: int,
        timeouts: HeartbeatTimeouts,
        logger: logging.Logger,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self.timeouts = timeouts
        self.heartbeats = 0
        self.longest_initial_s = self.longest_s = 0.0
        self._rank, self._logger, self._now_s = rank, logger, now_s
        self._last_s = now_s()
        self._watched = threading.get_ident()
        self._has_reported = False
        self._stops = threading.Event()
        self._thread = threading.Thread(
            target=self._run, name="otel-straggler-heartbeat-watch", daemon=True
        )

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stops.set()
        if self._thread.is_alive():
            self._thread.join(_CHECK_S)

    def beat(self) -> None:
        """Count a heartbeat; cost: a microsecond."""
        now_s = self._now_s()
        interval_s, self._last_s = now_s - self._last_s, now_s
        if self.heartbeats:
            self.longest_s = max(self.longest_s, interval_s)
        else:
            self.longest_initial_s = interval_s
        self.heartbeats += 1
        if self._has_reported:
            self._has_reported = False
            self._logger.warning("Rank %d goes on after %.0f s.", self._rank, interval_s)

    def tick(self) -> None:
        """Report, once, an interval that is too long."""
        timeouts = self.timeouts
        timeout_s = timeouts.subsequent if self.heartbeats else timeouts.initial
        silent_s = self._now_s() - self._last_s
        if timeout_s is None or silent_s <= timeout_s or self._has_reported:
            return
        self._has_reported = True
        frame = sys._current_frames().get(self._watched)  # noqa: SLF001
        stack = "".join(traceback.format_stack(frame)) if frame else "  (its thread has ended)\n"
        self._logger.error(
            "Rank %d has made no progress for %.0f s, its timeout is %.0f s. It is at:\n%s",
            *(self._rank, silent_s, timeout_s, stack),
        )

    def _run(self) -> None:
        while not self._stops.wait(_CHECK_S):
            self.tick()

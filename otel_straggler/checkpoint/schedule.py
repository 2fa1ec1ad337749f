"""When to save, from what saves have cost and how often the run has failed."""

from __future__ import annotations

import logging
import time
from pathlib import Path
from typing import Final

from otel_straggler.checkpoint.folder import read_history, write_history
from otel_straggler.checkpoint.interval import estimated_mtbf_s, optimal_interval_s
from otel_straggler.checkpoint.membership import Membership
from otel_straggler.errors import ConfigError

_LOG = logging.getLogger("otel_straggler")
_FIRST_S: Final = 60.0
"""Until the first save, which measures what one costs."""
_SPREAD: Final = 0.25
"""Part of the interval."""
_LOGGED_CHANGE: Final = 1.2


class Schedule:
    """Answers whether a save is due.

    Args:
        every_steps, every_s, interval: see :class:`.Manager`.

    Attributes:
        mtbf_s: mean seconds between failures that the interval rests on; 0: none was computed yet.

    Raises:
        ConfigError: more than one is given, or one is not positive.
    """

    def __init__(
        self,
        every_steps: int | None,
        every_s: float | None,
        interval: str | None,
        mtbf_s: float | None,
    ) -> None:
        given = {"every_steps": every_steps, "every_s": every_s, "interval": interval}
        given = {name: value for name, value in given.items() if value is not None}
        if len(given) > 1:
            raise ConfigError.of(
                "Manager()", given, "one of every_steps, every_s, and interval", "Keep one."
            )
        for name, value in {
            "every_steps": every_steps,
            "every_s": every_s,
            "mtbf_s": mtbf_s,
        }.items():
            if value is not None and not value > 0:
                raise ConfigError.of(f"Manager({name}=...)", value, "above 0", "Leave it out.")
        if interval not in {None, "optimal"}:
            raise ConfigError.of("Manager(interval=...)", interval, "'optimal'", "Leave it out.")
        self._every_steps = every_steps
        self._every_s = every_s
        self._is_optimal = interval is not None
        self._mtbf_s = mtbf_s
        self._folder: Path | None = None
        self._history = {"attempts": 0.0, "clean_ends": 0.0, "run_s": 0.0}
        self._devices = 1
        self._began_s = self._due_from_s = time.monotonic()
        self._logged_s = 0.0
        self.mtbf_s = 0.0
        if self._is_optimal:
            self._every_s = _FIRST_S

    @property
    def interval_s(self) -> float | None:
        """Seconds between saves; None if they are counted in steps."""
        return self._every_s

    @property
    def optimal_s(self) -> float:
        """Seconds between saves if they are computed from what saves have cost; else 0."""
        return (self._every_s or 0.0) if self._is_optimal and self.mtbf_s else 0.0

    def spread_s(self, timeout_s: float) -> float:
        """Seconds over which a save that is due is written, so that it leaves the training its
        cores: a part of the interval between saves, as the longer it takes, the more is lost to a
        failure; and well within the time after which it is given up."""
        since_s = time.monotonic() - self._due_from_s
        interval_s = since_s if self._every_s is None else self._every_s
        return min(_SPREAD * interval_s, timeout_s * _SPREAD)

    def begin(self, members: Membership) -> None:
        self._devices = members.world_size
        if members.is_first:
            self._folder = members.folder
            self._history = {**self._history, **read_history(members.folder)}
            self._history["attempts"] += 1
            self._write(0.0)

    def end(self, *, is_clean: bool) -> None:
        self._history["clean_ends"] += is_clean
        self._write(time.monotonic() - self._began_s)

    def is_due_at_step(self, step: int) -> bool:
        return self._every_steps is not None and step % self._every_steps == 0

    def is_due_now(self) -> bool:
        is_due = self._every_s is not None and time.monotonic() - self._due_from_s >= self._every_s
        if is_due:
            self._due_from_s = time.monotonic()
        return is_due

    def begun(self) -> None:
        self._due_from_s = time.monotonic()

    def measured(self, blocking_s: float, save_s: float) -> None:
        """A save was committed."""
        run_s = time.monotonic() - self._began_s
        self._write(run_s)
        if not self._is_optimal:
            return
        failures = int(self._history["attempts"] - self._history["clean_ends"]) - 1
        run_s += self._history["run_s"]
        mtbf_s = self._mtbf_s or estimated_mtbf_s(max(failures, 0), run_s, self._devices)
        self.mtbf_s = mtbf_s
        self._every_s = optimal_interval_s(max(blocking_s, 1e-3), save_s, mtbf_s)
        change = self._every_s / self._logged_s if self._logged_s else float("inf")
        if self._folder is not None and not 1 / _LOGGED_CHANGE < change < _LOGGED_CHANGE:
            self._logged_s = self._every_s
            _LOG.info(
                "checkpoints every %.0f s: a save blocks %.3f s and takes %.1f s, and a failure is "
                "expected every %.1f h (%d so far)",
                self._every_s, blocking_s, save_s, mtbf_s / 3_600.0, max(failures, 0),
            )  # fmt: skip

    def _write(self, run_s: float) -> None:
        if self._folder is None:
            return
        history = {**self._history, "run_s": self._history["run_s"] + run_s}
        try:
            write_history(self._folder, history)
        except OSError as error:
            _LOG.warning("%s: its history was not written: %s", self._folder, error)

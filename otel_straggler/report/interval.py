"""After how many iterations a report is due, so that all ranks make it at the same one."""

from __future__ import annotations

import statistics
from collections.abc import Callable

import numpy as np

from otel_straggler.report.peers import Peers

ESTIMATED_OVER = 16


class ReportInterval:
    """Counts iterations; estimates once how many make up the wanted time.

    The median of the first 16 iteration times is taken, so slow first ones do not matter, and the
    largest answer over the ranks counts (one collective, once).

    Args:
        interval_s: seconds between reports.
        least: of iterations.
        monotonic_s: the clock.
    """

    def __init__(self, interval_s: float, least: int, monotonic_s: Callable[[], float]) -> None:
        self._interval_s = interval_s
        self._least = least
        self._monotonic_s = monotonic_s
        self._began_s: float | None = None
        self._times_s: list[float] = []
        self.current_iter = 0
        self.iter_interval: int | None = None

    @property
    def is_elapsed(self) -> bool:
        """Whether a report is due at this iteration."""
        return self.iter_interval is not None and self.current_iter % self.iter_interval == 0

    def count(self, peers: Callable[[], Peers]) -> None:
        """Another iteration has ended. A collective over ``peers()`` at the 17th call."""
        self.current_iter += 1
        if self.iter_interval is not None:
            return
        now_s = self._monotonic_s()
        if self._began_s is not None:
            self._times_s.append(now_s - self._began_s)
        self._began_s = now_s
        if len(self._times_s) == ESTIMATED_OVER:
            self.iter_interval = self._estimated(peers())

    def _estimated(self, peers: Peers) -> int:
        own = self._interval_s / max(statistics.median(self._times_s), 1e-9)
        largest = -float(peers.minimum(np.array([-own]))[0])
        return max(round(largest), self._least, 1)

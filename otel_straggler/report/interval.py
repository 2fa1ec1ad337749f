"""When a report is due in a loop that counts its iterations."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import numpy as np

from otel_straggler.client.identity import initialised_process_group
from otel_straggler.report.peers import Peers, TorchPeers


def default_peers() -> Peers:
    """The default group, if there is one."""
    return Peers(0) if initialised_process_group() is None else TorchPeers()


class ReportIntervalTracker:
    """Counts iterations; estimates once how many make up ``time_interval``.

    The lower median of the first 16 iteration times counts, and the largest estimate of all ranks
    (one collective).

    Args:
        time_interval: seconds between reports.
        profiling_interval: smallest number of iterations between reports.
        peers: gives the ranks that report together; default: those of the default group.

    Attributes:
        current_iter: iterations so far.
        iter_interval: iterations between reports; None until it is estimated.
        step_times: seconds, until then.
    """

    INTERVAL_ESTIMATION_ITERS = 16

    def __init__(
        self,
        time_interval: float = 60.0,
        profiling_interval: int = 1,
        *,
        peers: Callable[[], Peers] = default_peers,
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self.time_interval = time_interval
        self.profiling_interval = profiling_interval
        self.current_iter = 0
        self.iter_interval: int | None = None
        self.step_times: list[float] = []
        self._peers = peers
        self._monotonic_s = monotonic_s
        self._began_s: float | None = None

    def is_interval_elapsed(self) -> bool:
        """Whether a report is due at this iteration."""
        return self.iter_interval is not None and self.current_iter % self.iter_interval == 0

    def iter_increase(self) -> None:
        """Count an iteration. A collective at the 17th call."""
        self.current_iter += 1
        if self.iter_interval is not None:
            return
        now_s = self._monotonic_s()
        if self._began_s is not None:
            self.step_times.append(now_s - self._began_s)
        self._began_s = now_s
        if len(self.step_times) == self.INTERVAL_ESTIMATION_ITERS:
            self.iter_interval = self._estimated()
            self.step_times.clear()

    def _estimated(self) -> int:
        own = self.time_interval / max(statistics.median_low(self.step_times), 1e-9)
        largest = -float(self._peers().minimum(np.array([-own]))[0])
        return max(round(largest), self.profiling_interval, 1)

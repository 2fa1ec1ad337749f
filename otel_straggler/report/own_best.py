"""A rank's own best medians, also where a window has few executions."""

from __future__ import annotations

import numpy as np

from otel_straggler.detect.scores.references import References
from otel_straggler.model.observation import Floats
from otel_straggler.report.statistics import Times

MAX_POOLS = 65_536
_DEVICE = ("this device",)
_CONFIRMED_BY = 2


class OwnBest:
    """References of one rank by name.

    A median of fewer than ``min_samples`` executions is no reference by itself: one of them may be
    lucky. Such windows are pooled until they have as many; then the fastest level that at least two
    of these executions confirm is one.
    """

    def __init__(self, half_life_s: float, min_samples: int) -> None:
        self._references = References(half_life_s)
        self._min_samples = min_samples
        self._pools: dict[str, list[tuple[float, int]]] = {}

    def update(self, times: Times, now_ns: int) -> Floats:
        """Learn the medians of a window; its references, seconds, NaN where there is none yet."""
        candidate_s = times.median_s.copy()
        eligible = times.count >= self._min_samples
        for at in np.flatnonzero(~eligible).tolist():
            level_s = self._pooled(times.names[at], float(candidate_s[at]), int(times.count[at]))
            if level_s is not None:
                candidate_s[at], eligible[at] = level_s, True
        best_s: Floats = self._references.update(
            _DEVICE, times.names, candidate_s[None], eligible[None], now_ns
        )[0]
        return best_s

    def _pooled(self, name: str, median_s: float, count: int) -> float | None:
        if len(self._pools) > MAX_POOLS:  # names that vary do not fill the memory
            self._pools.clear()
        pool = self._pools.setdefault(name, [])
        pool.append((median_s, count))
        if sum(runs for _, runs in pool) < self._min_samples:
            return None
        del self._pools[name]
        confirmed = 0
        for level_s, runs in sorted(pool):
            confirmed += runs
            if confirmed >= _CONFIRMED_BY:
                return level_s
        return None

"""What runs have lost in the last minutes, from totals that only grow."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from otel_straggler.alerts.platform_rules import LOSSES_S
from otel_straggler.alerts.watched import Watched, WatchedRun

_Key = tuple[str, str]


@dataclass(slots=True)
class _Totals:
    """Totals of a run, and how they grew: (when, reason, by how much)."""

    totals: Mapping[str, int]
    grown: deque[tuple[float, str, int]] = field(default_factory=deque)


class RecentLosses:
    """Holds totals of runs, one look after the other. A run begins with none, and again if its
    total is smaller than it was."""

    def __init__(self) -> None:
        self._runs: dict[_Key, _Totals] = {}

    def of(self, watched: Watched, clock: float) -> Watched:
        """The same, with ``dropped`` being what was lost in the last five minutes."""
        runs = tuple(replace(run, dropped=self._recent(run, clock)) for run in watched.runs)
        known = {(run.run_id, run.group) for run in watched.runs}
        self._runs = {key: totals for key, totals in self._runs.items() if key in known}
        return replace(watched, runs=runs)

    def _recent(self, run: WatchedRun, clock: float) -> dict[str, int]:
        key = run.run_id, run.group
        held = self._runs.setdefault(key, _Totals({}))
        for reason, total in run.dropped.items():
            before = held.totals.get(reason, 0)
            grown = total - before if total >= before else total
            if grown > 0:
                held.grown.append((clock, reason, grown))
        held.totals = dict(run.dropped)
        while held.grown and held.grown[0][0] <= clock - LOSSES_S:
            held.grown.popleft()
        recent: dict[str, int] = {}
        for _, reason, count in held.grown:
            recent[reason] = recent.get(reason, 0) + count
        return recent

"""Places of runs and groups: who may send, decided before a request is acknowledged."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from otel_straggler.model.rank import Source

LIVE_S: Final = 120.0
"""What reported within this time keeps its place; twice the longest interval of a rank."""
RETRY_AFTER_S: Final = 30
"""Until whoever found no place asks again."""
What: TypeAlias = Literal["run", "group"]
Refused: TypeAlias = Mapping[Source, What]
"""Senders without a place, and what there are too many of."""


@dataclass(slots=True)
class _Run:
    """When it reported last, and each of its groups; earlier for what has ended."""

    at_s: float
    groups: dict[str, float] = field(default_factory=dict)


class Places:
    """Thread-safe; time is an argument. Receivers claim places before they acknowledge a request,
    and the scoring thread, which has the runs, says which are free again. Cost: about a microsecond
    per sender, O(runs) per sender of a new run.

    Args:
        max_runs, max_groups: of a run, that are live at a time.
    """

    def __init__(self, max_runs: int, max_groups: int) -> None:
        self._max_runs, self._max_groups = max_runs, max_groups
        self._runs: dict[str, _Run] = {}
        self._lock = threading.Lock()

    def claim(self, senders: Iterable[Source], now_s: float) -> Refused:
        """Take or keep a place for each sender; returns those without one."""
        refused: dict[Source, What] = {}
        with self._lock:
            for source in senders:
                if source not in refused and (what := self._refused(source, now_s)):
                    refused[source] = what
        return refused

    def end(self, source: Source, now_s: float) -> None:
        """A rank has ended: unless another reports, its place is free."""
        with self._lock:
            run = self._runs.get(source.run_id)
            if run is not None:
                run.at_s = now_s - LIVE_S
                run.groups[source.group] = now_s - LIVE_S

    def keep_only(self, known: Mapping[str, Collection[str]], now_s: float) -> None:
        """Free places of what is unknown (runs, and groups by run), unless it has just claimed one:
        its requests wait to be scored. What is known, from a history perhaps, has a place."""
        with self._lock:
            for run_id, groups in known.items():
                run = self._runs.setdefault(run_id, _Run(now_s - LIVE_S))
                for group in groups:
                    run.groups.setdefault(group, now_s - LIVE_S)
            for run_id, run in list(self._runs.items()):
                its = known.get(run_id, ())
                for group, at_s in list(run.groups.items()):
                    if group not in its and now_s - at_s >= LIVE_S:
                        del run.groups[group]
                if run_id not in known and now_s - run.at_s >= LIVE_S:
                    del self._runs[run_id]

    def _refused(self, source: Source, now_s: float) -> What | None:
        run = self._runs.get(source.run_id)
        if run is None:
            if not _has_room([its.at_s for its in self._runs.values()], self._max_runs, now_s):
                return "run"
            run = self._runs[source.run_id] = _Run(now_s)
        run.at_s = now_s
        if source.group not in run.groups and not _has_room(
            run.groups.values(), self._max_groups, now_s
        ):
            return "group"
        run.groups[source.group] = now_s
        return None


def _has_room(reported_at_s: Collection[float], limit: int, now_s: float) -> bool:
    """Silent ones give way; they are evicted at the next publication."""
    if len(reported_at_s) < limit:
        return True
    live = sum(now_s - at_s < LIVE_S for at_s in reported_at_s)
    return live < limit and len(reported_at_s) < 2 * limit

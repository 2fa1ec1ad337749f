"""Which runs and worlds are evicted, and when. Eviction must not resolve an alert: a run that is
stuck or lost stays for days, and is then ``forgotten`` for an hour before it is evicted.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Final

from otel_straggler.collector.runs.admission import LIVE_S
from otel_straggler.collector.runs.store import Run
from otel_straggler.collector.settings import ScoringSettings
from otel_straggler.model.verdict import hang_subject

_log = logging.getLogger(__name__)

SHOWN_S: Final = 3_600.0
"""How long a run is shown as forgotten."""


class Eviction:
    """The rules; time is an argument. ``give_up_s``: how long a run that hangs stays."""

    def __init__(self, limits: ScoringSettings, give_up_s: float) -> None:
        self._evict_s = limits.evict_run_s
        self._max_runs = limits.max_runs
        self._max_groups = limits.max_groups
        self._give_up_s = give_up_s

    def due_worlds(self, run: Run, now_s: float) -> list[str]:
        """Groups of a run to evict now: too many, or idle and never known."""
        known = {world.group: world for world in run.known_worlds()}
        idle = [
            group
            for group, world in run.worlds.items()
            if group not in known and now_s - world.admitted_at_s >= LIVE_S
        ]
        if len(known) <= self._max_groups:
            return idle
        hung = run.hung()
        minimum = min_missed(
            {group: world.liveness.touched_at_s or 0.0 for group, world in known.items()},
            self._max_groups,
            lambda group: hang_subject(group) in hung,
            lambda group: known[group].has_ended,
            now_s,
        )
        return [*idle, *minimum]

    def due_runs(
        self, runs: Collection[Run], needs_somebody: Callable[[Run], bool], now_s: float
    ) -> list[str]:
        """Runs to evict now. Cost: O(runs), and a sort where there are too many.

        Args:
            needs_somebody: whether it is stuck or lost, and not acknowledged.
        """
        known = {run.run_id: run for run in runs if run.is_known}
        gone = [
            run.run_id
            for run in runs
            if (
                self._goes(run, needs_somebody, now_s)
                if run.is_known
                else now_s - run.admitted_at_s >= LIVE_S
            )
        ]
        left = {run_id: run for run_id, run in known.items() if run_id not in gone}
        if len(left) > self._max_runs:
            stays = {
                run_id: run.given_up_at_s is None and needs_somebody(run)
                for run_id, run in left.items()
            }
            gone += min_missed(
                {run_id: run.touched_at_s for run_id, run in left.items()},
                self._max_runs,
                stays.__getitem__,
                lambda run_id: left[run_id].has_ended,
                now_s,
            )
        return gone

    def _goes(self, run: Run, needs_somebody: Callable[[Run], bool], now_s: float) -> bool:
        idle_s = now_s - run.touched_at_s
        if run.given_up_at_s is not None:
            if idle_s < self._give_up_s:
                run.given_up_at_s = None  # it reports again
                return False
            return now_s - run.given_up_at_s >= SHOWN_S
        if idle_s < min(self._evict_s, self._give_up_s):
            return False
        if not needs_somebody(run):
            return idle_s >= self._evict_s
        if idle_s >= self._give_up_s:
            run.given_up_at_s = now_s
            _log.warning(
                "monitoring gave up on run %s: it was stuck or lost when it last reported, "
                "%.0f hours ago, and has neither recovered nor reported its end",
                run.run_id,
                idle_s / 3_600.0,
            )
        return False


def min_missed(
    received: Mapping[str, float],
    limit: int,
    hangs: Callable[[str], bool],
    has_ended: Callable[[str], bool],
    now_s: float,
) -> Iterator[str]:
    """Names beyond the limit: first what has ended or is silent, longest first, of that what hangs
    last; then what is live. What has just ended is not live: else a rank between two heartbeats
    would be evicted for it.

    >>> received = {"trains": 90.0, "ended": 99.0, "new": 100.0}
    >>> list(min_missed(received, 2, lambda _: False, lambda name: name == "ended", 100.0))
    ['ended']
    """

    def rank(name: str) -> tuple[bool, bool, float]:
        is_live = now_s - received[name] < LIVE_S and not has_ended(name)
        return is_live, hangs(name), received[name]

    return iter(sorted(received, key=rank)[: max(0, len(received) - limit)])

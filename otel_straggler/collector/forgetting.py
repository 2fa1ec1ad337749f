"""Which runs are let go, and when. Nobody is told "resolved" because nobody watches any more: a run
that is stuck or lost stays for days, and is then called ``forgotten`` for an hour before it goes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Final

import numpy as np

from otel_straggler.collector.crowding import LIVE_S
from otel_straggler.score.hangs.detector import HangStatus

_log = logging.getLogger(__name__)

SHOWN_S: Final = 3_600.0
"""How long a run is shown as forgotten."""


class Forgetting:
    """Keeps in mind which runs were given up. One thread owns it; time is an argument.

    Args:
        forget_s: a run goes so long after its last sign of life.
        give_up_s: one that hangs stays so long.
        max_runs: the most that are kept; see :func:`least_missed`.
    """

    def __init__(self, *, forget_s: float, give_up_s: float, max_runs: int) -> None:
        self._forget_s = forget_s
        self._give_up_s = give_up_s
        self._max_runs = max_runs
        self._forgotten: dict[str, float] = {}

    def gone(
        self,
        heard: Mapping[str, float],
        hangs: Callable[[str], bool],
        now_s: float,
        has_ended: Callable[[str], bool] = lambda _: False,
    ) -> tuple[str, ...]:
        """The runs that go now. Cost: O(runs), and a sort where there are too many.

        Args:
            heard: when each run was last heard of.
            hangs: whether it is stuck or lost, and nobody has acknowledged that.
            has_ended: whether all its ranks said that they end.
        """
        self._forgotten = {run: at_s for run, at_s in self._forgotten.items() if run in heard}
        gone = {run for run, at_s in heard.items() if self._goes(run, now_s - at_s, hangs, now_s)}
        left = [run for run in heard if run not in gone]
        if len(left) > self._max_runs:
            stays = {run: run not in self._forgotten and hangs(run) for run in left}
            times = {run: heard[run] for run in left}
            gone.update(least_missed(times, self._max_runs, stays.__getitem__, has_ended, now_s))
        return tuple(gone)

    def shown(self, run_id: str, found: HangStatus) -> HangStatus:
        """What is shown of a world: nothing of its ranks once monitoring has given up."""
        if run_id not in self._forgotten:
            return found
        return replace(
            found,
            state="forgotten",
            since_s=self._forgotten[run_id],
            ranks=found.ranks[:0],
            rank_states=found.rank_states[:0],
            rank_since_s=found.rank_since_s[:0],
            timeout_s=found.timeout_s[:0],
            blame=None,
            hung_since_s=float(np.nan),
        )

    def _goes(self, run: str, idle_s: float, hangs: Callable[[str], bool], now_s: float) -> bool:
        given_up_at_s = self._forgotten.get(run)
        if given_up_at_s is not None:
            if idle_s < self._give_up_s:
                del self._forgotten[run]  # it speaks again
                return False
            return now_s - given_up_at_s >= SHOWN_S
        if idle_s < min(self._forget_s, self._give_up_s):
            return False
        if not hangs(run):
            return idle_s >= self._forget_s
        if idle_s >= self._give_up_s:
            self._forgotten[run] = now_s
            _log.warning(
                "monitoring gave up on run %s: it was stuck or lost when it was last heard of, "
                "%.0f hours ago, and has neither recovered nor said how it ended",
                run,
                idle_s / 3_600.0,
            )
        return False


def least_missed(
    heard: Mapping[str, float],
    most: int,
    hangs: Callable[[str], bool],
    has_ended: Callable[[str], bool],
    now_s: float,
) -> Iterable[str]:
    """What goes where there is more than is kept: first what has ended or is silent, the one that
    was heard of first; of that what hangs goes last, and after it what is heard of. Something that
    ended a moment ago is not live: else a rank that is between two heartbeats would go for it.

    >>> heard = {"trains": 90.0, "ended": 99.0, "new": 100.0}
    >>> list(least_missed(heard, 2, lambda _: False, lambda name: name == "ended", 100.0))
    ['ended']
    """

    def rank(name: str) -> tuple[bool, bool, float]:
        is_live = now_s - heard[name] < LIVE_S and not has_ended(name)
        return is_live, hangs(name), heard[name]

    return sorted(heard, key=rank)[: max(0, len(heard) - most)]

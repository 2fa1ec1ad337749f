"""The account of one world while it goes on: what is known of its ranks goes in, views come out."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from otel_straggler.collector.runs.liveness import WorldStatus
from otel_straggler.collector.runs.rank_status import RankStatus
from otel_straggler.detect.hangs.detector import HangStatus
from otel_straggler.goodput.live import GoodputView, LiveGoodput, Progress
from otel_straggler.model.verdict import Verdict

EVERY_S: Final = 10.0
"""From one account of a world to the next, and a tenth of the time since the first one where that
is less; longer with more runs than ``_AT_FULL_RATE``, so that all together take some per cent of
the scoring thread's time."""
_AT_FULL_RATE: Final = 200
_SOON_S: Final = 0.2
_CLOCKS_DIFFER_S: Final = 3.0
"""Smaller differences are transport delays."""
_OFTEN: Final = 10.0


@dataclass(slots=True)
class WorldGoodput:
    """Owned by one thread. Times are of the collector's clock.

    Attributes:
        view: the newest account; None before the first step or phase.
        accounted_at_s: when it was made.
    """

    live: LiveGoodput = field(default_factory=LiveGoodput)
    view: GoodputView | None = None
    accounted_at_s: float = -math.inf
    _first_at_s: float = math.inf
    _was_over: bool = False

    def evaluate(
        self,
        group: str,
        status: WorldStatus | None,
        hang: HangStatus | None,
        changes: Iterable[Verdict],
        *,
        now_s: float,
        ahead_s: float,
        n_runs: int = 1,
    ) -> GoodputView | None:
        """The account, made again if something is new and the last one is old enough.

        Args:
            ahead_s: the wall clock minus the collector's.
            n_runs: of the collector.
        """
        is_over = status is not None and status.finished_at_s is not None
        is_hung = hang is not None and hang.is_hung
        age_s = max(now_s - self._first_at_s, 0.0)
        every_s = min(EVERY_S, max(_SOON_S, age_s / _OFTEN)) * max(1.0, n_runs / _AT_FULL_RATE)
        is_first = self.view is None and self.live.has_news
        is_due = now_s - self.accounted_at_s >= every_s and (self.live.has_news or is_hung)
        if not (is_first or is_due or is_over != self._was_over):
            return self.view
        self._was_over = is_over
        self.accounted_at_s = now_s
        self._first_at_s = min(self._first_at_s, now_s)
        progress = _progress(status, is_hung=is_hung, now_s=now_s + ahead_s)
        self.view = self.live.evaluate(group, progress=progress, changes=changes)
        return self.view


def _progress(status: WorldStatus | None, *, is_hung: bool, now_s: float) -> Progress:
    """By the clock of the lowest rank, as its spans are."""
    if status is None or not status.ranks:
        return Progress()
    rank = status.ranks[min(status.ranks)]
    ends_s = [
        _by_clock_of(rank, each, each.finished_at_s)
        for each in status.ranks.values()
        if each.finished_at_s
    ]
    is_over = status.finished_at_s is not None and bool(ends_s)
    return Progress(
        step=-1 if rank.step is None else rank.step,
        at_ns=_ns(rank.progress_at_s or 0.0),
        now_ns=_ns(now_s) if is_hung and not is_over else 0,
        ended_ns=_ns(max(ends_s)) if is_over else 0,
    )


def _by_clock_of(rank: RankStatus, other: RankStatus, at_s: float) -> float:
    """A time of another rank by this one's clock; as it is if the clocks differ by no more than
    what arrives late."""
    ahead_s = rank.delay_s - other.delay_s
    return at_s - ahead_s if math.isfinite(ahead_s) and abs(ahead_s) >= _CLOCKS_DIFFER_S else at_s


def _ns(at_s: float) -> int:
    return round(at_s * 1e6) * 1000


def goodput_state(worlds: Iterable[tuple[str, str, WorldGoodput]], limit: int) -> dict[str, Any]:
    """Accounts of the worlds that were accounted for last, in JSON's types.

    Args:
        worlds: run, group and account of each.
    """
    known = [each for each in worlds if each[2].view is not None]
    known.sort(key=lambda each: each[2].accounted_at_s)
    return {
        "worlds": [
            {"run_id": run_id, "group": group, "goodput": its.live.state()}
            for run_id, group, its in known[-limit:]
        ]
    }


def restored_goodput(state: Mapping[str, Any]) -> dict[tuple[str, str], WorldGoodput]:
    """By run and group.

    Raises:
        ValueError, KeyError, TypeError: it is no state.
    """
    return {
        (str(each["run_id"]), str(each["group"])): WorldGoodput(
            LiveGoodput.restored(each["goodput"])
        )
        for each in state["worlds"]
    }

"""Since when a run stands still, from what is seen of it: one truth for all parts of a picture."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from otel_straggler.collector.views.answer_type import Json
from otel_straggler.collector.views.hang_json import ranks_text
from otel_straggler.collector.views.world_view import RankHeartbeats, WorldView
from otel_straggler.detect.hangs.episodes import How, Standstill, standstill
from otel_straggler.model.observation import Bools

__all__ = ["How", "Standstill", "standstill_of"]
_NOBODY = np.empty(0, np.int64)
_NEVER = np.empty(0)


def standstill_of(view: WorldView) -> Standstill | None:
    """None while the run gets on, or has ended. Cost: O(ranks)."""
    result, heartbeats = view.hang, view.heartbeats
    if result is None:
        return None
    known_s = result.hung_since_s if math.isfinite(result.hung_since_s) else result.since_s
    return standstill(
        result.state,
        result.ranks,
        result.blame,
        received=_NOBODY if heartbeats is None else heartbeats.ranks,
        silent_s=_NEVER if heartbeats is None else heartbeats.heartbeat_age_s,
        stalled_s=_NEVER if heartbeats is None else heartbeats.progress_age_s,
        known_since_s=known_s,
        now_s=view.now_s,
    )


_TIE_S: Final = 0.2
"""Ends that lie closer together have no order: times come from several hosts."""
_MAX_NAMED: Final = 8
"""Where more ranks than that of several nodes went first, their last words were lost rather."""


@dataclass(frozen=True, slots=True)
class FirstFailure:
    """Who went first.

    Attributes:
        ranks: ascending; several if nobody knows which of them.
        node: of all of them; empty if they are on several, or it is not known.
        is_silent: they ended without a word: killed, crashed or cut off. Else they recorded that
            they failed, or has_left.
        has_left: their programs ended before that without saying how, as by ``sys.exit()``.
        n_later: ranks that failed after them.
    """

    ranks: list[int]
    node: str
    is_silent: bool
    n_later: int
    has_left: bool = False

    @property
    def who(self) -> str:
        """
        >>> FirstFailure([3], "n1", True, 7).who
        'rank 3 on n1'
        """
        return ranks_text(self.ranks) + (f" on {self.node}" if self.node else "")

    @property
    def headline(self) -> str:
        if self.has_left:
            return f"{self.who} ended first, without saying how"
        return f"{self.who} {'died without a word' if self.is_silent else 'failed'} first"

    @property
    def sentence(self) -> str:
        if not self.n_later:
            return f"{self.headline}."
        later = "1 rank" if self.n_later == 1 else f"{self.n_later:,} ranks"
        return f"{self.headline}; after that {later} failed."

    def facts(self) -> Json:
        """For an answer."""
        is_one = len(self.ranks) == 1
        log = "the log of its launcher" if is_one else "the logs of their launchers"
        where = f"the kernel log of {self.node}" if self.node else "the kernel log of the host"
        silent = (
            f"Look for the exit code in {log}, and in {where} for the reason: out of memory, a "
            "fault of a GPU (Xid), a signal."
        )
        left = (
            f"Read the log of {self.who}: the program ended without a traceback and without "
            "shutdown(), as by sys.exit()."
        )
        text = f"Read the traceback of {self.who}: those of the others mostly follow from it."
        return {
            "scope": "rank" if is_one else None,
            "rank": self.ranks[0] if is_one else None,
            "node": self.node or None,
            "advice": [left if self.has_left else silent if self.is_silent else text],
        }


def first_failure(heartbeats: RankHeartbeats) -> FirstFailure | None:
    """From the last words of all ranks; None if nobody failed, or who went first is not known.

    A rank that was killed says nothing: it was last heard before anybody failed. One that its
    launcher killed because another had failed was heard after that. A program that ended without
    saying how may have exited because of an error; the others then fail because it is gone.
    Cost: O(R).
    """
    if not len(heartbeats.ended_age_s):
        return None
    outcomes = np.array(heartbeats.outcomes)
    has_failed = outcomes == "failed"
    if not has_failed.any():
        return None
    first_age_s = float(np.max(heartbeats.ended_age_s[has_failed]))
    died = (outcomes == "") & (heartbeats.heartbeat_age_s > first_age_s)
    if died.any():
        result = _named(heartbeats, died, is_silent=True, n_later=int(has_failed.sum()))
        return result if result.node or len(result.ranks) <= _MAX_NAMED else None
    unsaid = outcomes == "unknown"
    left = unsaid & (heartbeats.ended_age_s > first_age_s + _TIE_S)
    if left.any():
        n_later = int(has_failed.sum())
        result = _named(heartbeats, left, is_silent=False, n_later=n_later, has_left=True)
        return result if len(result.ranks) <= _MAX_NAMED else None
    if (unsaid & (heartbeats.ended_age_s > first_age_s - _TIE_S)).any():
        return None
    is_first = has_failed & (heartbeats.ended_age_s > first_age_s - _TIE_S)
    if is_first.sum() > max(1, min(_MAX_NAMED, has_failed.sum() // 2)):
        return None
    n_later = int(has_failed.sum() - is_first.sum())
    return _named(heartbeats, is_first, is_silent=False, n_later=n_later)


def _named(
    heartbeats: RankHeartbeats,
    chosen: Bools,
    *,
    is_silent: bool,
    n_later: int,
    has_left: bool = False,
) -> FirstFailure:
    nodes = {heartbeats.nodes[at] for at in np.flatnonzero(chosen).tolist()}
    node = nodes.pop() if len(nodes) == 1 else ""
    return FirstFailure(heartbeats.ranks[chosen].tolist(), node, is_silent, n_later, has_left)

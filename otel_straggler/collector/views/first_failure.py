"""The rank that failed first in a failed run, which the others followed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from otel_straggler.collector.views.answer_type import Json
from otel_straggler.collector.views.world_view import RankHeartbeats
from otel_straggler.model.observation import Bools
from otel_straggler.model.rank_names import ranks_text

_TIE_S: Final = 0.2
"""Ends closer together have no order: times come from several hosts."""
_MAX_NAMED: Final = 8
"""With more ranks on several nodes, their final messages were probably lost."""


@dataclass(frozen=True, slots=True)
class FirstFailure:
    """
    Attributes:
        ranks: ascending; several if it is not known which of them.
        node: of all of them; empty if they are on several, or it is not known.
        is_silent: they ended without a message: killed, crashed, or cut off.
        has_left: their programs ended without saying how, as by ``sys.exit()``.
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
            return f"{self.who} exited first, without reporting why"
        return f"{self.who} {'died silently' if self.is_silent else 'failed'} first"

    @property
    def sentence(self) -> str:
        if not self.n_later:
            return f"{self.headline}."
        later = "1 rank" if self.n_later == 1 else f"{self.n_later:,} ranks"
        return f"{self.headline}; {later} failed after that."

    def facts(self) -> Json:
        is_one = len(self.ranks) == 1
        if self.has_left:
            advice = (
                f"Read the log of {self.who}: the program exited without a traceback and without "
                "shutdown(), as with sys.exit()."
            )
        elif self.is_silent:
            log = "the log of its launcher" if is_one else "the logs of their launchers"
            where = f"the kernel log of {self.node}" if self.node else "the kernel log of the host"
            advice = (
                f"Look for the exit code in {log}, and for the reason in {where}: out of memory, "
                "a GPU fault (Xid), a signal."
            )
        else:
            advice = f"Read the traceback of {self.who}: the others are usually consequences of it."
        return {
            "scope": "rank" if is_one else None,
            "rank": self.ranks[0] if is_one else None,
            "node": self.node or None,
            "advice": [advice],
        }


def first_failure(heartbeats: RankHeartbeats) -> FirstFailure | None:
    """None if no rank failed, or the first one is not known. Cost: O(R).

    A killed rank sends nothing: its last heartbeat came before the first failure; that of a rank
    that its launcher killed because of another failure came later. A program that ended without
    saying how may have failed, and the others because it was gone; where no rank failed, its
    launcher ended the others because of it.
    """
    outcomes = np.array(heartbeats.outcomes)
    has_failed = outcomes == "failed"
    if not has_failed.any():
        return _left_first(heartbeats, outcomes)
    n_failed = int(has_failed.sum())
    first_age_s = float(np.max(heartbeats.ended_age_s[has_failed]))
    died = (outcomes == "") & (heartbeats.heartbeat_age_s > first_age_s)
    if died.any():
        result = _named(heartbeats, died, is_silent=True, n_later=n_failed)
        return result if result.node or len(result.ranks) <= _MAX_NAMED else None
    is_unknown = outcomes == "unknown"
    left = is_unknown & (heartbeats.ended_age_s > first_age_s + _TIE_S)
    if left.any():
        result = _named(heartbeats, left, n_later=n_failed, has_left=True)
        return result if len(result.ranks) <= _MAX_NAMED else None
    if (is_unknown & (heartbeats.ended_age_s > first_age_s - _TIE_S)).any():
        return None
    is_first = has_failed & (heartbeats.ended_age_s > first_age_s - _TIE_S)
    if is_first.sum() > max(1, min(_MAX_NAMED, n_failed // 2)):
        return None
    return _named(heartbeats, is_first, n_later=n_failed - int(is_first.sum()))


def _left_first(
    heartbeats: RankHeartbeats, outcomes: np.typing.NDArray[Any]
) -> FirstFailure | None:
    """Who exited before SIGTERM ended the others; None if nobody did."""
    ended_s = heartbeats.ended_age_s
    is_preempted = outcomes == "preempted"
    if not is_preempted.any():
        return None
    left = (outcomes == "unknown") & (ended_s > float(np.max(ended_s[is_preempted])))
    result = _named(heartbeats, left, n_later=0, has_left=True)
    return result if 0 < len(result.ranks) <= _MAX_NAMED else None


def _named(
    heartbeats: RankHeartbeats,
    chosen: Bools,
    *,
    n_later: int,
    is_silent: bool = False,
    has_left: bool = False,
) -> FirstFailure:
    nodes = {heartbeats.nodes[at] for at in np.flatnonzero(chosen).tolist()}
    node = nodes.pop() if len(nodes) == 1 else ""
    return FirstFailure(heartbeats.ranks[chosen].tolist(), node, is_silent, n_later, has_left)

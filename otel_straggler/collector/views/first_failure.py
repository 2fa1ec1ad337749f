"""The rank that failed first in a failed run, which the others followed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from otel_straggler.collector.views.answer_type import Json
from otel_straggler.collector.views.world_view import RankHeartbeats
from otel_straggler.model.observation import Bools
from otel_straggler.model.rank_failure import FailureKind
from otel_straggler.model.rank_names import ranks_text

_TIE_S: Final = 0.2
"""Ends closer together have no order: times come from several hosts."""
_MAX_NAMED: Final = 8
"""With more ranks on several nodes, their final messages were probably lost."""
_SURELY_S: Final = 10.0
"""Two heartbeats: a rank that was silent for so long when another one raised had died before. One
whose last heartbeat is newer may have been aborted because of that."""


@dataclass(frozen=True, slots=True)
class FirstFailure:
    """
    Attributes:
        ranks: ascending; several if it is not known which of them.
        node: of all of them; empty if they are on several, or it is not known.
        is_silent: they ended without a message: killed, crashed, or cut off.
        has_left: their programs ended without saying how, as by ``sys.exit()``.
        how: what is known of the failure, such as ``ValueError: bad sample`` or ``SIGKILL``; empty
            if nothing is.
    """

    ranks: list[int]
    node: str
    is_silent: bool
    n_later: int
    has_left: bool = False
    how: str = ""

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
        head = f"{self.headline}: {self.how}" if self.how else self.headline
        if not self.n_later:
            return head if head.endswith((".", "!", "?")) else f"{head}."
        later = "1 rank" if self.n_later == 1 else f"{self.n_later:,} ranks"
        return f"{head.rstrip('.')}; {later} failed after that."

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

    What a rank says of itself goes first: an exception of its own, or an exit with an error code,
    before ends that follow from another rank's (a lost connection, SIGABRT of a watchdog), in
    whatever order they became known. A killed rank sends nothing: its last heartbeat came before
    the first failure; that of a rank that its launcher killed because of another failure came
    later. A program that ended without saying how may have failed, and the others because it was
    gone; where no rank failed, its launcher ended the others because of it.
    """
    outcomes = np.array(heartbeats.outcomes)
    has_failed = outcomes == "failed"
    if not has_failed.any():
        return _without_failure(heartbeats, outcomes)
    n_failed = int(has_failed.sum())
    own = has_failed & ~_is_kind(heartbeats, "lost_peer")
    causes = own if own.any() else has_failed
    first_age_s = float(np.max(heartbeats.ended_age_s[causes]))
    is_first = causes & (heartbeats.ended_age_s > first_age_s - _TIE_S)
    has_raised = bool((is_first & _is_kind(heartbeats, "raised")).any())
    died = _died_before(heartbeats, outcomes, first_age_s + (_SURELY_S if has_raised else 0.0))
    if died.any():
        result = _named(heartbeats, died, is_silent=True, n_later=n_failed)
        return result if result.node or len(result.ranks) <= _MAX_NAMED else None
    is_unknown = (outcomes == "unknown") & (not has_raised)
    left = is_unknown & (heartbeats.ended_age_s > first_age_s + _TIE_S)
    if left.any():
        result = _named(heartbeats, left, n_later=n_failed, has_left=True)
        return result if len(result.ranks) <= _MAX_NAMED else None
    if (is_unknown & (heartbeats.ended_age_s > first_age_s - _TIE_S)).any():
        return None
    if is_first.sum() > max(1, min(_MAX_NAMED, n_failed // 2)):
        return None
    return _named(heartbeats, is_first, n_later=n_failed - int(is_first.sum()))


def _is_kind(heartbeats: RankHeartbeats, kind: FailureKind) -> Bools:
    """(R,) whether a rank failed so, as it or its launcher has said."""
    if not len(heartbeats.failure_kinds):
        return np.zeros(len(heartbeats.ranks), bool)
    result: Bools = np.array(heartbeats.failure_kinds) == kind
    return result


def _died_before(
    heartbeats: RankHeartbeats, outcomes: np.typing.NDArray[Any], age_s: float
) -> Bools:
    died: Bools = (outcomes == "") & (heartbeats.heartbeat_age_s > age_s)
    return died


def _without_failure(
    heartbeats: RankHeartbeats, outcomes: np.typing.NDArray[Any]
) -> FirstFailure | None:
    """Who exited, or died, before SIGTERM ended the others; None if nobody did."""
    ended_s = heartbeats.ended_age_s
    is_preempted = outcomes == "preempted"
    if not is_preempted.any():
        return None
    first_age_s = float(np.max(ended_s[is_preempted]))
    left = (outcomes == "unknown") & (ended_s > first_age_s)
    died = _died_before(heartbeats, outcomes, first_age_s)
    is_silent = bool(died.any()) and not left.any()
    chosen = died if is_silent else left
    result = _named(heartbeats, chosen, n_later=0, is_silent=is_silent, has_left=not is_silent)
    return result if 0 < len(result.ranks) <= _MAX_NAMED else None


def _named(
    heartbeats: RankHeartbeats,
    chosen: Bools,
    *,
    n_later: int,
    is_silent: bool = False,
    has_left: bool = False,
) -> FirstFailure:
    rows = np.flatnonzero(chosen).tolist()
    nodes = {heartbeats.nodes[row] for row in rows}
    node = nodes.pop() if len(nodes) == 1 else ""
    texts = {heartbeats.failure_texts[row] for row in rows} if heartbeats.failure_texts else set()
    how = texts.pop() if len(texts) == 1 else ""
    ranks = heartbeats.ranks[chosen].tolist()
    return FirstFailure(ranks, node, is_silent, n_later, has_left, how)

"""Whether a run as a whole does not get on, or only some of its ranks are gone."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from otel_straggler.score.hangs.judge import Found
from otel_straggler.score.hangs.settings import HangSettings
from otel_straggler.score.hangs.signs import LOST, STUCK


def is_hung(found: Found, lost_quorum: float) -> bool:
    """True if the run is stuck or lost; or partly lost, with at least ``lost_quorum`` of its world
    lost, or with a survivor that is stuck. Cost: O(ranks) for a run that is partly lost.

    Args:
        lost_quorum: of ``HangSettings``; the world is all ranks that are judged, those that were
            expected and never heard of among them.
    """
    if found.state != "partly_lost":
        return found.state in ("stuck", "lost")
    states = found.rank_states
    lost = int(np.count_nonzero(states == LOST))
    return lost >= lost_quorum * len(states) or bool((states == STUCK).any())


@dataclass(slots=True)
class HungRun:
    """The same, look by look. Where a frozen host goes on, its rank lets the others get on at once
    and is heard of a heartbeat later: the run is hung until then, so that its end is told once, and
    not after it that the rank is lost. Whose lost rank stays away is not hung any more
    ``lost_after_s`` after its survivors got on.
    """

    settings: HangSettings
    _last_s: float = -math.inf

    def look(self, found: Found, now_s: float) -> bool:
        """Whether it is hung at ``now_s``. Cost: see :func:`is_hung`."""
        if is_hung(found, self.settings.lost_quorum):
            self._last_s = now_s
            return True
        is_of_late = 0.0 <= now_s - self._last_s <= self.settings.lost_after_s
        return found.state == "partly_lost" and is_of_late

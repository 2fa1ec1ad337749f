"""Whether a run as a whole does not get on, or only some of its ranks are gone."""

from __future__ import annotations

import numpy as np

from otel_straggler.score.hangs.judge import Found
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

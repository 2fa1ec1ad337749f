"""Since when a run stands still, from what is seen of it: one truth for all parts of a picture."""

from __future__ import annotations

import math

import numpy as np

from otel_straggler.publish.picture.seen import Seen
from otel_straggler.score.hangs.episodes import How, Standstill, standstill

__all__ = ["How", "Standstill", "standstill_of"]
_NOBODY = np.empty(0, np.int64)
_NEVER = np.empty(0)


def standstill_of(seen: Seen) -> Standstill | None:
    """None while the run gets on, or has ended. Cost: O(ranks)."""
    found, signs = seen.found, seen.signs
    if found is None:
        return None
    known_s = found.hung_since_s if math.isfinite(found.hung_since_s) else found.since_s
    return standstill(
        found.state,
        found.ranks,
        found.blame,
        heard=_NOBODY if signs is None else signs.ranks,
        silent_s=_NEVER if signs is None else signs.heartbeat_age_s,
        stalled_s=_NEVER if signs is None else signs.progress_age_s,
        known_since_s=known_s,
        now_s=seen.now_s,
    )

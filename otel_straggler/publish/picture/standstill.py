"""Since when a run stands still, and what that costs: one truth for all that a picture says of it.

People count from the last progress, and not from when it was clear that there would be no more.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from otel_straggler.model.observation import Floats
from otel_straggler.publish.picture.seen import Seen
from otel_straggler.score.hangs.judge import Found

_GOES_ON_S: Final = 20.0
"""Ranks that progress for so much longer than one is silent do not wait for it. That is several
heartbeats: until the last of them, a rank may have died at any moment after its last word."""


How = Literal["idle", "goes_on", "unheard"]


@dataclass(frozen=True, slots=True)
class Standstill:
    """How a hung run stands.

    Attributes:
        how: ``idle``: all wait; ``goes_on``: the others train as if nothing were wrong;
            ``unheard``: no rank says anything, so nobody knows.
        since_s: when the run (or, if others go on, who is silent) last showed progress (or life),
            seconds since 1970; NaN if nobody knows.
        idle_s: for how long nothing has got on.
        n_idle: GPUs that are known to wait.
    """

    how: How
    since_s: float
    idle_s: float = 0.0
    n_idle: int = 0

    @property
    def lost_s(self) -> float:
        """GPU seconds that have been lost by it."""
        return self.idle_s * self.n_idle


def standstill_of(seen: Seen) -> Standstill | None:
    """None while the run gets on, or has ended. Cost: O(ranks)."""
    found = seen.found
    if found is None or not found.is_hung:
        return None
    known_s = found.hung_since_s if math.isfinite(found.hung_since_s) else found.since_s
    silent_s = _silent_since_s(seen, found)
    if found.state == "lost":
        return Standstill("unheard", silent_s if math.isfinite(silent_s) else known_s)
    progress_s = _last(seen, None if seen.signs is None else seen.signs.progress_age_s)
    if math.isfinite(silent_s) and progress_s - silent_s >= _GOES_ON_S:
        return Standstill("goes_on", silent_s)
    since_s = progress_s if math.isfinite(progress_s) else known_s
    idle_s = max(seen.now_s - since_s, 0.0) if math.isfinite(since_s) else 0.0
    return Standstill("idle", since_s, idle_s, len(found.ranks))


def _last(seen: Seen, ages_s: Floats | None) -> float:
    """The newest of some moments; NaN if there is none."""
    known = () if ages_s is None else ages_s[np.isfinite(ages_s)]
    return seen.now_s - float(np.min(known)) if len(known) else math.nan


def _silent_since_s(seen: Seen, found: Found) -> float:
    """When those that are lost last gave a sign of life; NaN if none is, or none ever spoke."""
    if found.blame is None or found.blame.kind != "lost" or seen.signs is None:
        return math.nan
    is_lost = np.isin(seen.signs.ranks, found.ranks[found.blame.culprits])
    return _last(seen, seen.signs.heartbeat_age_s[is_lost])

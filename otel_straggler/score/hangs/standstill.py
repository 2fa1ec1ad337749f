"""Since when a run stands still, and how much GPU time that has cost.

People count from the last progress, and not from when it was clear that there would be no more.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from otel_straggler.model.observation import Floats, Ints
from otel_straggler.score.hangs.culprits import Blame
from otel_straggler.score.hangs.run_state import HANGS, RunState

_GOES_ON_S: Final = 20.0
"""Ranks that progress for so much longer than one is silent do not wait for it. That is several
heartbeats: until the last of them, a rank may have died at any moment after its last word."""
_SAME_S: Final = 10.0
"""Moments that are closer are of one standstill: what delays of senders are known moves them."""

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


def standstill(
    state: RunState,
    ranks: Ints,
    blame: Blame | None,
    *,
    heard: Ints,
    silent_s: Floats,
    stalled_s: Floats,
    known_since_s: float,
    now_s: float,
) -> Standstill | None:
    """None while the run gets on, or has ended. Cost: O(ranks).

    Args:
        ranks, blame: of the world, as the judge has them.
        heard: ranks of whom the ages are.
        silent_s, stalled_s: since the newest sign of life, and of progress; NaN: never.
        known_since_s: when the judge found out, for want of anything better.
    """
    if state not in HANGS:
        return None
    silent_since_s = math.nan
    if blame is not None and blame.kind == "lost":
        is_lost = np.isin(heard, ranks[blame.culprits])
        silent_since_s = now_s - _least(silent_s[is_lost])
    if state == "lost":
        known = math.isfinite(silent_since_s)
        return Standstill("unheard", silent_since_s if known else known_since_s)
    progress_s = now_s - _least(stalled_s)
    if math.isfinite(silent_since_s) and progress_s - silent_since_s >= _GOES_ON_S:
        return Standstill("goes_on", silent_since_s)
    since_s = progress_s if math.isfinite(progress_s) else known_since_s
    idle_s = max(now_s - since_s, 0.0) if math.isfinite(since_s) else 0.0
    return Standstill("idle", since_s, idle_s, len(ranks))


def _least(ages_s: Floats) -> float:
    known = ages_s[np.isfinite(ages_s)]
    return float(known.min()) if len(known) else math.nan


@dataclass(slots=True)
class IdleGpus:
    """GPU seconds that the standstills of one world have cost so far. Never goes down.

    The newest one counts until another begins: what is restored in the midst of it, and finds it
    again, does not count it twice.
    """

    _before_s: float = 0.0
    _newest_s: float = 0.0
    _since_s: float = math.nan

    @property
    def total_s(self) -> float:
        return self._before_s + self._newest_s

    def move(self, by_s: float) -> None:
        """The clock was set by so much."""
        self._since_s += by_s

    def take(self, stands: Standstill | None) -> None:
        """How the world stands now; None: it gets on."""
        if stands is None or stands.how != "idle" or not math.isfinite(stands.since_s):
            return
        if not stands.since_s < self._since_s + _SAME_S:
            self._before_s, self._newest_s = self.total_s, 0.0
            self._since_s = stands.since_s
        self._newest_s = max(self._newest_s, stands.lost_s)

    def state(self) -> list[float | None]:
        """In JSON's types."""
        since_s = self._since_s if math.isfinite(self._since_s) else None
        return [self._before_s, self._newest_s, since_s]

    @classmethod
    def restored(cls, state: Sequence[float | None]) -> IdleGpus:
        """From :meth:`state`.

        Raises:
            ValueError, TypeError: it is none.
        """
        before_s, newest_s, since_s = state
        return cls(
            float(before_s or 0.0), float(newest_s or 0.0), math.nan if since_s is None else since_s
        )

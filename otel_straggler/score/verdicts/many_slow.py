"""Where many peers are slow at once their median is slow, too: how slow somebody is then."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from otel_straggler.model.observation import Floats
from otel_straggler.score.medians import median_of
from otel_straggler.score.verdicts.candidates import Candidate
from otel_straggler.score.verdicts.findings import Flags

MANY = 0.25
"""Part of all that do the same work; fewer hardly move their median. One alone is not many."""


def against_the_others(
    one: Candidate, recent: Floats, group: Flags, peers: Flags, slow: Flags, least: int
) -> tuple[Candidate, Flags]:
    """The candidate against those of its peers that are not slow, if many are.

    Times are compared with the median of all peers. If half of them are slow it lies halfway, and
    all of them are named by half of what they are slow. Who is found stays as it is; only by how
    much is told anew.

    Args:
        one: of a rank or a host.
        recent: (R, C) excess of the ranks over the median of their peers, of late.
        group: (R,) whose median it was compared with.
        peers: (R,) those of them who are not of it.
        slow: (R,) who is found slow.
        least: with fewer that are not, all stays as it is.

    Returns:
        The candidate, and (R,) with whom it is compared now.
    """
    known = np.isfinite(recent[:, one.column])
    others = peers & known & ~slow
    if (group & slow).sum() < max(2, MANY * group.sum()) or others.sum() < least:
        return one, peers
    lower = median_of(recent[others, one.column])
    if not lower < 0.0:
        return one, others
    peers_s = one.peers_s * math.exp(lower)
    return replace(
        one,
        effect=one.effect - lower,
        peers_s=peers_s,
        lost_s=one.lost_s + one.peers_s - peers_s,
    ), others

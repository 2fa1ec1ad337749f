"""Work that a rank has and its peers have not: a section that they do not run, as where one rank
writes the log. What it takes longer there is no slowness, and no peer can be compared with."""

from __future__ import annotations

import numpy as np

from otel_straggler.score.medians import nan_median
from otel_straggler.score.verdicts.excess import LEAST_PRESENCE, Excesses
from otel_straggler.score.verdicts.findings import Flags
from otel_straggler.score.verdicts.world import World

MOST_OF_IT = 0.75
"""What a rank loses is put down to such a section if this part of it lies there."""


def extra_work(excess: Excesses, world: World, local: Flags, row: int, lost_s: float) -> str:
    """In words, if most of ``lost_s`` (seconds per step) lies in one such section; else empty.

    Args:
        local: (S,) sections of own work.
        row: of the rank.

    Cost: O(T x peers x S).
    """
    peers = np.flatnonzero(world.peers.code == world.peers.code[row])
    others = peers[peers != row]
    if len(others) == 0:
        return ""
    own_s = excess.late_s[:, row] + excess.peers_s[:, world.peers.code[row]]
    is_mine = 2 * np.isfinite(own_s).sum(axis=0) > len(own_s)
    is_theirs = np.isfinite(excess.late_s[:, others]).mean(axis=(0, 1)) >= LEAST_PRESENCE
    usual_s = np.where(local & is_mine & ~is_theirs, np.nan_to_num(nan_median(own_s, axis=0)), 0.0)
    section = int(np.argmax(usual_s))
    if not usual_s[section] > 0.0 or usual_s[section] < MOST_OF_IT * lost_s:
        return ""
    name = world.sections[section].name
    return f"{usual_s[section]:.2g} s of each step in {name}, which most of its peers do not run"

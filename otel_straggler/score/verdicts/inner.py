"""Ranks that split the same layers among them (tensor and context parallel) meet in every layer: in
such a section all of them take what the slowest takes, and none can be told from the others."""

from __future__ import annotations

import numpy as np

from otel_straggler.model.observation import Floats
from otel_straggler.score.verdicts.findings import Flags
from otel_straggler.score.verdicts.grouping import Groups
from otel_straggler.score.verdicts.waits import Synchronising
from otel_straggler.score.verdicts.world import World

ALIKE = 0.25
"""Ranks that meet differ from each other by less than this part of what they differ from peers."""
ENOUGH_RANKS = 2048


class Inner:
    """Which sections the ranks of an inner group go through together; learns by the block."""

    def __init__(self) -> None:
        self._meeting = Synchronising()

    def shared(self, late_s: Floats, world: World, carried_from: int | None = None) -> Flags:
        """(S,) the sections that are shared.

        They are where the ranks of a group take alike, or where what one comes late evens out
        within the group.

        Args:
            late_s: (T, R, S) seconds beyond the median of the peers.
            carried_from: from this section on, what a rank comes late it carries into the next
                step, as it does where nobody waits at the end of a step; None: it does not.

        Cost: O(T R S log of the group's size), for 2,048 ranks at most.
        """
        shared = np.zeros(len(world.sections), bool)
        if len(world.inner) == world.n_ranks:
            return shared
        rows, groups = _some(world.inner)
        late_s = late_s[:, rows]
        middle = np.moveaxis(groups.medians(np.moveaxis(late_s, 1, -1)), -1, 1)
        apart = late_s - middle[:, groups.code]
        if carried_from is None:
            self._meeting.observe(apart, world.sections)
        else:
            carried_s = np.nansum(apart[:-1, :, carried_from:], axis=2)
            self._meeting.observe(apart[1:], world.sections, carried_s)
        for s, section in enumerate(world.sections):
            known = np.isfinite(apart[..., s])
            typical = np.median(np.abs(late_s[..., s][known])) if known.any() else 0.0
            is_alike = known.any() and np.median(np.abs(apart[..., s][known])) < ALIKE * typical
            shared[s] = bool(is_alike) or section.name in self._meeting.behaves
        return shared


def _some(inner: Groups) -> tuple[Flags, Groups]:
    """Rows of the first groups, up to 2,048, and these groups."""
    rows = inner.code < max(1, ENOUGH_RANKS // int(inner.size.max()))
    return rows, Groups.of(inner.code[rows].tolist())

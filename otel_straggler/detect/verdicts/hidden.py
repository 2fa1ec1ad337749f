"""Decides whether a slow rank would show: not if ranks wait for each other where nobody sees it.

Ranks that train together wait for each other in every step. Where no section waits, none behaves
so, and neither kernels nor collectives are timed, that waiting is inside some section, and all take
as long in it as the slowest. Then nothing may sound as if all were well.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from otel_straggler.detect.scores.medians import median_of, median_of_rows
from otel_straggler.detect.verdicts.excess import EqualizedSections, Excesses, local_sections
from otel_straggler.detect.verdicts.waits import WaitDetector
from otel_straggler.detect.verdicts.world import World
from otel_straggler.model.observation import COLLECTIVE, TELLS_WAITING, Floats
from otel_straggler.model.step_table import StepTable

MUCH, STILL_MUCH = 0.4, 0.3
"""A section with waiting holds work, too, if even the last to arrive waits this part of the step
there, or the other where it did before."""
BLOCKS = 8
"""Blocks (40 steps) whose median part counts."""
REMEMBERED_BLOCKS = 20
"""A section that waits may run once in so many blocks (100 steps)."""


@dataclass(slots=True)
class HiddenWork:
    """Looks at every block, and sets ``inside`` and ``is_unseen`` of a detector."""

    _equalized: EqualizedSections = field(default_factory=EqualizedSections)
    _parts: deque[float] = field(default_factory=lambda: deque(maxlen=BLOCKS))
    _blocks_since: int = REMEMBERED_BLOCKS

    def observe(
        self, block: StepTable, excess: Excesses, world: World, waiting: WaitDetector
    ) -> None:
        """Learn from a block. Cost: O(T R S)."""
        if self._shows_waiting(block, excess, world, waiting):
            waiting.is_unseen = False
            self._equalized = EqualizedSections()
            waiting.inside = self._holds_work(block, excess, world, waiting)
            return
        waiting.is_unseen = world.n_ranks > 1
        local = local_sections(world, waiting)
        waiting.inside = self._equalized.observe(excess, world.sections, local)

    def _shows_waiting(
        self, block: StepTable, excess: Excesses, world: World, waiting: WaitDetector
    ) -> bool:
        waits = np.array([waiting.waits(section) for section in world.sections], bool)
        has_run = bool(np.isfinite(block.seconds[..., waits]).any())
        self._blocks_since = 0 if has_run else self._blocks_since + 1
        timed = excess.timed
        if timed is not None and np.isin(timed.basis, TELLS_WAITING).any(axis=1).all():
            return True
        return self._blocks_since < REMEMBERED_BLOCKS

    def _holds_work(
        self, block: StepTable, excess: Excesses, world: World, waiting: WaitDetector
    ) -> str:
        """Name of the section in which even the last to arrive waits for much of the step; or
        empty."""
        waited_s = _waited_s(block, excess, world, waiting)
        if not waited_s:
            self._parts.clear()
            return ""
        with np.errstate(divide="ignore", invalid="ignore"):
            parts = {
                name: median_of_rows((shortest_s / excess.peers_step_s).reshape(-1, 1))[0]
                for name, shortest_s in zip(
                    waited_s, map(world.peers.minima, waited_s.values()), strict=True
                )
            }
        known = {name: float(part) if np.isfinite(part) else 0.0 for name, part in parts.items()}
        name = max(known, key=known.__getitem__)
        self._parts.append(known[name])
        is_much = median_of(np.array(self._parts)) >= (STILL_MUCH if waiting.inside else MUCH)
        return name if is_much else ""


def _waited_s(
    block: StepTable, excess: Excesses, world: World, waiting: WaitDetector
) -> dict[str, Floats]:
    """(T, R) seconds by section that may be work: of sections that behave like waiting, and what
    the host of a GPU waits in collectives, which may be for its own GPU."""
    timed = excess.timed
    behaves = np.array([section.name in waiting.behaves for section in world.sections], bool)
    if timed is None:
        return {world.sections[s].name: block.seconds[..., s] for s in np.flatnonzero(behaves)}
    behaves &= ~np.all(timed.local, axis=0)
    waited_s = {world.sections[s].name: timed.seconds[..., s] for s in np.flatnonzero(behaves)}
    if block.gpu is not None and world.on_gpu:
        for s in np.flatnonzero((timed.basis == COLLECTIVE).any(axis=0)):
            by_host = block.gpu.basis[..., s] == COLLECTIVE
            in_collectives_s = np.where(by_host, block.gpu.nccl_s[..., s], np.nan)
            waited_s.setdefault(world.sections[s].name, in_collectives_s)
    return waited_s


NOT_KNOWN: Final = "where its ranks wait for each other is not known"


def reason(waiting: WaitDetector) -> str:
    """What keeps a slowdown of the run from being localized; empty if it is not hidden waiting.

    >>> reason(WaitDetector(inside="step"))
    'with work and waiting of all ranks in step'
    """
    if waiting.inside:
        return f"with work and waiting of all ranks in {waiting.inside}"
    return NOT_KNOWN if waiting.is_unseen else ""

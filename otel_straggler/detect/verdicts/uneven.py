"""Ranks that take turns at being slow: the batches differ, and no machine is at fault."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np

from otel_straggler.detect.scores.medians import nan_median
from otel_straggler.detect.verdicts.excess import Excesses
from otel_straggler.detect.verdicts.log import EvaluationTime, VerdictLog
from otel_straggler.detect.verdicts.noise import INDEPENDENT
from otel_straggler.detect.verdicts.track import Track
from otel_straggler.detect.verdicts.world import World, draft_of, run_subject
from otel_straggler.model.causes import CAUSES
from otel_straggler.model.observation import Bools, Floats, Ints
from otel_straggler.model.verdict import CALLED_SLOW, Verdict

EVERY_BLOCKS, MIN_BLOCKS, MAX_BLOCKS = 4, 20, 80
"""Evaluated every 20 steps, over the newest 100 to 400."""
MIN_COST, MAX_COST = 0.05, 0.99
"""Part of the step that the ranks wait for whoever is slowest."""
MAX_SHARE, MAX_SHARE_OF_TWO = 0.5, 0.75
"""If one rank holds more of the cost, they do not take turns."""
MIN_GROWTH = 2.6
"""Stretches scatter means of 20 steps so much more than those of 5, as variances of steps without
memory; else it is noise from step to step."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Block:
    """Steps of one block: seconds that the slowest rank takes beyond its peers, of the peers' step,
    who it was, and in which section most."""

    lost_s: Floats
    step_s: Floats
    rows: Ints
    sections: Ints


class UnevenWork:
    """Evaluates one world."""

    def __init__(self, log: VerdictLog) -> None:
        self._log = log
        self._blocks: deque[_Block] = deque(maxlen=MAX_BLOCKS)
        self._until_next = EVERY_BLOCKS

    def reset(self) -> None:
        self._blocks.clear()

    def observe(
        self,
        excess: Excesses,
        world: World,
        ranks: Track,
        accused: Bools,
        counts: Bools,
        now: EvaluationTime,
    ) -> list[Verdict]:
        """Changes of state from the next block. Cost: O(T R).

        Args:
            accused: (R,) whose slowness has a verdict of its own.
            counts: (T,) steps.
        """
        self._add(excess, world, accused, counts)
        self._until_next -= 1
        if self._until_next > 0 or len(self._blocks) < MIN_BLOCKS:
            return []
        self._until_next = EVERY_BLOCKS
        change = self._evaluate(world, ranks, accused, now)
        return [] if change is None else [change]

    def _add(self, excess: Excesses, world: World, accused: Bools, counts: Bools) -> None:
        lost_s = excess.local_s - excess.peers_local_s[:, world.peers.code]
        lost_s[:, accused] = np.nan
        usable = counts & np.isfinite(lost_s).any(axis=1)
        if not usable.any():
            return
        lost_s = np.nan_to_num(lost_s[usable], nan=-np.inf)
        steps, rows = np.arange(len(lost_s)), lost_s.argmax(axis=1)
        excesses = excess.ranks[usable][steps, rows, 1:-1]  # NaN where a section is not compared
        late_s = np.where(np.isfinite(excesses), excess.late_s[usable][steps, rows], -np.inf)
        self._blocks.append(
            _Block(
                lost_s=np.maximum(lost_s[steps, rows], 0.0),
                step_s=nan_median(excess.peers_step_s[usable].T, axis=0),
                rows=rows,
                sections=late_s.argmax(axis=1),
            )
        )

    def _evaluate(
        self, world: World, ranks: Track, accused: Bools, now: EvaluationTime
    ) -> Verdict | None:
        lost_s, step_s, rows, sections = (
            np.concatenate([getattr(block, name) for block in self._blocks])
            for name in ("lost_s", "step_s", "rows", "sections")
        )
        lost_s = np.where(accused[rows], 0.0, lost_s)
        cost = min(float(lost_s.sum() / step_s.sum()), MAX_COST)
        if not cost > 0.0:
            return None
        of_rows: Floats = np.bincount(rows, lost_s).astype(np.float64)
        of_sections = np.bincount(sections, lost_s)
        section = world.sections[int(of_sections.argmax())]
        share = of_rows.max() / lost_s.sum()
        takes_turns = share <= (MAX_SHARE if world.n_ranks > 2 else MAX_SHARE_OF_TWO)
        is_uneven = section.kind == "data" or _has_memory(ranks)
        subject = run_subject(world.sources[0].group, "uneven_work")
        is_open = self._log.state_of(subject).state in CALLED_SLOW
        is_costly = cost >= MIN_COST * (0.5 if is_open else 1.0)
        is_present = bool(takes_turns and is_uneven and is_costly) and not self._is_explained()
        n_ranks = max(world.expected, world.n_ranks)
        draft = draft_of(
            world.sources[0],
            "uneven_work",
            section=section.name if of_sections.max() > 0.5 * lost_s.sum() else "",
            slowdown=1.0 / (1.0 - cost),
            confidence=round(cost / (cost + MIN_COST), 3),
            gpu_seconds_lost_per_hour=cost * n_ranks * 3600.0,
            detail=_in_turn(of_rows, world.n_ranks),
            on_gpu=world.on_gpu,
        )
        return self._log.record(draft, flagged=is_present, clear=not is_present, now=now)

    def _is_explained(self) -> bool:
        """Whether what makes the work unequal is known."""
        run = self._log.open_subjects("run")
        return any(CAUSES[v.cause].is_imbalance and v.cause != "uneven_work" for v in run)


def _has_memory(ranks: Track) -> bool:
    of_step = ranks.noise.variance[:2, 0] / INDEPENDENT[:2] ** 2
    return bool(of_step[1] >= MIN_GROWTH * of_step[0])


def _in_turn(lost_s: Floats, n_ranks: int) -> str:
    """How many ranks kept the others waiting.

    >>> _in_turn(np.array([4.0, 0.0, 3.5, 2.5]), 4)
    '3 of its 4 ranks in turn'
    """
    return f"{int((lost_s > 0.0).sum()):,} of its {n_ranks:,} ranks in turn"

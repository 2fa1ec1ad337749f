"""How the work is spread over the layout: what balance would win, and which imbalance it is.

Looked at every 20 steps, over the newest 100; no rank is blamed here.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from otel_straggler.model.observation import Floats
from otel_straggler.model.step_table import StepTable
from otel_straggler.model.verdict import Verdict
from otel_straggler.score.verdicts.cases import Cases, Now
from otel_straggler.score.verdicts.subjects import role_subject
from otel_straggler.score.verdicts.track import Flags
from otel_straggler.score.verdicts.what_if import WhatIf, what_if
from otel_straggler.score.verdicts.workers import (
    Workers,
    find_workers,
    microbatches_of,
    worker_seconds,
)

EVERY_STEPS = 20
WINDOW_STEPS = 100
LEAST_STEPS = 5
STAGE_PART = 0.5
"""The last stage is to blame if mending it wins half of what is lost."""
LEAST_SLOWDOWN = 1.05
LEAST_STAGE = 1.03


@dataclass(frozen=True, slots=True, kw_only=True)
class Balance:
    """Of the newest look: the numbers, and where each worker stands."""

    told: WhatIf
    workers: Workers


class Structure:
    """Follows the balance of one world."""

    def __init__(self, cases: Cases) -> None:
        self._cases = cases
        self.balance: Balance | None = None
        self.reset()

    def reset(self) -> None:
        """Ranks or their places are others now."""
        self._workers: Workers | None = None
        self._is_laid_out = False
        self._seconds: list[Floats] = []
        self._microbatches = 1
        self._since_look = 0
        self.balance = None

    def take(self, block: StepTable, counts: Flags, now: Now) -> list[Verdict]:
        """The next block; the changes of state that it brings. Cost: O(T R), and O(100 D P) every
        20 steps."""
        if not self._is_laid_out:
            self._workers = find_workers(block.sources)
            self._is_laid_out = True
        if self._workers is None or not counts.any():
            return []
        seconds = worker_seconds(block, self._workers)[counts]
        self._seconds.append(seconds)
        while sum(map(len, self._seconds)) - len(self._seconds[0]) >= WINDOW_STEPS:
            self._seconds.pop(0)
        self._microbatches, _ = microbatches_of(block, self._workers)
        self._newest, self._now = block, now
        self._since_look += len(seconds)
        return self._look() if self._since_look >= EVERY_STEPS else []

    def finish(self) -> list[Verdict]:
        """A last look, if there is something new to see."""
        return self._look() if self._since_look >= LEAST_STEPS else []

    def _look(self) -> list[Verdict]:
        assert self._workers is not None
        self._since_look = 0
        told = what_if(np.concatenate(self._seconds), self._microbatches)
        self.balance = Balance(told=told, workers=self._workers)
        change = self._stages(told)
        return [] if change is None else [change]

    def _stages(self, told: WhatIf) -> Verdict | None:
        """Whether the last stage has more to do than the others."""
        workers = self._workers
        if workers is None or workers.shape[1] < 2:
            return None
        found = (
            told.slowdown >= LEAST_SLOWDOWN
            and told.m_s >= STAGE_PART
            and told.stages[-1] >= LEAST_STAGE
        )
        draft = self._draft(told)
        state = self._cases.standing(draft.subject_id).state
        if not found and state in ("ok", "recovered"):
            return None
        return self._cases.take(
            draft, flagged=found, sure=False, clear=not found, floor=0.0, now=self._now
        )

    def _draft(self, told: WhatIf) -> Verdict:
        assert self._workers is not None
        source = self._newest.sources[0]
        role = f"pipeline {self._workers.stages[-1]}"
        n_ranks = max(self._newest.world_size, len(self._newest.sources))
        draft = Verdict(
            run_id=source.run_id,
            group=source.group,
            attempt=source.attempt,
            subject_id=role_subject(source.group, role, "stage_imbalance"),
            scope="role",
            role=role,
            cause="stage_imbalance",
            state="suspect",
            slowdown=float(told.stages[-1]),
            confidence=round(min(0.95, 0.5 + 0.5 * min(told.m_s, 1.0) * told.waste / 0.1), 3),
            n_peers=self._workers.shape[1] - 1,
        )
        lost = told.waste * min(max(told.m_s, 0.0), 1.0) * n_ranks * 3600.0
        return replace(draft, gpu_seconds_lost_per_hour=lost, since_step=None)

"""The first steps of an attempt: compilation and caches make them slow, each rank by its own.

Steps are left out only where a start was seen. That a recording begins is no start: its first
steps are looked at after 20 of them, and only what is slower than what follows is left out.
"""

from __future__ import annotations

import numpy as np

from otel_straggler.model.step_table import StepTable
from otel_straggler.score.verdicts.settings import VerdictSettings

FIRST_STEP = 1
"""Counters begin at 0 or 1."""
SLOWER = 1.2


class Opening:
    """Holds back, and lets through, the tables of one run."""

    def __init__(self, settings: VerdictSettings) -> None:
        self._settings = settings
        self._held: list[StepTable] = []
        self._is_open = False
        self._world: tuple[int, str] | None = None
        self._is_new = False
        self._warm_up_left = 0

    def take(self, table: StepTable) -> list[StepTable]:
        """The tables that can be judged now, oldest first."""
        if len(table) == 0 or not table.sources:
            return []
        if not self._is_open and int(table.steps[0]) > FIRST_STEP and not self._held:
            self._is_open = True
        if self._is_open:
            return [table]
        self._held.append(table)
        if sum(len(held) for held in self._held) < self._settings.warm_up_steps:
            return []
        return self.finish()

    def finish(self) -> list[StepTable]:
        """What is held back, without a warm-up."""
        self._is_open = True
        held, self._held = self._held, []
        typical_s = [_typical_s(table) for table in held]
        fastest_s = min(typical_s, default=0.0)
        slow = [seconds > SLOWER * fastest_s for seconds in typical_s]
        first = next((i for i, is_slow in enumerate(slow) if not is_slow), 0)
        return held[first:]

    def begins_anew(self, table: StepTable) -> bool:
        """Whether the table is of another attempt than the one before."""
        source = table.sources[0]
        world = (source.attempt, source.session_id)
        newer = self._world is not None and world[0] != self._world[0]
        if newer:
            self._warm_up_left = self._settings.warm_up_steps
        self._world = world
        return newer

    def is_warming_up(self, table: StepTable) -> bool:
        """Whether the table lies in the warm-up of an attempt whose start was seen."""
        if self._warm_up_left <= 0:
            return False
        self._warm_up_left -= len(table)
        return True


def _typical_s(table: StepTable) -> float:
    """Median seconds of a step over ranks and steps, waiting included: compilation of one rank
    is waited for by all."""
    present = np.isfinite(table.seconds).any(axis=2)
    total = np.nansum(table.seconds, axis=2)[present]
    return float(np.median(total)) if total.size else 0.0

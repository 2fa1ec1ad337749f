"""Runs without steps: intervals of time stand for steps, some of them for a block."""

from __future__ import annotations

from otel_straggler.model.step_table import StepTable
from otel_straggler.score.verdicts.joined import joined

AT_ONCE = 3
"""Intervals of a block: with 10 s each, 30 s."""


class Intervals:
    """Joins intervals of time to blocks. Where a run has steps, what lies outside is left out."""

    def __init__(self) -> None:
        self._has_steps = False
        self._waiting: list[StepTable] = []

    def take(self, table: StepTable) -> list[StepTable]:
        """The blocks that are complete now."""
        if not table.is_timed:
            self._has_steps = True
            self._waiting.clear()
            return [table]
        if self._has_steps:
            return []
        ready = [] if self._fits(table) else self.finish()
        self._waiting.append(table)
        return [*ready, *(self.finish() if len(self._waiting) >= AT_ONCE else [])]

    def finish(self) -> list[StepTable]:
        """What waits, as a block."""
        waiting, self._waiting = self._waiting, []
        return [joined(waiting)] if waiting else []

    def _fits(self, table: StepTable) -> bool:
        """Whether ranks and sections are those of what waits."""
        if not self._waiting:
            return True
        last = self._waiting[-1]
        return last.sources == table.sources and last.sections == table.sections

"""Blocks of steps to evaluate: intervals of time joined to blocks, warm-up left out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from otel_straggler.detect.scores.medians import median_of_rows
from otel_straggler.detect.scores.settings import VerdictSettings
from otel_straggler.model.observation import HOST
from otel_straggler.model.rank import Source
from otel_straggler.model.step_table import GpuSeconds, StepTable

AT_ONCE = 3
"""Intervals per block: 30 s."""


class TimedBlocks:
    """Joins intervals of time to blocks, for runs without steps; of others they are dropped."""

    def __init__(self) -> None:
        self._has_steps = False
        self._waiting: list[StepTable] = []

    def add(self, table: StepTable) -> list[StepTable]:
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
        """The incomplete block."""
        waiting, self._waiting = self._waiting, []
        return [joined(waiting)] if waiting else []

    def _fits(self, table: StepTable) -> bool:
        if not self._waiting:
            return True
        last = self._waiting[-1]
        return last.sources == table.sources and last.sections == table.sections


FIRST_STEP = 1
"""Counters begin at 0 or 1."""
SLOWER = 1.2


class WarmUp:
    """Holds back or admits the tables of one run. The first steps of an attempt are slow, each rank
    by its own amount. They are left out if a start was seen; those of a recording only if they turn
    out slower than those that follow."""

    def __init__(self, settings: VerdictSettings) -> None:
        self._settings = settings
        self._held: list[StepTable] = []
        self._is_open = False
        self._sessions: dict[int, tuple[int, str]] = {}
        self._sources: tuple[Source, ...] = ()
        self._warm_up_left = 0

    def admit(self, table: StepTable) -> list[StepTable]:
        """Tables to evaluate now, oldest first."""
        if len(table) == 0 or not table.sources:
            return []
        if not self._is_open and int(table.steps[0]) > FIRST_STEP and not self._held:
            self._is_open = True
        if self._is_open:
            return [table]
        self._held.append(table)
        settings = self._settings
        if sum(map(len, self._held)) < settings.warm_up_steps + settings.block_steps:
            return []
        return self.finish()

    def finish(self) -> list[StepTable]:
        """Tables held back, without the warm-up."""
        self._is_open = True
        held, self._held = self._held, []
        typical_s = [_typical_s(table) for table in held]
        fastest_s = min(typical_s, default=0.0)
        if not held or typical_s[0] <= SLOWER * fastest_s:
            return held
        seen = np.cumsum([len(table) for table in held])
        slow = [seconds > SLOWER * fastest_s for seconds in typical_s]
        is_whole = seen[-1] > self._settings.warm_up_steps
        return [
            table
            for table, n, is_slow in zip(held, seen.tolist(), slow, strict=True)
            if (n > self._settings.warm_up_steps if is_whole else not is_slow)
        ]

    def is_stray(self, table: StepTable) -> bool:
        """Whether it is of a few processes: one that claims a rank, or the rest of an old world."""
        if table.sources == self._sources:
            return False
        known = [s for s in table.sources if s.rank in self._sessions]
        strange = sum(self._sessions[s.rank] != (s.attempt, s.session_id) for s in known)
        return 2 * strange > len(table.sources) and 2 * len(table.sources) < len(self._sessions)

    def begins_again(self, table: StepTable) -> bool:
        """Whether most ranks are new processes: a restart."""
        if table.sources == self._sources:
            return False
        self._sources = table.sources
        sessions = {s.rank: (s.attempt, s.session_id) for s in table.sources}
        known = [rank for rank in sessions if rank in self._sessions]
        renewed = sum(sessions[rank] != self._sessions[rank] for rank in known)
        is_restart = 2 * renewed > len(known)
        self._sessions = sessions if is_restart else {**self._sessions, **sessions}
        if is_restart:
            self._warm_up_left = self._settings.warm_up_steps
        return is_restart

    def is_warming_up(self, table: StepTable) -> bool:
        if self._warm_up_left <= 0:
            return False
        self._warm_up_left -= len(table)
        return True


def _typical_s(table: StepTable) -> float:
    """Median seconds of a step, waiting included: all wait for one rank's compilation."""
    present = np.isfinite(table.seconds).any(axis=2)
    total = np.nansum(table.seconds, axis=2)[present]
    return float(np.median(total)) if total.size else 0.0


_BY_STEP = ("steps", "seconds", "runs", "tokens", "start_ns", "end_ns")
_IF_KNOWN = ("section_end_ns", "step_s")


def joined(tables: Sequence[StepTable]) -> StepTable:
    """All steps of tables with the same ranks and sections; ``run_cv`` is the median of theirs."""
    if len(tables) == 1:
        return tables[0]
    columns: dict[str, Any] = {
        name: np.concatenate([getattr(table, name) for table in tables]) for name in _BY_STEP
    }
    run_cv = median_of_rows(np.array([table.run_cv for table in tables]))
    for name in _IF_KNOWN:
        known = [part for table in tables if (part := getattr(table, name)) is not None]
        columns[name] = np.concatenate(known) if len(known) == len(tables) else None
    return replace(tables[-1], run_cv=run_cv, gpu=_gpu(tables), **columns)


def pieces(table: StepTable, max_steps: int) -> list[StepTable]:
    """The table in parts of at most so many steps."""
    if len(table) <= max_steps:
        return [table]
    return [
        _steps_of(table, slice(begin, begin + max_steps))
        for begin in range(0, len(table), max_steps)
    ]


def _steps_of(table: StepTable, rows: slice) -> StepTable:
    columns: dict[str, Any] = {name: getattr(table, name)[rows] for name in _BY_STEP}
    for name in _IF_KNOWN:
        part = getattr(table, name)
        columns[name] = None if part is None else part[rows]
    gpu = None if table.gpu is None else table.gpu.of_rows(rows)
    return replace(table, gpu=gpu, **columns)


def _gpu(tables: Sequence[StepTable]) -> GpuSeconds | None:
    if all(table.gpu is None for table in tables):
        return None
    parts = [table.gpu or _unknown(table) for table in tables]
    return GpuSeconds(
        *(
            np.concatenate([getattr(p, name) for p in parts])
            for name in ("basis", "own_s", "nccl_s")
        )
    )


def _unknown(table: StepTable) -> GpuSeconds:
    shape = table.seconds.shape
    unknown = np.broadcast_to(np.nan, shape)
    return GpuSeconds(np.full(shape, HOST, np.uint8), unknown, unknown)

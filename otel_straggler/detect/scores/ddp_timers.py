"""What DDP's own timers say of a section: spans inside of it that are no sections of the user's.

They come one step late, when their section was sent long ago; a step table puts them together. Own
work is forward and backward up to the last gradient, waiting is communication after that. Seconds
of the section stay those of the host, so that nothing is in the step twice.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from otel_straggler.model.observation import (
    CUPTI,
    DDP,
    EVENTS,
    HOST,
    Bools,
    Floats,
    Ints,
    ObservationBatch,
    Section,
)
from otel_straggler.model.step_table import GpuSeconds, StepTable
from otel_straggler.semconv import DDP_COMMUNICATION, DDP_TIMERS


def timer_of(section: Section) -> str:
    """Which of ``DDP_TIMERS`` the section is; empty for one of the user's.

    >>> timer_of(Section("backward/ddp_backward", parent="backward"))
    'ddp_backward'
    >>> timer_of(Section("eval/backward/ddp_backward", parent="backward"))
    ''
    """
    around, _, name = section.name.rpartition("/")
    return name if around and around == section.parent and name in DDP_TIMERS else ""


def are_timers(rows: ObservationBatch) -> Bools:
    """Which rows are of DDP's timers."""
    is_timer = np.array([bool(timer_of(section)) for section in rows.sections], bool)
    return is_timer[rows.section] if is_timer.any() else np.zeros(len(rows), bool)


def with_ddp_times(table: StepTable, rows: ObservationBatch) -> StepTable:
    """The table with times of the GPU where ``rows`` of DDP's timers have them, unless kernels of
    the section were timed. Cost: O(rows + T R S)."""
    if rows.gpu is None:
        return table
    cell = _cells(table, rows)
    is_known = (rows.gpu.basis == EVENTS) & (cell >= 0)
    waits = np.array([timer_of(s) == DDP_COMMUNICATION for s in rows.sections], bool)[rows.section]
    own_s, waited_s = (
        np.bincount(cell[of], rows.gpu.busy_s[of], table.seconds.size).astype(np.float64)
        for of in (is_known & ~waits, is_known & waits)
    )
    shape = table.seconds.shape
    return _with(table, own_s.reshape(shape), waited_s.reshape(shape))


def _cells(table: StepTable, rows: ObservationBatch) -> Ints:
    """(n,) index into the table, flat, of the section around each row; -1: it has none."""
    row_of = {source: at for at, source in enumerate(table.sources)}
    column_of = {section.name: at for at, section in enumerate(table.sections)}
    row = np.array([row_of.get(source, -1) for source in rows.sources], np.int64)[rows.source]
    columns = [column_of.get(section.parent, -1) for section in rows.sections]
    column = np.array(columns, np.int64)[rows.section]
    step = np.minimum(np.searchsorted(table.steps, rows.step), len(table.steps) - 1)
    is_there = (row >= 0) & (column >= 0) & (table.steps[step] == rows.step)
    cell: Ints = (step * len(table.sources) + row) * len(table.sections) + column
    return np.where(is_there, cell, -1)


def _with(table: StepTable, own_s: Floats, waited_s: Floats) -> StepTable:
    gpu = table.gpu or GpuSeconds(
        np.full(table.seconds.shape, HOST, np.uint8),
        np.full(table.seconds.shape, np.nan),
        np.full(table.seconds.shape, np.nan),
    )
    is_ddp = (own_s > 0.0) & np.isfinite(table.seconds) & (gpu.basis != CUPTI)
    if not is_ddp.any():
        return table
    timed = GpuSeconds(
        np.where(is_ddp, np.uint8(DDP), gpu.basis),
        np.where(is_ddp, own_s, gpu.own_s),
        np.where(is_ddp, waited_s, gpu.nccl_s),
    )
    return replace(table, gpu=timed)

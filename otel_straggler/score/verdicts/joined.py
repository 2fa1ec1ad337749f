"""Several step tables as one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from otel_straggler.model.gpu_times import HOST
from otel_straggler.model.step_table import GpuSeconds, StepTable
from otel_straggler.score.verdicts.grouping import median_of_rows

_BY_STEP = ("steps", "seconds", "runs", "tokens", "start_ns", "end_ns")


def joined(tables: Sequence[StepTable]) -> StepTable:
    """All steps of tables with the same ranks and sections, in the order given; ``run_cv`` is the
    median of theirs. Cost: a copy."""
    if len(tables) == 1:
        return tables[0]
    columns: dict[str, Any] = {
        name: np.concatenate([getattr(table, name) for table in tables]) for name in _BY_STEP
    }
    run_cv = median_of_rows(np.array([table.run_cv for table in tables]))
    return replace(tables[-1], run_cv=run_cv, gpu=_gpu(tables), **columns)


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

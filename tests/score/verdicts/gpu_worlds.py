"""Runs whose ranks tell their GPU times, changed as tests need it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from otel_straggler.model.observation import CUPTI, HOST, Floats
from otel_straggler.model.step_table import GpuSeconds, StepTable

from .worlds import made, take_ranks


def timed(layout: str, *faults: str, **plan: Any) -> tuple[StepTable, ...]:
    """Asynchronous launches and the times of kernels."""
    reported = {"timing": "asynchronous", "gpu_timing": "cupti", **plan}
    return made(layout, *faults, **reported)


def with_gpu(table: StepTable, own_s: Floats, nccl_s: Floats, basis: int = CUPTI) -> StepTable:
    """Told of all cells that are finite."""
    codes = np.where(np.isfinite(own_s), basis, HOST).astype(np.uint8)
    return replace(table, gpu=GpuSeconds(codes, own_s, nccl_s))


def untold(table: StepTable, ranks: Sequence[int], sections: Any = slice(None)) -> StepTable:
    """The same where these ranks tell the host's times only."""
    if table.gpu is None:
        return table
    gone = np.zeros(table.seconds.shape, bool)
    gone[:, list(ranks), sections] = True
    return _without(table, gone)


def with_holes(table: StepTable, part: float, rng: np.random.Generator) -> StepTable:
    """Numbers that came too late, in so large a part of the steps of a rank."""
    late = rng.random(table.seconds.shape[:2]) < part
    return _without(table, np.broadcast_to(late[..., None], table.seconds.shape))


def _without(table: StepTable, gone: Any) -> StepTable:
    gpu = table.gpu
    assert gpu is not None
    basis = np.where(gone, HOST, gpu.basis).astype(np.uint8)
    times = (np.where(gone, np.nan, column) for column in (gpu.own_s, gpu.nccl_s))
    return replace(table, gpu=GpuSeconds(basis, *times))


def scaled(table: StepTable, factor: float) -> StepTable:
    """In another unit of time; ``table`` with its step times."""
    gpu = table.gpu
    assert gpu is not None
    assert table.step_s is not None
    return replace(
        table,
        seconds=table.seconds * factor,
        step_s=table.step_s * factor,
        gpu=GpuSeconds(gpu.basis, gpu.own_s * factor, gpu.nccl_s * factor),
    )


def reordered(table: StepTable, rows: Sequence[int]) -> StepTable:
    """Ranks told in another order."""
    assert table.gpu is not None
    rows = list(rows)
    return replace(take_ranks(table, rows), gpu=table.gpu.of_rows(np.s_[:, rows]))

"""The pattern of the hot workers in a matrix of P stages by D data ranks.

A worker is hot if its slowdown stands out from the others by more than their noise.
"""

from __future__ import annotations

from typing import Final, Literal

import numpy as np
import numpy.typing as npt

from otel_straggler.model.observation import Bools, Floats

Pattern = Literal["even", "hot_cell", "hot_row", "hot_column", "spread", "silent", "unknown"]
PATTERN_TEXTS: Final[dict[Pattern, str]] = {
    "even": "All workers are alike.",
    "hot_cell": "One worker is hot: its host or its data.",
    "hot_row": "One pipeline stage is hot: it has more work than the others.",
    "hot_column": "One data rank is hot in all its stages: its data, or the host that its stages "
    "share.",
    "spread": "Heat moves over many workers: the work differs from step to step, as with "
    "sequences of unequal length.",
    "silent": "A worker is silent or stuck, and the others wait for it.",
    "unknown": "No worker times are known yet.",
}
MIN_EXCESS: Final = 0.03
"""Minimum excess of a hot worker."""
_NOISES: Final = 12.0
"""The faster half of normal noise has its median at -0.67 sigma and a median distance of 0.4 sigma:
this many of them are 4 sigma above the median of all."""
_PART: Final = 0.75
"""Minimum hot part of a hot row or column."""
_FEW: Final = 0.25
"""Maximum part of the workers that are hot in the pattern ``hot_cell``."""
_MOVING: Final = 1.05
"""A run with this slowdown and no hot worker loses time on changing workers."""


def hot_cells(cells: Floats) -> Bools:
    """(P, D) True for workers that stand out from the median and noise of the faster half, so that
    up to half of them may be hot.

    Args:
        cells: (P, D) slowdowns; NaN = unknown.

    >>> hot_cells(np.array([[1.0, 1.01, 1.3, 0.99]])).tolist()
    [[False, False, True, False]]
    """
    known = np.sort(cells[np.isfinite(cells)])
    if len(known) < 2:
        return np.zeros(cells.shape, np.bool_)
    faster = known[: (len(known) + 1) // 2]
    base = float(np.median(faster))
    noise = float(np.median(np.abs(faster - base)))
    with np.errstate(invalid="ignore"):
        hot: Bools = cells > base * (1.0 + MIN_EXCESS) + _NOISES * noise
    return hot


def pattern_of(
    cells: Floats, *, is_silent: bool = False, slowdown: float = 1.0, moves: bool = False
) -> Pattern:
    """
    Args:
        cells: (P, D) slowdowns; NaN = unknown.
        is_silent: a worker is lost, or all others wait for it.
        slowdown: of the whole run compared with equal workers; NaN = unknown.
        moves: the work is known to differ from step to step.

    >>> pattern_of(np.array([[1.0, 1.0, 1.0], [1.2, 1.2, 1.2]]))
    'hot_row'
    """
    if is_silent:
        return "silent"
    if not np.isfinite(cells).any():
        return "unknown"
    if moves:
        return "spread"
    hot = hot_cells(cells)
    if not hot.any():
        return "spread" if slowdown >= _MOVING else "even"
    return _of_hot(hot, np.isfinite(cells))


def text_of(
    pattern: Pattern, cells: Floats, *, n_silent: int, on_gpu: bool, is_awaited: bool = True
) -> str:
    """Describe a pattern.

    Args:
        n_silent: workers that are silent, or culprits of a hang.
        is_awaited: others wait for these.
        on_gpu: workers are known to have GPUs.

    >>> text_of("hot_cell", np.array([[1.0, 1.4, 1.0, 1.3, 1.0, 1.0]]), n_silent=0, on_gpu=True)
    '2 workers are hot: their GPUs, a host they share, or their data.'
    """
    n_hot = int(hot_cells(cells).sum())
    if pattern == "hot_cell" and n_hot > 1:
        gpus = "their GPUs, " if on_gpu else ""
        return f"{n_hot:,} workers are hot: {gpus}a host they share, or their data."
    if pattern == "hot_cell" and on_gpu:
        return "One worker is hot: its GPU, its host or its data."
    if pattern == "silent" and n_silent == 0:
        return "All workers wait, and none of them stands out."
    if pattern == "silent" and n_silent == cells.size:
        return "All workers are silent or stuck." if n_silent > 1 else "It is silent or stuck."
    if pattern == "silent" and not is_awaited:
        one = n_silent == 1
        who = "A worker is" if one else f"{n_silent:,} workers are"
        return f"{who} silent or stuck; no rank waits for {'it' if one else 'them'}."
    if pattern == "silent" and n_silent > 1:
        return f"{n_silent:,} workers are silent or stuck, and the others wait for them."
    return PATTERN_TEXTS[pattern]


def _of_hot(hot: Bools, known: Bools) -> Pattern:
    """Check rows first: stages are few, so one cell may be a column of a small matrix."""
    n_stages, n_data = hot.shape
    if n_stages > 1 and n_data > 1:
        rows = _full(hot.sum(axis=1), known.sum(axis=1))
        if rows.any() and not rows.all() and hot[~rows].mean() < _FEW:
            return "hot_row"
        columns = _full(hot.sum(axis=0), known.sum(axis=0))
        if columns.any() and not columns.all() and hot[:, ~columns].mean() < _FEW:
            return "hot_column" if columns.mean() <= _FEW or columns.sum() == 1 else "spread"
    elif n_stages > 1 and hot.sum() == 1 and hot[-1].any():
        return "hot_row"  # one data rank: a stage is a worker, and the last has the loss
    few = hot.sum() <= max(2, _FEW * known.sum())
    return "hot_cell" if few else "spread"


def _full(hot: npt.NDArray[np.int64], known: npt.NDArray[np.int64]) -> Bools:
    full: Bools = (known > 0) & (hot >= _PART * known)
    return full

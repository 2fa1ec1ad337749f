"""Runs from the history of a collector: the time of their steps."""

from __future__ import annotations

import math

import numpy as np

from otel_straggler.collector.history.reader import HistoryReader, RunEntry, WindowEntry
from otel_straggler.scalability.gpu_traces import strategy_of
from otel_straggler.scalability.runs import ScalingRun


def stored_runs(path: str) -> list[ScalingRun]:
    """All runs with windows of steps.

    Raises:
        StragglerError: it is no history, or damaged.
    """
    with HistoryReader(path) as reader:
        result = []
        for run in reader.runs():
            windows = [each for each in reader.windows(run.run_id) if each.first_step is not None]
            if windows:
                newest = reader.window(windows[-1].id)
                size = max(windows[-1].ranks, newest.world_size if newest else 0)
                result.append(_run(run, windows, size))
        return result


def _run(run: RunEntry, windows: list[WindowEntry], size: int) -> ScalingRun:
    steps_s = [
        (each.end_ns - each.start_ns) / 1e9 / (each.last_step - each.first_step + 1)
        for each in windows
        if each.first_step is not None and each.last_step is not None
    ]
    return ScalingRun(
        name=run.run_id,
        strategy=strategy_of(run.job or run.run_id, size),
        size=size,
        step_s=float(np.median(steps_s)) if steps_s else math.nan,
    )

"""Runs from the history of a collector: the time of their steps, and what their GPUs used."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

import numpy as np

from otel_straggler.collector.history.reader import HistoryReader, RunEntry, WindowEntry
from otel_straggler.collector.views.run_summary import read_summary
from otel_straggler.errors import InputError
from otel_straggler.model.rank_metrics import GpuUsage
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
                result.append(_run(run, windows, size, _usages(reader, run.run_id)))
        return result


def _usages(reader: HistoryReader, run_id: str) -> list[GpuUsage]:
    """Of the groups with sensors."""
    usages = []
    for group in reader.summaries(run_id):
        value = reader.summary(run_id, group)
        try:
            view = None if value is None else read_summary(value, where=f"summary {run_id}")
        except InputError:  # of another version
            continue
        if view is not None and view.gpus is not None:
            usages.append(view.gpus)
    return usages


def _run(
    run: RunEntry, windows: list[WindowEntry], size: int, usages: list[GpuUsage]
) -> ScalingRun:
    steps_s = [*_steps_s(windows)]
    gpus = sum(each.gpus for each in usages)
    utilization = sum(each.utilization * each.gpus for each in usages)
    return ScalingRun(
        name=run.run_id,
        strategy=strategy_of(run.job or run.run_id, size),
        size=size,
        step_s=float(np.median(steps_s)) if steps_s else math.nan,
        utilization=utilization / gpus if gpus else math.nan,
        power_w=sum(each.power_w for each in usages) if usages else math.nan,
        energy_wh=sum(each.energy_wh for each in usages) if usages else math.nan,
    )


def _steps_s(windows: Sequence[WindowEntry]) -> Iterator[float]:
    """Mean seconds per step of each window: until the next one begins, if that follows at once."""
    for each, after in itertools.zip_longest(windows, windows[1:]):
        if each.first_step is None or each.last_step is None:
            continue
        end_ns = each.end_ns
        is_next = after is not None and after.first_step == each.last_step + 1
        if is_next and after.start_ns - end_ns <= end_ns - each.start_ns:
            end_ns = max(end_ns, after.start_ns)
        yield (end_ns - each.start_ns) / 1e9 / (each.last_step - each.first_step + 1)

"""CSV files of itwinai's profilers, as its scalability report reads them.

Epoch times have the columns ``epoch_id,time,name,nodes``; samples of GPUs ``sample_idx,utilization,
power,local_rank,node_idx,num_global_gpus,strategy,probing_interval``; sums of operators ``name,
self_cuda_time_total,strategy,num_gpus`` and others. Epochs may have ``samples`` and ``tokens`` too.
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import PurePath

import numpy as np

from otel_straggler.model.names import clean_name
from otel_straggler.recordings.columns import Note
from otel_straggler.scalability.energy import probed_wh
from otel_straggler.scalability.runs import GPUS, NODES, ScalingRun

_Row = dict[str, str]
_EPOCH = frozenset({"epoch_id", "time", "name", "nodes"})
_GPU = frozenset({"utilization", "power", "num_global_gpus", "strategy", "probing_interval"})
_OPERATORS = frozenset({"name", "self_cuda_time_total", "strategy", "num_gpus"})
_COMPUTES = re.compile(r".*(?:aten|\sat|c10|autograd)::")
_STEP = "ProfilerStep"
_MAX_SIZE = 10_000_000


class OperatorTimes:
    """Sums over the files of all ranks of a run: time in operators that compute, and in all."""

    def __init__(self) -> None:
        self._sums: dict[tuple[str, str, int], list[float]] = {}

    def add(self, run: str, strategy: str, size: int, name: str, took: float) -> None:
        sums = self._sums.setdefault((run, strategy, size), [0.0, 0.0])
        if not name.startswith(_STEP):
            sums[0] += took if _COMPUTES.match(name) else 0.0
            sums[1] += took

    def runs(self, names: Mapping[str, str]) -> Iterator[ScalingRun]:
        """One for each strategy and size of a run, whose names are by its id."""
        for (run, strategy, size), (computing, total) in self._sums.items():
            share = computing / total if total > 0.0 else math.nan
            yield ScalingRun(
                name=names.get(run) or f"{strategy}_{size}",
                strategy=strategy,
                size=size,
                unit=GPUS,
                computation=share,
            )


def is_itwinai(header: Iterable[str]) -> bool:
    """Whether a CSV file with these columns is one of itwinai's."""
    columns = set(header)
    return any(columns >= known for known in (_EPOCH, _GPU, _OPERATORS))


def read_itwinai(
    lines: Iterable[str], name: str, note: Note, operators: OperatorTimes, run: str = ""
) -> list[ScalingRun]:
    """Runs of one file; sums of operators go into ``operators``, as those of ``run``. Rows without
    the numbers that they need are left out with a note."""
    rows = csv.DictReader(lines)
    columns = set(rows.fieldnames or ())
    skipped = [0]

    def read(of_row: Callable[[_Row], None]) -> None:
        for row in rows:
            try:
                of_row(row)
            except (TypeError, ValueError):
                skipped[0] += 1

    if columns >= _EPOCH:
        result = _epoch_runs(read, PurePath(name).name.partition(".")[0])
    elif columns >= _GPU:
        result = _gpu_runs(read)
    else:
        result = []

        def add(row: _Row) -> None:
            took = _number(row["self_cuda_time_total"])
            strategy, size = _text(row["strategy"]), _size(row["num_gpus"])
            operators.add(run, strategy, size, row["name"], took)

        read(add)
    if skipped[0]:
        note(f"{name}: {skipped[0]:,} rows without the numbers that they need are left out")
    return result


class _Epochs:
    """One run in a file of epoch times."""

    def __init__(self) -> None:
        self.ids: set[str] = set()
        self.times_s: list[float] = []
        self.work: dict[str, list[float]] = {"samples": [], "tokens": []}

    def rate(self, work: str) -> float:
        done = self.work[work]
        return sum(done) / sum(self.times_s) if len(done) == len(self.times_s) else math.nan


def _epoch_runs(read: Callable[[Callable[[_Row], None]], None], stem: str) -> list[ScalingRun]:
    """An epoch that comes again begins a repeat of the run."""
    runs: dict[tuple[str, int], list[_Epochs]] = {}

    def add(row: _Row) -> None:
        time_s, key = _number(row["time"]), (_text(row["name"]), _size(row["nodes"]))
        if not time_s > 0.0:
            raise ValueError
        repeats = runs.setdefault(key, [_Epochs()])
        if row["epoch_id"] in repeats[-1].ids:
            repeats.append(_Epochs())
        repeats[-1].ids.add(row["epoch_id"])
        repeats[-1].times_s.append(time_s)
        for work, done in repeats[-1].work.items():
            if row.get(work):
                done.append(_number(row[work]))

    read(add)
    result = []
    for (strategy, size), repeats in runs.items():
        base = stem if len(runs) == 1 else f"{strategy}_{size}"
        for number, run in enumerate(repeats, 1):
            result.append(
                ScalingRun(
                    name=base if number == 1 else f"{base} #{number}",
                    strategy=strategy,
                    size=size,
                    unit=NODES,
                    epochs_s=tuple(run.times_s),
                    samples_per_s=run.rate("samples"),
                    tokens_per_s=run.rate("tokens"),
                )
            )
    return result


def _gpu_runs(read: Callable[[Callable[[_Row], None]], None]) -> list[ScalingRun]:
    """Power in watts, utilization in percent; each sample stands for its probing interval."""
    runs: dict[tuple[str, int], dict[tuple[str, str], list[tuple[float, float, float]]]] = {}

    def add(row: _Row) -> None:
        sample = (
            _number(row["utilization"]), _number(row["power"]), _number(row["probing_interval"])
        )  # fmt: skip
        gpu = row.get("node_idx") or "", row.get("local_rank") or ""
        key = _text(row["strategy"]), _size(row["num_global_gpus"])
        runs.setdefault(key, {}).setdefault(gpu, []).append(sample)

    read(add)
    result = []
    for (strategy, size), gpus in runs.items():
        each = [np.array(samples) for samples in gpus.values()]
        every = np.concatenate(each)
        result.append(
            ScalingRun(
                name=f"{strategy}_{size}",
                strategy=strategy,
                size=size,
                unit=GPUS,
                utilization=float(every[:, 0].mean()) / 100.0,
                power_w=float(sum(samples[:, 1].mean() for samples in each)),
                energy_wh=probed_wh(every[:, 1], every[:, 2]),
            )
        )
    return result


def _number(text: str) -> float:
    number = float(text)
    if not 0.0 <= number < math.inf:
        raise ValueError
    return number


def _size(text: str) -> int:
    number = float(text)
    if not (number.is_integer() and 1.0 <= number <= _MAX_SIZE):
        raise ValueError
    return int(number)


def _text(value: str) -> str:
    if not value:
        raise ValueError
    return clean_name(value)

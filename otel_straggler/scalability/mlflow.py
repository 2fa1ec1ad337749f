"""Runs in a store of MLflow, as the logger of itwinai 0.4 writes them: a folder of files or SQLite.

A training is a run with one child per worker; Ray puts trials in between. Workers have the
parameters ``strategy``, ``global_world_size`` and ``probing_interval``, and the metrics
``epoch_time_s`` (the main worker), ``gpu_utilization_percent`` and ``gpu_power_W``. MLflow itself
is not needed.
"""

from __future__ import annotations

import contextlib
import math
import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from otel_straggler.errors import InputError
from otel_straggler.model.names import clean_name
from otel_straggler.model.observation import Floats
from otel_straggler.recordings.columns import Note
from otel_straggler.regular_files import read_small
from otel_straggler.scalability.energy import probed_wh, sampled_wh
from otel_straggler.scalability.gpu_traces import strategy_of
from otel_straggler.scalability.runs import GPUS, ScalingRun

EPOCH_S, UTILIZATION, POWER_W = "epoch_time_s", "gpu_utilization_percent", "gpu_power_W"
_METRICS = (EPOCH_S, UTILIZATION, POWER_W)
_SIZE = ("global_world_size", "num_global_gpus", "world_size")
_STRATEGY, _INTERVAL = "strategy", "probing_interval"
_PARENT, _NAME = "mlflow.parentRunId", "mlflow.runName"
_META = "meta.yaml"
_FOLDERS = frozenset({"metrics", "params", "tags", "inputs", "outputs"})
_DEPTH = 4
"""Folders that the name of a metric may have."""
_MAX_PARENTS = 8
_MAX_SIZE = 10_000_000
_MAX_BYTES = 256 << 20


@dataclass(frozen=True, slots=True)
class MlflowRun:
    """``metrics``: by name (n, 3): time in seconds since 1970, value, step."""

    run_id: str
    name: str
    parent: str
    params: Mapping[str, str] = field(default_factory=dict)
    metrics: Mapping[str, Floats] = field(default_factory=dict)


def is_of_store(path: Path) -> bool:
    """Whether a file is one that MLflow keeps of a run or an experiment, artifacts aside."""
    parents = path.absolute().parents[:_DEPTH]
    return path.name == _META or any(
        each.name in _FOLDERS and (each.parent / _META).is_file() for each in parents
    )


def is_run(path: Path) -> bool:
    """Whether a file is the description of a run: one for each run."""
    return path.name == _META and (path.parent / "metrics").is_dir()


def run_of_artifact(path: Path) -> str:
    """The id of the run that a file is an artifact of; empty without one."""
    for folder in path.parents:
        if folder.name == "artifacts" and (folder.parent / _META).is_file():
            return folder.parent.name
    return ""


def read_run(folder: Path, note: Note) -> MlflowRun | None:
    """The run in a folder; None if it was deleted. Lines that are no values are left out.

    Raises:
        OSError: it cannot be read.
    """
    if "lifecycle_stage: deleted" in _text(folder / _META):
        return None
    params = {each: _text(folder / "params" / each) for each in (*_SIZE, _STRATEGY, _INTERVAL)}
    metrics = {}
    for name in _METRICS:
        path = folder / "metrics" / name
        lines = _text(path).splitlines()
        points = [point for line in lines if (point := _point(line.split())) is not None]
        if len(points) < len(lines):
            note(f"{path}: {len(lines) - len(points):,} lines without a value are left out")
        if points:
            metrics[name] = np.array(points)
    return MlflowRun(
        run_id=folder.name,
        name=clean_name(_text(folder / "tags" / _NAME)) or folder.name,
        parent=_text(folder / "tags" / _PARENT),
        params={name: value for name, value in params.items() if value},
        metrics=metrics,
    )


def read_database(path: Path) -> list[MlflowRun] | None:
    """All runs of an SQLite store; None if it is a database of something else.

    Raises:
        InputError: it is damaged.
    """
    address = f"{path.resolve().as_uri()}?mode=ro"
    try:
        with contextlib.closing(sqlite3.connect(address, uri=True)) as connection:
            tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
            if not tables >= {"experiments", "runs", "metrics", "params", "tags"}:
                return None
            return list(_stored(connection))
    except sqlite3.Error as error:
        raise InputError.of(
            str(path), f"a file that SQLite cannot read ({error})", "a store of MLflow",
            "Check the path, and copy it again.",
        ) from None  # fmt: skip


def _stored(connection: sqlite3.Connection) -> Iterator[MlflowRun]:
    marks = ", ".join("?" * len(_METRICS))
    points: dict[str, dict[str, list[tuple[float, float, float]]]] = {}
    for run_id, name, *values in connection.execute(
        "SELECT run_uuid, key, timestamp / 1000.0, value, step FROM metrics "  # noqa: S608
        f"WHERE key IN ({marks}) AND NOT is_nan ORDER BY timestamp",
        _METRICS,
    ):
        points.setdefault(run_id, {}).setdefault(name, []).append(tuple(values))
    params: dict[str, dict[str, str]] = {}
    for run_id, name, value in connection.execute("SELECT run_uuid, key, value FROM params"):
        params.setdefault(run_id, {})[name] = value
    parents = dict(connection.execute("SELECT run_uuid, value FROM tags WHERE key = ?", (_PARENT,)))
    for run_id, name in connection.execute(
        "SELECT run_uuid, name FROM runs WHERE lifecycle_stage = 'active' ORDER BY start_time"
    ):
        yield MlflowRun(
            run_id=run_id,
            name=clean_name(name or "") or run_id,
            parent=parents.get(run_id, ""),
            params=params.get(run_id, {}),
            metrics={each: np.array(of) for each, of in points.get(run_id, {}).items()},
        )


def _text(path: Path) -> str:
    """Without blanks around it; empty if there is no such file."""
    try:
        return read_small(path, _MAX_BYTES, follow=True).decode("utf-8", "replace").strip()
    except (FileNotFoundError, NotADirectoryError):
        return ""


def _point(words: list[str]) -> tuple[float, float, float] | None:
    """Time, value and step; newer versions write more."""
    try:
        at_ms, value = float(words[0]), float(words[1])
        step = float(words[2]) if len(words) > 2 else math.nan
    except (IndexError, ValueError):
        return None
    return (at_ms / 1e3, value, step) if math.isfinite(at_ms) and math.isfinite(value) else None


# --- runs ----------------------------------------------------------------------------------------


class MlflowRuns:
    """Collects the runs of stores; :meth:`runs` are those of all of them."""

    def __init__(self) -> None:
        self._by_id: dict[str, MlflowRun] = {}
        self.names: dict[str, str] = {}
        """Name of the training by the id of a worker's run; complete after :meth:`runs`."""

    def add(self, runs: Iterable[MlflowRun | None]) -> None:
        self._by_id.update((run.run_id, run) for run in runs if run is not None)

    def runs(self, note: Note) -> list[ScalingRun]:
        """One for every training or trial with workers; those of the same name are numbered. One
        of unknown size is left out with a note."""
        workers: dict[str, list[MlflowRun]] = {}
        for run in self._by_id.values():
            training = run.parent if run.parent in self._by_id else run.run_id
            if run.metrics:
                workers.setdefault(training, []).append(run)
            self.names[run.run_id] = self._name(training)
        counts: Counter[str] = Counter()
        result = []
        for training, of_run in workers.items():
            name = self._name(training)
            path = self._path(training)
            size = _size(of_run, path)
            if size is None:
                note(
                    f"{name}: neither {_SIZE[0]} nor samples of GPUs say how large it is; left out"
                )
                continue
            counts[name] += 1
            numbered = name if counts[name] == 1 else f"{name} #{counts[name]}"
            self.names.update((each.run_id, numbered) for each in of_run)
            result.append(_scaling_run(numbered, size, of_run, path))
        return result

    def _name(self, run_id: str) -> str:
        return "/".join(each.name for each in reversed(self._path(run_id)))

    def _path(self, run_id: str) -> list[MlflowRun]:
        """A run and those above it."""
        path: list[MlflowRun] = []
        while (run := self._by_id.get(run_id)) is not None and len(path) < _MAX_PARENTS:
            path.append(run)
            run_id = run.parent
        return path


def _param(runs: Iterable[MlflowRun], *names: str) -> str:
    """The first one that a run has."""
    return next((run.params[name] for run in runs for name in names if run.params.get(name)), "")


def _size(workers: list[MlflowRun], path: list[MlflowRun]) -> int | None:
    """As the run declares it, else the number of workers with samples of a GPU."""
    declared = _number(_param([*workers, *path], *_SIZE))
    if declared.is_integer() and 1.0 <= declared <= _MAX_SIZE:
        return int(declared)
    return sum(POWER_W in each.metrics or UTILIZATION in each.metrics for each in workers) or None


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def _scaling_run(
    name: str, size: int, workers: list[MlflowRun], path: list[MlflowRun]
) -> ScalingRun:
    power = [each.metrics[POWER_W] for each in workers if POWER_W in each.metrics]
    used = [each.metrics[UTILIZATION] for each in workers if UTILIZATION in each.metrics]
    interval_s = _number(_param([*workers, *path], _INTERVAL))
    energy_wh = [_energy_wh(each, interval_s) for each in power]
    return ScalingRun(
        name=name,
        strategy=clean_name(_param([*workers, *path], _STRATEGY)) or strategy_of(name, size),
        size=size,
        unit=GPUS,
        epochs_s=_epochs_s(workers),
        utilization=float(np.concatenate(used)[:, 1].mean()) / 100.0 if used else math.nan,
        power_w=float(sum(each[:, 1].mean() for each in power)) if power else math.nan,
        energy_wh=float(np.nansum(energy_wh)) if power else math.nan,
    )


def _energy_wh(power: Floats, interval_s: float) -> float:
    """Each sample stands for the probing interval, as in itwinai; else by their times."""
    if interval_s > 0.0:
        return probed_wh(power[:, 1], np.full(len(power), interval_s))
    return sampled_wh(power[:, 0], power[:, 1])


def _epochs_s(workers: list[MlflowRun]) -> tuple[float, ...]:
    """Of the slowest worker in each; what was logged again replaces what came before."""
    slowest: dict[float, float] = {}
    for worker in workers:
        of_worker: dict[float, float] = {}
        points = worker.metrics.get(EPOCH_S, np.empty((0, 3)))
        for number, (_, took_s, step) in enumerate(points.tolist()):
            of_worker[number if math.isnan(step) else step] = took_s
        for step, took_s in of_worker.items():
            slowest[step] = max(slowest.get(step, 0.0), took_s)
    return tuple(slowest[step] for step in sorted(slowest) if slowest[step] > 0.0)

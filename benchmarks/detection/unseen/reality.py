"""Noise of real jobs: residuals of published traces, resampled in blocks of steps.

The traces (ByteDance-Seed/StragglerAnalysis, Apache-2.0) lie next to the project, not in it.
``SHARED_DATA`` names their folder where they are elsewhere.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

import numpy as np

from benchmarks.detection.unseen.runs import Noise, Rng, World
from otel_straggler.model.observation import Floats

SHARED_DATA = "OTEL_STRAGGLER_SHARED_DATA"
TRACES = ("AR", "ST")
SECTIONS: Mapping[str, str] = {"forward": "forward-compute", "backward": "backward-compute"}
ABSENT = (
    "Resampled traces are left out: they are not next to the project (../shared/data), where"
    f" {SHARED_DATA} says, or pyarrow is missing"
)


def trace_file(name: str) -> Path | None:
    """None where the traces are not at hand."""
    named = os.environ.get(SHARED_DATA)
    parents = Path(__file__).resolve().parents[3:]
    folders = [Path(named)] if named else [up / "shared" / "data" for up in parents]
    files = (folder / "pipeline_traces" / f"trace-{name}.parquet" for folder in folders)
    return next((file for file in files if file.exists()), None)


def is_available() -> bool:
    """Whether the traces, and what reads them, are there."""
    try:
        import pyarrow.parquet  # noqa: F401
    except ImportError:
        return False
    return all(trace_file(name) for name in TRACES)


@lru_cache
def residuals(name: str) -> Mapping[str, Floats]:
    """(T, R) log time of a step, without each rank's median and each step's, by section."""
    from pyarrow import parquet

    file = trace_file(name)
    assert file is not None
    table = parquet.read_table(file, columns=["rank", "step", "optype", "duration"])
    columns = {column: table.column(column).to_numpy() for column in table.column_names}
    _, step = np.unique(columns["step"], return_inverse=True)
    _, rank = np.unique(columns["rank"], return_inverse=True)
    result = {}
    for section, operation in SECTIONS.items():
        here = columns["optype"] == operation
        seconds = np.zeros((step.max() + 1, rank.max() + 1))
        np.add.at(seconds, (step[here], rank[here]), columns["duration"][here])
        log = np.log(np.where(seconds > 0.0, seconds, np.nan))
        log = log - np.nanmedian(log, axis=0)
        result[section] = np.nan_to_num(log - np.nanmedian(log, axis=1, keepdims=True))
    return result


def resampled(rng: Rng, world: World) -> Noise:
    """Each rank's steps in blocks of 10 to 40 from any rank of one of the traces."""
    of_section = residuals(str(rng.choice(TRACES)))
    n_steps, n_ranks = of_section["forward"].shape
    length = min(int(rng.integers(10, 41)), n_steps - 1)
    blocks = -(-world.steps // length), world.ranks
    first = rng.integers(0, n_steps - length + 1, blocks)
    whose = np.repeat(rng.integers(0, n_ranks, blocks), length, axis=0)[: world.steps]
    rows = np.repeat(first, length, axis=0)[: world.steps]
    rows = rows + (np.arange(world.steps) % length)[:, None]
    by_section = {name: residual[rows, whose] for name, residual in of_section.items()}
    both = 0.35 * by_section["forward"] + 0.65 * by_section["backward"]
    still = np.zeros((world.steps, world.ranks))
    return Noise(
        log=still, sd=float(both.std()), correlation=_correlation(both), by_section=by_section
    )


def _correlation(log: Floats) -> float:
    centred = log - log.mean(axis=0)
    whole = float((centred**2).sum())
    return float((centred[1:] * centred[:-1]).sum()) / whole if whole else 0.0

"""Published traces of production pipeline jobs as rows of our own CSV.

The traces (Apache-2.0, ByteDance-Seed/StragglerAnalysis, artifact of "Understanding Stragglers in
Large Model Training Using What-if Analysis", OSDI 2025) lie beside the project, not in it.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pytest

from otel_straggler.model.observation import Floats
from otel_straggler.semconv import SectionKind

HEADER = (
    "run_id", "rank", "node", "role", "section", "kind", "step", "start_ns", "duration_s",
    "dp", "pp", "microbatch",
)  # fmt: skip
COMPUTE = ("forward-compute", "backward-compute")
KINDS: dict[str, SectionKind] = dict.fromkeys((*COMPUTE, "optimizer"), "compute")
"""Everything else sends, receives or reduces: it waits for others."""
NO_OPERATION = "gc"
"""Marks, of no duration."""
SPACING_S = 60.0
"""Every step of the traces begins at 0 again; the longest takes 47 s."""

Trace: TypeAlias = dict[str, npt.NDArray[np.generic]]


@dataclass(frozen=True, slots=True)
class Published:
    """What the artifact says of a trace."""

    slowdown: float
    m_w: float
    m_s: float


PUBLISHED = {"AR": Published(1.973, 1.002, -0.001), "ST": Published(1.179, 0.031, 1.219)}


def read_trace(name: str) -> Trace:
    """The columns of a trace; skips the test where the data is not there."""
    here = Path(__file__).resolve().parents[2]
    result = [up / "shared/data/pipeline_traces" / f"trace-{name}.parquet" for up in here.parents]
    path = next((each for each in result if each.exists()), None)
    if path is None:
        pytest.skip(
            "the published pipeline traces are not beside the project (../shared/data);"
            " with them this shows that verdicts hold on real jobs"
        )
    parquet = pytest.importorskip(
        "pyarrow.parquet",
        reason="pyarrow is not installed: it would read the published pipeline traces",
    )
    table = parquet.read_table(path)
    return {column: table.column(column).to_numpy() for column in table.column_names}


def worker_seconds_of(trace: Trace) -> tuple[Floats, int]:
    """(T, D, P) seconds of forward and backward, and microbatches: without any code of ours."""
    is_compute = np.isin(trace["optype"], COMPUTE)
    step, data, stage, seconds = (
        trace[column][is_compute] for column in ("step", "dp_rank", "stage", "duration")
    )
    steps, row = np.unique(step, return_inverse=True)
    table = np.zeros((len(steps), int(data.max()) + 1, int(stage.max()) + 1))
    np.add.at(table, (row, data, stage), seconds)
    return table, int(trace["mb_id"].max()) + 1


def write_operations(trace: Trace, path: Path) -> Path:
    """One row per operation, in the order of the trace."""
    return _write(path, _operations(trace))


def write_steps(trace: Trace, path: Path) -> Path:
    """One row per step, rank and operation; ``microbatch`` says how many operations it holds."""
    sums: dict[tuple[object, ...], list[float]] = {}
    for rank, section, step, start_ns, duration_s, dp, pp, _ in _operations(trace):
        cell = sums.setdefault((rank, section, step, dp, pp), [float("inf"), 0.0, 0])
        cell[:] = min(cell[0], start_ns), cell[1] + duration_s, cell[2] + 1
    rows = (
        (rank, section, step, int(start_ns), duration_s, dp, pp, int(count))
        for (rank, section, step, dp, pp), (start_ns, duration_s, count) in sums.items()
    )
    return _write(path, rows)


Row: TypeAlias = tuple[int, str, int, int, float, int, int, int]


def _operations(trace: Trace) -> Iterator[Row]:
    columns = ("rank", "optype", "step", "start_ts", "duration", "dp_rank", "stage")
    for rank, section, step, start_s, duration_s, dp, pp in zip(
        *(trace[column].tolist() for column in columns), strict=True
    ):
        if section != NO_OPERATION and duration_s > 0:
            start_ns = int((step * SPACING_S + start_s) * 1e9)
            yield rank, section, step, start_ns, duration_s, dp, pp, 1


def _write(path: Path, rows: Iterator[Row]) -> Path:
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(HEADER)
        for rank, section, step, start_ns, duration_s, dp, pp, count in rows:
            kind = KINDS.get(section, "wait")
            writer.writerow(
                (path.stem, rank, "", "", section, kind, step, start_ns, duration_s, dp, pp, count)
            )
    return path

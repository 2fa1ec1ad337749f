"""Ranks as the workers of a pipeline: which (data rank, stage) each one belongs to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from otel_straggler.model.observation import Floats, Ints
from otel_straggler.model.rank import Source
from otel_straggler.model.step_table import StepTable

ASSUMED_PER_STAGE = 4
"""Where a pipeline does not tell its microbatches, so many per stage are assumed."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Workers:
    """The layout of R ranks: D data ranks times P pipeline stages.

    Attributes:
        data, stage: (R,) index of each rank in the two tuples below.
        data_ranks, stages: rank numbers in these dimensions, ascending.
    """

    data: Ints
    stage: Ints
    data_ranks: tuple[int, ...]
    stages: tuple[int, ...]

    @property
    def shape(self) -> tuple[int, int]:
        """(D, P)."""
        return len(self.data_ranks), len(self.stages)

    def ranks_of(self, data: int, stage: int) -> Ints:
        """Positions of the ranks of a worker, by index of data rank and stage."""
        return np.flatnonzero((self.data == data) & (self.stage == stage))


def find_workers(sources: Sequence[Source]) -> Workers | None:
    """Lay ranks out by what they tell of data and pipeline dimension.

    Ranks that tell no pipeline rank stand in one stage. Ranks that tell no data rank are numbered
    by rank among those of the same stage, tensor, context and expert rank. Several ranks of a
    worker (tensor, context, expert) share its place.

    Returns:
        None if there is no rank, if only some ranks tell a dimension, or if ranks of several
        roles tell no pipeline rank: then nobody knows who waits for whom.

    Cost: O(R log R).

    >>> from otel_straggler.model.rank import Source
    >>> ranks = [Source(run_id="r", rank=i, parallel=(("pipeline", i // 2),)) for i in range(4)]
    >>> found = find_workers(ranks)
    >>> found.shape, found.data.tolist(), found.stage.tolist()
    ((2, 2), [0, 1, 0, 1], [0, 0, 1, 1])
    """
    if not sources:
        return None
    told = [dict(source.parallel) for source in sources]
    n_stage = sum("pipeline" in parallel for parallel in told)
    n_data = sum("data" in parallel for parallel in told)
    has_roles = len({source.role for source in sources}) > 1
    if n_stage not in (0, len(told)) or n_data not in (0, len(told)):
        return None
    if n_stage == 0 and has_roles:
        return None
    stage = [parallel.get("pipeline", 0) for parallel in told]
    data = [p["data"] for p in told] if n_data else _numbered(sources, told, stage)
    data_ranks, data_index = np.unique(np.array(data, np.int64), return_inverse=True)
    stages, stage_index = np.unique(np.array(stage, np.int64), return_inverse=True)
    return Workers(
        data=data_index.astype(np.int64),
        stage=stage_index.astype(np.int64),
        data_ranks=tuple(data_ranks.tolist()),
        stages=tuple(stages.tolist()),
    )


def worker_seconds(table: StepTable, workers: Workers) -> Floats:
    """Compute time of every worker in every step: what ``what_if`` reads.

    Sections of kind compute count. In a pipeline those that run much less often than its
    microbatches (an optimizer, once a step) do not: they are not part of the schedule.
    The ranks of a worker are averaged, as they wait for each other all the time.

    Args:
        table: its ranks are those of ``workers``, in the same order.

    Returns:
        (T, D, P) seconds; NaN where no rank of the worker told all sections that it usually runs.

    Cost: O(T R S).
    """
    sections = _scheduled_sections(table, workers.shape[1])
    seconds = table.seconds[:, :, sections]
    is_known = np.isfinite(seconds)
    is_usual = 2 * is_known.sum(axis=0) >= len(table)
    is_complete = (is_known | ~is_usual).all(axis=2) & is_known.any(axis=2)
    per_rank = np.where(is_known, seconds, 0.0).sum(axis=2)
    return _mean_by_worker(np.where(is_complete, per_rank, np.nan), workers)


def microbatches_of(table: StepTable, workers: Workers) -> tuple[int, bool]:
    """Runs per step of the compute section that runs most often, and whether they were told.

    A pipeline in which everything runs once tells whole steps, not microbatches: four per stage
    are assumed, a bubble of about a fifth. With one stage the number does not matter.

    Cost: O(T R S).
    """
    most = max([_usual_runs(table, s) for s in _compute_sections(table)], default=0)
    n_stages = workers.shape[1]
    if n_stages == 1:
        return max(1, most), True
    return (most, True) if most > 1 else (ASSUMED_PER_STAGE * n_stages, False)


def _scheduled_sections(table: StepTable, n_stages: int) -> list[int]:
    compute = _compute_sections(table)
    if n_stages == 1 or not compute:
        return compute
    runs = [_usual_runs(table, s) for s in compute]
    return [s for s, often in zip(compute, runs, strict=True) if 2 * often >= max(runs)]


def _compute_sections(table: StepTable) -> list[int]:
    return [i for i, section in enumerate(table.sections) if section.kind == "compute"]


def _usual_runs(table: StepTable, section: int) -> int:
    """The commonest number of runs in a step."""
    runs = table.runs[:, :, section]
    ran = runs[runs > 0]
    if len(ran) == 0:
        return 0
    if ran.min() == ran.max():
        return int(ran[0])
    counts, often = np.unique(ran, return_counts=True)
    return int(counts[np.argmax(often)])


def _mean_by_worker(per_rank: Floats, workers: Workers) -> Floats:
    n_steps, n_workers = len(per_rank), workers.shape[0] * workers.shape[1]
    place = workers.data * workers.shape[1] + workers.stage
    cell: Ints = (np.arange(n_steps)[:, None] * n_workers + place[None, :]).ravel()
    known: npt.NDArray[np.bool_] = np.isfinite(per_rank).ravel()
    size = n_steps * n_workers
    total = np.bincount(cell[known], per_rank.ravel()[known], size)
    count = np.bincount(cell[known], minlength=size)
    mean = np.full(size, np.nan)
    np.divide(total, count, out=mean, where=count > 0)
    return mean.reshape(n_steps, *workers.shape)


def _numbered(sources: Sequence[Source], told: list[dict[str, int]], stage: list[int]) -> list[int]:
    """A data rank for those that tell none: the place by rank among their likes."""
    place = [0] * len(sources)
    seen: dict[tuple[int, ...], int] = {}
    for i in sorted(range(len(sources)), key=lambda i: sources[i].rank):
        alike = (stage[i], *(told[i].get(name, 0) for name in ("tensor", "context", "expert")))
        place[i] = seen.get(alike, 0)
        seen[alike] = place[i] + 1
    return place

"""Ranks as workers of a pipeline, and the speed of the run if all were equal."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from otel_straggler.detect.scores.medians import median_of, nan_median
from otel_straggler.model.observation import Bools, Floats, Ints
from otel_straggler.model.rank import Source
from otel_straggler.model.step_table import StepTable

WORST_WORKERS = 0.03
"""Part of the workers in ``m_w``; at least one."""
MIN_KNOWN = 0.5
"""Steps with times of a smaller part of the workers are left out."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class WhatIf:
    """Cost of differences between workers. NaN: unknown, or nothing is lost.

    Attributes:
        slowdown: time of the steps / time if every worker took the mean (S).
        waste: 1 - 1 / slowdown, part of the GPU time.
        lost_s: seconds per step that are lost.
        m_w: part of the loss that goes if the worst 3 % of the workers take the mean; noise where
            ``slowdown`` is hardly above 1.
        m_s: the same for the last pipeline stage; above 1 or below 0 as the mean of the run is
            longer than the other stages, or than the last.
        of_worker: (D, P) slowdown if only its data rank, or only its stage, were as it is; the
            smaller of both.
        stages: (P,) time of a stage / mean over stages, median over data ranks.
    """

    slowdown: float = math.nan
    waste: float = math.nan
    lost_s: float = math.nan
    m_w: float = math.nan
    m_s: float = math.nan
    of_worker: Floats
    stages: Floats


def what_if(seconds: Floats, microbatches: int, step_s: Floats | None = None) -> WhatIf:
    """Compare a run with itself if all workers were equal.

    With a = seconds / microbatches (M), a step of the schedule 1F1B takes

        T(a) = max over d of [(M - 1) max over p of a[d, p] + sum over p of a[d, p]],

    and slowdown = sum T(a) / sum T(mean of a over d and p). An interleaved pipeline is covered if
    ``microbatches`` counts microbatches x chunks. Zero-bubble schedules have less bubble. Loss in
    communication and a slowdown of all workers are not seen. An unknown worker takes the mean of
    its stage. Slowing the slowest worker never lowers ``slowdown``.

    Args:
        seconds: (T, D, P) compute time, without waiting; NaN if unknown.
        microbatches: M, at least 1.
        step_s: (T,) seconds that the steps took with all that is in none of these times, which
            stays as it is: the loss is a part of that. NaN if unknown; None: there is nothing else.

    Returns: all NaN if no step has times of half the workers, or all are 0.

    Cost: O(T D P). Source: the surrogate is ours; S, M_W, and M_S are defined in "Understanding
    Stragglers in Large Model Training Using What-if Analysis" (OSDI 2025), on whose traces it lies
    within 4.5 % of the replay.
    """
    a = filled(np.asarray(seconds, np.float64)) / max(1, microbatches)
    ideal = a.mean(axis=(1, 2)) if a.size else np.zeros(len(a))
    total_ideal = float(ideal.sum()) * (microbatches - 1 + a.shape[2])
    if not total_ideal > 0.0:
        unknown = np.full(a.shape[1:], np.nan)
        return WhatIf(of_worker=unknown, stages=np.full(a.shape[2], np.nan))
    known_s = np.zeros(0) if step_s is None else step_s[np.isfinite(step_s)]
    whole = median_of(known_s) * len(a) if len(known_s) else 0.0
    return _result(a, ideal, total_ideal, microbatches, whole)


def _result(
    a: Floats, ideal: Floats, total_ideal: float, microbatches: int, whole: float
) -> WhatIf:
    """``whole``: seconds of all steps, 0 if unknown."""
    n_stages = a.shape[2]
    row_s = row_seconds(a, microbatches)
    total = float(row_s.max(axis=1).sum())
    rest = max(whole - total, 0.0)
    ideal_row_s = ideal * (microbatches - 1 + n_stages)
    of_data_rank = np.maximum(row_s, ideal_row_s[:, None]).sum(axis=0)
    of_stage = _only_stage_s(a, ideal, microbatches)
    of_worker = np.minimum(of_data_rank[:, None], of_stage[None, :])
    of_worker = (of_worker + rest) / (total_ideal + rest)
    loss = total - total_ideal

    def part_won(workers: Bools) -> float:
        if not loss > 1e-9 * total_ideal:
            return math.nan
        mended = np.where(workers[None], ideal[:, None, None], a)
        return (total - float(row_seconds(mended, microbatches).max(axis=1).sum())) / loss

    slowdown = (total + rest) / (total_ideal + rest)
    return WhatIf(
        slowdown=slowdown,
        waste=1.0 - 1.0 / slowdown,
        lost_s=loss / len(a),
        m_w=part_won(_worst(of_worker)),
        m_s=part_won(_last_stage(of_worker.shape)) if n_stages > 1 else math.nan,
        of_worker=of_worker,
        stages=stage_structure(a),
    )


def stage_structure(seconds: Floats) -> Floats:
    """(P,) time of a stage / mean over stages, from (T, D, P) seconds: the median over data ranks
    of the mean over steps. NaN for a stage without times.

    >>> stage_structure(np.array([[[1.0, 1.0, 2.0], [1.0, 1.0, 2.0]]])).tolist()
    [0.75, 0.75, 1.5]
    """
    known = np.isfinite(seconds)
    count = known.sum(axis=0)
    per_worker = np.full(count.shape, np.nan)
    np.divide(np.where(known, seconds, 0.0).sum(axis=0), count, out=per_worker, where=count > 0)
    stage_s = nan_median(per_worker, axis=0)
    mean = _mean(stage_s)
    return stage_s / mean if mean > 0 else np.full(len(stage_s), np.nan)


# --- parts ------------------------------------------------------------------------------------


def row_seconds(a: Floats, microbatches: int) -> Floats:
    """(T, D) time of a step if this data rank were alone, from (T, D, P) of a microbatch."""
    seconds: Floats = (microbatches - 1) * a.max(axis=2) + a.sum(axis=2)
    return seconds


def _only_stage_s(a: Floats, ideal: Floats, microbatches: int) -> Floats:
    """(P,) time of all steps if all but one stage took the mean; the slowest data rank decides."""
    slowest = a.max(axis=1)
    mean = ideal[:, None]
    steady = (microbatches - 1) * np.maximum(slowest, mean)
    once = slowest + (a.shape[2] - 1) * mean
    seconds: Floats = (steady + once).sum(axis=0)
    return seconds


def _worst(of_worker: Floats) -> Bools:
    count = max(1, round(WORST_WORKERS * of_worker.size))
    worst = np.zeros(of_worker.size, bool)
    worst[np.argsort(-of_worker, axis=None, kind="stable")[:count]] = True
    return worst.reshape(of_worker.shape)


def _last_stage(shape: tuple[int, ...]) -> Bools:
    last = np.zeros(shape, bool)
    last[:, -1] = True
    return last


def filled(seconds: Floats) -> Floats:
    """Steps that enough workers reported; unknown cells take the mean of their stage in the step,
    else in all steps, else the mean of the step."""
    known = np.isfinite(seconds)
    if known.all() and seconds.size:
        return seconds
    enough = known.mean(axis=(1, 2)) >= MIN_KNOWN if seconds.size else np.zeros(0, bool)
    seconds, known = seconds[enough], known[enough]
    kept = np.where(known, seconds, 0.0)
    in_step = _ratio(kept.sum(axis=1), known.sum(axis=1))
    ever = _ratio(kept.sum(axis=(0, 1)), known.sum(axis=(0, 1)))
    of_all = _ratio(kept.sum(axis=(1, 2)), known.sum(axis=(1, 2)))
    guess = np.where(np.isnan(in_step), ever[None, :], in_step)
    guess = np.where(np.isnan(guess), of_all[:, None], guess)
    return np.where(known, seconds, guess[:, None, :])


def _ratio(total: Floats, count: npt.NDArray[np.integer]) -> Floats:
    result = np.full(count.shape, np.nan)
    np.divide(total, count, out=result, where=count > 0)
    return result


def _mean(values: Floats) -> float:
    known = values[np.isfinite(values)]
    return float(known.mean()) if len(known) else math.nan


ASSUMED_PER_STAGE = 4
"""Microbatches per stage, if a pipeline does not report them."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Workers:
    """Layout of R ranks: D data ranks times P pipeline stages.

    Attributes:
        data, stage: (R,) index of each rank in ``data_ranks`` and ``stages`` (ascending).
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
    """Lay ranks out by their data and pipeline dimension.

    Without pipeline ranks there is one stage; without data ranks they are numbered by rank among
    those with the same stage, tensor, context, and expert rank.

    Returns: None without ranks, if only some ranks report a dimension, or if ranks of several roles
    report no pipeline rank: nobody knows who waits for whom.
    """
    if not sources:
        return None
    indexes = [dict(source.parallel) for source in sources]
    n_stage = sum("pipeline" in index for index in indexes)
    n_data = sum("data" in index for index in indexes)
    has_roles = len({source.role for source in sources}) > 1
    if n_stage not in (0, len(indexes)) or n_data not in (0, len(indexes)):
        return None
    if n_stage == 0 and has_roles:
        return None
    stage = [index.get("pipeline", 0) for index in indexes]
    data = [p["data"] for p in indexes] if n_data else _numbered(sources, indexes, stage)
    data_ranks, data_index = np.unique(np.array(data, np.int64), return_inverse=True)
    stages, stage_index = np.unique(np.array(stage, np.int64), return_inverse=True)
    return Workers(
        data=data_index.astype(np.int64),
        stage=stage_index.astype(np.int64),
        data_ranks=tuple(data_ranks.tolist()),
        stages=tuple(stages.tolist()),
    )


def worker_seconds(table: StepTable, workers: Workers) -> Floats:
    """(T, D, P) compute seconds of every worker, for ``what_if``; NaN where no rank of the worker
    has all sections that it usually runs. In a pipeline, sections that run much less often than its
    microbatches (an optimizer) do not count. The ranks of a worker, those of ``table`` in order,
    are averaged."""
    sections = _scheduled_sections(table, workers.shape[1])
    seconds = table.seconds[:, :, sections]
    is_known = np.isfinite(seconds)
    is_usual = 2 * is_known.sum(axis=0) >= len(table)
    is_complete = (is_known | ~is_usual).all(axis=2) & is_known.any(axis=2)
    per_rank = np.where(is_known, seconds, 0.0).sum(axis=2)
    return _mean_by_worker(np.where(is_complete, per_rank, np.nan), workers)


def microbatches_of(table: StepTable, workers: Workers) -> int:
    """Runs per step of the compute section that runs most often. If a pipeline runs everything
    once, four microbatches per stage are assumed."""
    maximum = max([_usual_runs(table, s) for s in _compute_sections(table)], default=0)
    n_stages = workers.shape[1]
    if n_stages == 1:
        return max(1, maximum)
    return maximum if maximum > 1 else ASSUMED_PER_STAGE * n_stages


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
    index = workers.data * workers.shape[1] + workers.stage
    cell: Ints = (np.arange(n_steps)[:, None] * n_workers + index[None, :]).ravel()
    known: Bools = np.isfinite(per_rank).ravel()
    size = n_steps * n_workers
    total = np.bincount(cell[known], per_rank.ravel()[known], size)
    count = np.bincount(cell[known], minlength=size)
    mean = np.full(size, np.nan)
    np.divide(total, count, out=mean, where=count > 0)
    return mean.reshape(n_steps, *workers.shape)


def _numbered(
    sources: Sequence[Source], indexes: list[dict[str, int]], stage: list[int]
) -> list[int]:
    """A data rank for those that report none: the number among ranks of the same place."""
    number = [0] * len(sources)
    seen: dict[tuple[int, ...], int] = {}
    for i in sorted(range(len(sources)), key=lambda i: sources[i].rank):
        alike = (stage[i], *(indexes[i].get(name, 0) for name in ("tensor", "context", "expert")))
        number[i] = seen.get(alike, 0)
        seen[alike] = number[i] + 1
    return number

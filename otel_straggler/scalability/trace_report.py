"""The ranks of a profiled job side by side: where their time goes, who comes late, and which
kernels take longer."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from otel_straggler.detect.scores.formulas import relative_scores
from otel_straggler.detect.scores.kernels import RowKernels
from otel_straggler.model.observation import NO_KERNEL, ObservationBatch
from otel_straggler.scalability.arrivals import (
    MIN_COLLECTIVES,
    MIN_SHARE,
    MIN_STEP_SIGMAS,
    Arrivals,
    are_usually_behind,
    find_arrivals,
    noise_of_sum,
)
from otel_straggler.scalability.gpu_traces import RankTrace

VERSION = 1
MAX_KERNELS = 20
MIN_STEPS = 3
"""Of which a rank is named, where steps are known."""
_EXPLAINS = 0.5
"""Part of the lateness that a longer time must explain to be called its reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelScore:
    """A kernel on the rank that loses most time in it.

    Attributes:
        score: median of the fastest rank / median of this one, 0 to 1.
        median_s, fastest_s: of one execution; total_s: of all executions on this rank.
        share: of the time of all compute kernels of this rank.
    """

    name: str
    rank: int
    score: float
    median_s: float
    fastest_s: float
    total_s: float
    share: float

    @property
    def lost_s(self) -> float:
        return self.total_s * (1.0 - self.score)


@dataclass(frozen=True, slots=True)
class TraceReport:
    """``ranks``: in order, one trace each; ``answer``: the verdict as sentences, the first one for
    all; ``kernels``: those in which a rank loses most time, the largest loss first; ``is_enough``:
    there are steps and collectives enough to name a rank, by its scores and kernels, too."""

    ranks: tuple[RankTrace, ...]
    arrivals: Arrivals | None
    answer: tuple[str, ...]
    kernels: tuple[KernelScore, ...] = ()
    is_enough: bool = True


def kernel_scores(rows: ObservationBatch) -> tuple[KernelScore, ...]:
    """Score compute kernels by their names, against the fastest rank. Cost: O(rows)."""
    sources = rows.sources
    kernels = RowKernels(rows, np.arange(len(sources)), len(sources)).of(None)
    if kernels is None or len(sources) < 2:
        return ()
    median_s, total_s = kernels.times.median_s, kernels.times.total_s
    score = relative_scores(median_s, np.zeros(len(sources), np.int64))
    of_rank_s = total_s.sum(axis=1)
    lost_s = np.where(np.isnan(score), 0.0, total_s * (1.0 - score))
    worst = lost_s.argmax(axis=0)
    result = []
    for k in np.argsort(-lost_s.max(axis=0), kind="stable")[:MAX_KERNELS].tolist():
        r = int(worst[k])
        if lost_s[r, k] <= 0.0:
            break
        result.append(
            KernelScore(
                name=kernels.names[k],
                rank=sources[r].rank,
                score=float(score[r, k]),
                median_s=float(median_s[r, k]),
                fastest_s=float(median_s[r, k] * score[r, k]),
                total_s=float(total_s[r, k]),
                share=float(total_s[r, k] / of_rank_s[r]),
            )
        )
    return tuple(result)


def steady_sections(rows: ObservationBatch) -> frozenset[tuple[int, str]]:
    """Ranks and sections that take longer than the median of the other ranks in nearly every step,
    by more than chance explains and a part of the step that is worth a word: of few steps, a score
    alone may be chance.
    Cost: O(rows)."""
    numbers, step = np.unique(rows.step, return_inverse=True)
    time_s = np.zeros((len(numbers), len(rows.sources), len(rows.sections)))
    of_section = rows.kernel == NO_KERNEL
    index = step[of_section], rows.source[of_section], rows.section[of_section]
    np.add.at(time_s, index, rows.duration_s[of_section])
    step_s = float(np.median(time_s.sum(axis=2)))
    time_s[time_s == 0.0] = np.nan
    steady = set()
    for rank, source in enumerate(rows.sources):
        others = np.delete(time_s, rank, axis=1)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # nobody else ran it in this step
            behind = time_s[:, rank] - np.nanmedian(others, axis=1)
            is_worth = np.nanmedian(behind, axis=0) >= MIN_SHARE * step_s
            is_worth &= np.nansum(behind, axis=0) > MIN_STEP_SIGMAS * noise_of_sum(behind)
        for section in np.flatnonzero(are_usually_behind(behind) & is_worth).tolist():
            steady.add((source.rank, rows.sections[section].name))
    return frozenset(steady)


def trace_report(traces: Sequence[RankTrace], rows: ObservationBatch | None = None) -> TraceReport:
    """Compare traces of different ranks, with their rows where these are known; traces without a
    rank are compared with nobody."""
    ranks = tuple(sorted(traces, key=lambda each: (each.rank is None, each.rank or 0, each.name)))
    spans_s = [each.shares.span_s for each in ranks if each.shares is not None]
    collectives = {each.rank: each.collectives for each in ranks if each.rank is not None}
    steps = min((each.steps for each in ranks if each.steps), default=0)
    arrivals = find_arrivals(collectives, max(spans_s, default=0.0), steps)
    n_collectives = 0 if arrivals is None else len(arrivals.names)
    if arrivals is None or n_collectives < MIN_COLLECTIVES or 0 < steps < MIN_STEPS:
        arrivals = arrivals and replace(arrivals, late=())
        return TraceReport(ranks, arrivals, (_too_few(ranks, n_collectives, steps),), (), False)
    kernels = () if rows is None or not len(rows) else kernel_scores(rows)
    return TraceReport(ranks, arrivals, tuple(_answer(ranks, arrivals)), kernels)


def _too_few(ranks: Sequence[RankTrace], collectives: int, steps: int) -> str:
    """Why nobody is named.

    Args:
        steps: whole ones of every rank; 0: not marked.
    """
    if not any(each.shares for each in ranks):
        return "Nothing ran in these traces: there are neither kernels nor operators in them."
    if len(ranks) < 2:
        return "One rank alone: who arrives last needs the traces of its peers."
    if not collectives:
        return _NOTHING_IN_COMMON
    known = _many(collectives) + (f" in {_counted(steps, 'whole step')}" if steps else "")
    needed = max(MIN_STEPS, math.ceil(MIN_COLLECTIVES * steps / collectives)) + 1
    remedy = f': ots.profile("prof", active={needed})' if steps else ""
    return (
        f"Nobody is named: there are {known} in these traces, and by chance alone some rank is the "
        f"last there. Record at least {MIN_COLLECTIVES} collectives in at least {MIN_STEPS} whole "
        f"steps, not the first ones{remedy}."
    )


def _answer(ranks: Sequence[RankTrace], arrivals: Arrivals) -> list[str]:
    if not arrivals.late:
        by = f"by more than {arrivals.threshold_s * 1e3:.1f} ms over {_many(len(arrivals.names))}"
        return [f"No rank is late: none arrives later than the others {by}."]
    named = ", ".join(map(str, arrivals.late))
    is_one = len(arrivals.late) == 1
    all_of_them = (
        f"Rank {named} is late, and the others wait for it."
        if is_one
        else f"Ranks {named} are late, and the others wait for them."
    )
    by_rank = {each.rank: each for each in ranks}
    peers = [r for r in ranks if r.rank not in arrivals.late and r.shares is not None]
    return [all_of_them, *(_sentence(by_rank[rank], arrivals, peers) for rank in arrivals.late)]


_NOTHING_IN_COMMON = (
    "Nobody can be named: no two ranks have a collective in common. Was the profiler started in "
    "the same step on all ranks, and after init_process_group()?"
)


def _many(collectives: int) -> str:
    return _counted(collectives, "collective")


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def _sentence(rank: RankTrace, arrivals: Arrivals, peers: Sequence[RankTrace]) -> str:
    index = arrivals.ranks.tolist().index(rank.rank)
    late_s = float(arrivals.late_by_s[index])
    last, collectives = int(arrivals.times_last[index]), _many(len(arrivals.names))
    text = (
        f"rank {rank.rank} comes {late_s * 1e3:.1f} ms later over {collectives} "
        f"({late_s / arrivals.span_s:.1%} of the time)"
    )
    if last:
        text += f", and is the last at {last} of them"
    reason = _reason(rank, peers, late_s)
    return f"{text}: {reason}." if reason else f"{text}."


def _reason(rank: RankTrace, peers: Sequence[RankTrace], late_s: float) -> str:
    """What takes it longer than its peers; empty where neither explains half of it."""
    if rank.shares is None or not peers:
        return ""
    known = [each.shares for each in peers if each.shares is not None]
    compute_s = float(np.median([each.compute_s for each in known]))
    idle_s = float(np.median([each.span_s - each.busy_s for each in known]))
    more_compute_s = rank.shares.compute_s - compute_s
    more_idle_s = rank.shares.span_s - rank.shares.busy_s - idle_s
    if compute_s > 0.0 and more_compute_s >= max(_EXPLAINS * late_s, more_idle_s):
        what = "its kernels" if rank.on_gpu else "its operators"
        return f"{what} compute {rank.shares.compute_s / compute_s:.2f}x as long as its peers'"
    if more_idle_s >= _EXPLAINS * late_s:
        where = "its GPU idles" if rank.on_gpu else "it idles"
        return f"{where} {more_idle_s * 1e3:.1f} ms longer; look at its host and its data loading"
    return ""


def report_json(report: TraceReport) -> dict[str, Any]:
    """NaN is null."""
    arrivals = report.arrivals
    return {
        "schema_version": VERSION,
        "answer": list(report.answer),
        "late_ranks": list(arrivals.late) if arrivals else [],
        "is_enough": report.is_enough,
        "collectives": len(arrivals.names) if arrivals else 0,
        "threshold_s": arrivals.threshold_s if arrivals else None,
        "end_spread_s": arrivals.end_spread_s if arrivals else None,
        "ranks": [rank_row(each, arrivals) for each in report.ranks],
        "kernels": [asdict(each) for each in report.kernels],
    }


def rank_row(rank: RankTrace, arrivals: Arrivals | None) -> dict[str, Any]:
    """What is known of one rank; times in seconds, shares 0 to 1."""
    row: dict[str, Any] = {
        "rank": rank.rank,
        "file": rank.name,
        "steps": rank.steps,
        "step_s": rank.step_s,
        "is_whole": rank.is_whole,
        "on_gpu": rank.on_gpu,
        **(rank.shares.as_json() if rank.shares else {}),
    }
    if arrivals is not None and rank.rank is not None:
        index = arrivals.ranks.tolist().index(rank.rank)
        row |= {
            "late_by_s": float(arrivals.late_by_s[index]),
            "waited_s": float(arrivals.waited_s[index]),
            "times_last": int(arrivals.times_last[index]),
            "clock_ahead_s": float(arrivals.clock_s[index]),
            "is_late": rank.rank in arrivals.late,
        }
    return {k: None if isinstance(v, float) and math.isnan(v) else v for k, v in row.items()}

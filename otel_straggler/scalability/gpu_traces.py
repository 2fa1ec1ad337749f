"""Traces of torch.profiler, one file per rank, to what a report needs of each."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from otel_straggler.model.observation import Floats, Ints, kernel_class_of
from otel_straggler.model.traced_collective import Collective
from otel_straggler.recordings.trace_events import KinetoTrace
from otel_straggler.scalability.runs import ScalingRun
from otel_straggler.scalability.timeline import (
    CLASS_CODES,
    COMMUNICATION,
    COMPUTE,
    TimeShares,
    time_shares,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RankTrace:
    """What a trace says of its rank; times in seconds on the clock of the trace.

    Attributes:
        rank: None if neither trace nor file name it; world_size: 0 if unknown.
        steps: number of recorded steps, of which the last one is left out if there are several:
            what it launched may not have ended. step_s: median.
        shares: None where nothing ran; on_gpu: False where these are of the host's operators.
        begin_s, end_s, kind: (n,) of kernels (of operators without a GPU), by their begins.
        collectives: by their begins.
    """

    name: str
    rank: int | None
    world_size: int
    steps: int
    step_s: float
    shares: TimeShares | None
    on_gpu: bool
    begin_s: Floats
    end_s: Floats
    kind: Ints
    collectives: tuple[Collective, ...]
    is_whole: bool


def rank_trace(trace: KinetoTrace, name: str) -> RankTrace:
    """Cost: O(n log n) in kernels."""
    on_gpu = bool(trace.kernels)
    begin, end, kind, at = _kernels(trace) if on_gpu else _operators(trace)
    collectives = trace.collectives if on_gpu else trace.host_collectives
    starts = sorted((step.begin, step.end - step.begin) for step in trace.steps.values())
    if len(starts) > 1:
        kept = at < starts[-1][0]
        begin, end, kind = begin[kept], end[kept], kind[kept]
        collectives = [each for each in collectives if each.begin < starts[-1][0]]
        starts.pop()
    order = np.argsort(begin, kind="stable")
    begin, end, kind = begin[order] / 1e6, end[order] / 1e6, kind[order]
    return RankTrace(
        name=f"{name} (process {trace.process})" if trace.process else name,
        rank=trace.rank(name),
        world_size=trace.world_size,
        steps=len(starts),
        step_s=float(np.median([took for _, took in starts])) / 1e6 if starts else math.nan,
        shares=time_shares(begin, end, kind),
        on_gpu=on_gpu,
        begin_s=begin,
        end_s=end,
        kind=kind,
        collectives=tuple(sorted(collectives, key=lambda each: each.begin)),
        is_whole=trace.is_whole,
    )


_Columns = tuple[Floats, Floats, Ints, Floats]
"""Begins, ends, codes of kinds, and times of launch, us."""


def _kernels(trace: KinetoTrace) -> _Columns:
    """A kernel whose launch is not in the trace belongs to the step in which it began."""
    codes = {name: CLASS_CODES[kernel_class_of(name)] for name in {k[0] for k in trace.kernels}}
    begin = np.array([kernel[1] for kernel in trace.kernels])
    length = np.array([kernel[2] for kernel in trace.kernels])
    kind = np.array([codes[kernel[0]] for kernel in trace.kernels], np.int64)
    launched = [trace.launches.get(kernel[3], kernel[1]) for kernel in trace.kernels]
    return begin, begin + length, kind, np.array(launched)


def _operators(trace: KinetoTrace) -> _Columns:
    """Of the host: operators compute, annotations of gloo and its kin communicate."""
    operators = np.frombuffer(trace.operators, np.float64).reshape(-1, 2)
    waits = np.array([(each.begin, each.end) for each in trace.host_collectives]).reshape(-1, 2)
    both = np.concatenate([operators, waits])
    kind = np.repeat([COMPUTE, COMMUNICATION], [len(operators), len(waits)]).astype(np.int64)
    return both[:, 0], both[:, 1], kind, both[:, 0]


_SIZED = re.compile(
    r"(.*?)(?:[-_. ](?:[a-z]{1,5}[-_]?)?)?(\d{1,7})(?:[-_. ]?[a-z]{1,5})?", re.IGNORECASE
)


def strategy_of(run: str, size: int) -> str:
    """The name of a run without its size.

    >>> strategy_of("ddp_4", 4), strategy_of("fsdp-8gpus", 8), strategy_of("job-7", 4)
    ('ddp', 'fsdp', 'job-7')
    """
    named = _SIZED.fullmatch(run)
    if named is None or int(named[2]) != size:
        return run
    return named[1] or "training"


def run_of_traces(run: str, ranks: Sequence[RankTrace]) -> ScalingRun | None:
    """The run that these ranks are of; None if nothing ran in any of them."""
    known = [rank.shares for rank in ranks if rank.shares is not None]
    if not known:
        return None
    size = Counter(rank.world_size for rank in ranks).most_common(1)[0][0] or len(ranks)
    steps_s = [rank.step_s for rank in ranks if not math.isnan(rank.step_s)]
    return ScalingRun(
        name=run,
        strategy=strategy_of(run, size),
        size=size,
        step_s=float(np.median(steps_s)) if steps_s else math.nan,
        time=sum(known[1:], known[0]),
    )

"""A rank that trains one run after the other, as it is told.

    python -m benchmarks.trainers.ranks LOOP [first]

As ``benchmarks.inside_backward.ranks``, for the loops of this package. On standard input: a line of
JSON per run, the arguments of ``train_run``. On standard output: a line once it is ready, and one
per run that is over.
"""

from __future__ import annotations

import os
import sys
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import torch.distributed as dist

from benchmarks.inside_backward.ranks import train_as_told
from benchmarks.inside_backward.work import PACE
from benchmarks.trainers.data import FETCHED_AT_NS
from benchmarks.trainers.loops import LOOPS, TrainingLoop

Json = dict[str, Any]
WARM_UP_STEPS = 20


def main() -> None:
    loop = LOOPS[sys.argv[1]]
    train_as_told(lambda **run: train_run(loop, **run))


def train_run(
    loop: TrainingLoop,
    *,
    run_id: str,
    endpoint: str,
    steps: int,
    scale: float,
    added: Json,
    is_watched: bool = True,
    times_file: str = "",
) -> None:
    """Train one run from its first step to its clean end; ``scale``, ``added``: see ``Pace``.

    Args:
        times_file: rank 0 writes the median step there, in seconds, without the first steps.
    """
    os.environ["OTEL_STRAGGLER_ENDPOINT"] = endpoint
    os.environ["OTEL_STRAGGLER_RUN_ID"] = run_id
    PACE.plan(added, scale)
    dist.barrier()
    loop.train(steps, is_watched)
    if times_file and dist.get_rank() == 0:
        times = FETCHED_AT_NS[WARM_UP_STEPS:]
        between = [after - before for before, after in pairwise(times)]
        Path(times_file).write_text(str(median(between) / 1e9))


if __name__ == "__main__":
    main()

"""Many runs in one or two processes, in the order in which they were asked for."""

from __future__ import annotations

import multiprocessing
import os
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor

from benchmarks.detection.cases import full_set
from benchmarks.detection.records import RunRecord
from benchmarks.detection.running import run_case

Task = tuple[str, int, tuple[str, ...]]
"""Name of the case, seed, methods."""
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def run_all(tasks: Sequence[Task], processes: int) -> Iterator[RunRecord]:
    """Records one by one; progress goes to standard error."""
    if processes == 1:
        yield from _telling(map(run_task, tasks), len(tasks))
        return
    os.environ.update(dict.fromkeys(THREADS, "1"))
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, mp_context=spawn) as pool:
        yield from _telling(pool.map(run_task, tasks), len(tasks))


def run_task(task: Task) -> RunRecord:
    """By name, because a case holds functions, which do not travel to another process."""
    name, seed, methods = task
    return run_case(next(case for case in full_set() if case.name == name), seed, methods)


def _telling(runs: Iterator[RunRecord], n: int) -> Iterator[RunRecord]:
    for at, run in enumerate(runs, 1):
        if at % max(1, n // 50) == 0 or at == n:
            print(f"{at}/{n} runs, now {run.case} seed {run.seed}", file=sys.stderr, flush=True)
        yield run

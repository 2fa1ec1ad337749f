"""A rank that trains one run after the other, as it is told.

    python -m benchmarks.inside_backward.ranks TRAINING [first]

Where it stands in its job is in the environment, as torchrun has it. On standard input: a line of
JSON per run, the arguments of ``train_run``. On standard output: a line once it is ready, and one
per run that is over. A process lives as long as its row, because loading torch takes longer than a
run.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

import otel_straggler as ots
from benchmarks.inside_backward.loops import train_by_lightning, train_by_transformers
from benchmarks.inside_backward.trainings import TRAININGS, train
from benchmarks.inside_backward.work import PACE

Json = dict[str, Any]
FIRST = "first"
Train = Callable[[int], None]
LOOPS: dict[str, Train] = {
    "transformers": train_by_transformers,
    "lightning": train_by_lightning,
}


def main() -> None:
    loop = _loop_of(sys.argv[1])
    train_as_told(lambda **run: train_run(loop, **run))


def train_as_told(train_run: Callable[..., None]) -> None:
    """Train a run for each line of the input, and end with it."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print is not an answer
    if sys.argv[2:] == [FIRST]:
        come_first()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    print("ready", file=answers, flush=True)
    for line in sys.stdin:
        train_run(**json.loads(line))
        print("over", file=answers, flush=True)
    answers.flush()
    os._exit(0)  # gloo aborts now and then while the interpreter ends (pytorch#190489)


def train_run(
    loop: Train, *, run_id: str, endpoint: str, steps: int, scale: float, added: Json
) -> None:
    """Train one run from its first step to its clean end; ``scale``, ``added``: see ``Pace``."""
    PACE.plan(added, scale)
    dist.barrier()
    ots.configure(endpoint=endpoint, run_id=run_id, span_budget=0)
    ots.set_topology(data=(dist.get_rank(), dist.get_world_size()))
    loop(steps)
    ots.shutdown()


def come_first() -> None:
    """Run before other programs, in all threads to come: a training has its machine to itself, and
    a busy one makes one rank slow and then another."""
    with contextlib.suppress(PermissionError, AttributeError):
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))


def _loop_of(name: str) -> Train:
    if name in LOOPS:
        return LOOPS[name]
    build = TRAININGS[name]
    return lambda steps: train(build(), steps)


if __name__ == "__main__":
    main()

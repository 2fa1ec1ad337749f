"""Verdicts on one dense window of a very large run, and how their cost grows with the ranks.

    python -m benchmarks.verdict_window [--ranks N --sections S [--gpu]]

From step tables to all changes of verdicts: 20 steps in tables of 5, so four evaluations, of a
judge that has seen 60 steps before (``window``) and of a new one that is given that there will be
no more (``first_window``). Some ranks and one host are slow, so that there is something to say.
Making step tables from rows is not in it: ``benchmarks.dense_window`` prints that. Budgets are
held against processor time, ``cpu_s``; ``wall_s`` is given with it. Every size runs in a process
of its own, so that the peak of memory is its own; the dense one in three, and their median counts.
A virtual machine may have given its free memory back to its host, and then the first process to
touch it pays for getting it again: the first of the three may, and all three are printed. What new
memory costs is printed too (``first_touch_s_per_gib``), measured last, so that nothing before is
helped.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from otel_straggler.detect.verdicts.engine import VerdictEngine
from otel_straggler.model.observation import CUPTI, Section
from otel_straggler.model.rank import Source
from otel_straggler.model.step_table import GpuSeconds, StepTable

STEPS, TABLE_STEPS, WARM_STEPS = 20, 5, 60
PER_NODE, TENSOR, PIPELINE = 8, 8, 4
DENSE, DENSE_BUDGET_S, DENSE_BUDGET_GIB = (16_384, 16), 1.0, 1.0
DENSE_RUNS = 3
HUGE, HUGE_BUDGET_S = (100_000, 10), 10.0
SERIES = (1_024, 4_096, 16_384, 65_536)
NOISE = 0.024
SLOW_FACTOR = 1.25
STEP_NS = 2 * 10**9


def main() -> None:
    """Measure one size, or the budgets and the series, and print JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--ranks", type=int)
    parser.add_argument("--sections", type=int, default=DENSE[1])
    parser.add_argument("--gpu", action="store_true", help="with the times of kernels")
    args = parser.parse_args()
    result = measure(args.ranks, args.sections, gpu=args.gpu) if args.ranks else _all()
    print(json.dumps(result, indent=2))


def measure(ranks: int, sections: int, *, gpu: bool = False) -> dict[str, Any]:
    """A first and a later window, and the peak of memory of this process."""
    sources, names = _sources(ranks), _sections(sections)
    rng = np.random.default_rng(0)
    add_gpu = _with_gpu if gpu else iter
    first = _window(VerdictEngine(), add_gpu(_tables(rng, sources, names, 0, STEPS)), is_last=True)
    judge = VerdictEngine()
    _window(judge, add_gpu(_tables(rng, sources, names, 0, WARM_STEPS)))
    window = _window(judge, add_gpu(_tables(rng, sources, names, WARM_STEPS, STEPS)))
    return {
        "ranks": ranks,
        "sections": sections,
        "first_window": first,
        "window": window,
        "verdicts": len({change.subject_id for change in judge.changes}),
        "peak_gib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20, 3),
        "first_touch_s_per_gib": _first_touch_s_per_gib(),
    }


def _first_touch_s_per_gib() -> float:
    """Processor time for 128 MiB that are new: the cost of the machine, not of the judge."""
    begin_s = time.process_time()
    np.ones(2**24)
    return round((time.process_time() - begin_s) * 8, 3)


def _window(
    judge: VerdictEngine, tables: Iterator[StepTable], *, is_last: bool = False
) -> dict[str, float]:
    """Seconds within the judge alone: all threads' processor time, and wall time."""
    cpu_s = wall_s = 0.0
    for table in tables:
        begin_s = time.process_time(), time.perf_counter()
        judge.observe(table)
        cpu_s += time.process_time() - begin_s[0]
        wall_s += time.perf_counter() - begin_s[1]
    begin_s = time.process_time(), time.perf_counter()
    if is_last:
        judge.finish()
    judge.summary()
    cpu_s += time.process_time() - begin_s[0]
    wall_s += time.perf_counter() - begin_s[1]
    return {"cpu_s": round(cpu_s, 3), "wall_s": round(wall_s, 3)}


def _all() -> dict[str, Any]:
    runs = sorted((_apart(*DENSE) for _ in range(DENSE_RUNS)), key=_slower)
    dense, huge = runs[DENSE_RUNS // 2], _apart(*HUGE)
    series = [_apart(ranks, DENSE[1]) for ranks in SERIES]
    seconds = np.array([max(each["window"]["cpu_s"], 1e-9) for each in series])
    exponent, _ = np.polyfit(np.log(SERIES), np.log(seconds), 1)
    return {
        "dense": dense,
        "dense_gpu": _apart(*DENSE, "--gpu"),
        "dense_runs_s": [_slower(run) for run in runs],
        "dense_budget_s": DENSE_BUDGET_S,
        "dense_budget_gib": DENSE_BUDGET_GIB,
        "huge": huge,
        "huge_budget_s": HUGE_BUDGET_S,
        "series": series,
        "exponent": round(float(exponent), 3),
        "is_within_budget": _slower(dense) <= DENSE_BUDGET_S
        and dense["peak_gib"] <= DENSE_BUDGET_GIB
        and _slower(huge) <= HUGE_BUDGET_S,
    }


def _slower(each: dict[str, Any]) -> float:
    return float(max(each["first_window"]["cpu_s"], each["window"]["cpu_s"]))


def _apart(ranks: int, sections: int, *more: str) -> dict[str, Any]:
    own = [sys.executable, "-m", "benchmarks.verdict_window"]
    command = [*own, "--ranks", str(ranks), "--sections", str(sections), *more]
    answer = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    result: dict[str, Any] = json.loads(answer.stdout)
    return result


def _sources(ranks: int) -> tuple[Source, ...]:
    """Tensor groups within nodes, four pipeline stages, the rest is data."""
    per_stage = max(TENSOR, ranks // PIPELINE)
    return tuple(
        Source(
            run_id="run",
            rank=rank,
            node=f"node-{rank // PER_NODE}",
            session_id=f"{rank:016x}",
            local_rank=rank % PER_NODE,
            world_size=ranks,
            parallel=(
                ("data", rank % per_stage // TENSOR),
                ("pipeline", rank // per_stage),
                ("tensor", rank % TENSOR),
            ),
        )
        for rank in range(ranks)
    )


def _sections(n: int) -> tuple[Section, ...]:
    """The last is where all wait for the slowest."""
    return (*(Section(f"section-{at}") for at in range(n - 1)), Section("gradient_sync", "wait"))


def _tables(
    rng: np.random.Generator,
    sources: tuple[Source, ...],
    sections: tuple[Section, ...],
    first: int,
    steps: int,
) -> Iterator[StepTable]:
    ranks = len(sources)
    for begin in range(first, first + steps, TABLE_STEPS):
        shape = (TABLE_STEPS, ranks, len(sections))
        seconds = rng.standard_normal(shape, np.float32).astype(np.float64)
        seconds = 0.05 * np.exp(NOISE * seconds)
        seconds[:, ranks // 3 :: 1000] *= SLOW_FACTOR
        seconds[:, :PER_NODE] *= SLOW_FACTOR
        local_s = seconds[:, :, :-1].sum(axis=2)
        seconds[:, :, -1] += local_s.max(axis=1, keepdims=True) - local_s
        number = np.arange(begin, begin + TABLE_STEPS)
        start_ns = np.broadcast_to(number[:, None] * STEP_NS + 1, (TABLE_STEPS, ranks))
        yield StepTable(
            steps=number,
            sources=sources,
            sections=sections,
            seconds=seconds,
            runs=np.ones(shape, np.int32),
            run_cv=np.full(shape[1:], np.nan),
            tokens=np.full(shape[:2], np.nan),
            start_ns=np.ascontiguousarray(start_ns),
            end_ns=start_ns + (seconds.sum(axis=2) * 1e9).astype(np.int64),
            world_size=ranks,
        )


def _with_gpu(tables: Iterator[StepTable]) -> Iterator[StepTable]:
    """With the times of kernels: launches are as long as each other, and the GPU waits."""
    for table in tables:
        waits = np.array([section.kind == "wait" for section in table.sections])
        own_s = np.where(waits, 0.0, table.seconds)
        basis = np.full(table.seconds.shape, CUPTI, np.uint8)
        gpu = GpuSeconds(basis, own_s, table.seconds - own_s)
        yield replace(table, seconds=np.where(waits, 0.001, 0.005) + 0.0 * own_s, gpu=gpu)


if __name__ == "__main__":
    main()

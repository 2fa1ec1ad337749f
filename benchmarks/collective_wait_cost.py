"""What measuring waits in collectives costs a training, with and without, in one run.

    python -m benchmarks.collective_wait_cost

Prints JSON. Two ranks over gloo, on CPU. ``steps``: steps of so many ``all_reduce`` of 16 KiB, a
backward of a small model and some work, on the wall and on the processor of one rank: the median of
the ratios of rounds. ``calls``: processor time added to a ``Work.wait`` of what is done, a
``wait_tensor`` and a ``backward``, in nanoseconds, and which part of a step of one second a
thousand of them are. ``trace``: the operators that ``torch.profiler`` saw in a step with and
without: there are none that only one of them has, so that nothing is synchronized for measuring.
``memory_bytes``: of Python, gained over as many waits. Rounds take turns.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import statistics
import tempfile
import time
import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any, NamedTuple

import torch
import torch.distributed as dist

from benchmarks.harness.about import about
from benchmarks.harness.budgets import judge, print_result
from benchmarks.harness.turns import take_turns
from otel_straggler import section, step
from otel_straggler.client.collectives.session import CollectiveWaits
from otel_straggler.client.recording import RECORDER

NUMBERS = 4_096
"""Of a collective: 16 KiB."""
MAX_STEPS_A_ROUND = 10
"""Of a round: with few collectives steps are many."""
BUDGET = 0.01
"""Of a step of one second, for a thousand collectives."""
BUDGET_OF_STEP = 0.03
"""Of a step that does little else than 1,000 collectives."""
MEMORY_BUDGET_BYTES = 4_096
Act = Callable[[], object]


class Dose(NamedTuple):
    """How much is measured.

    Attributes:
        rounds: in which the ways take turns.
        calls: of one kind in a round, and collectives of all its steps.
        collectives: of a step.
        work_s: of a step, next to its collectives: what a model would do.
    """

    rounds: int
    calls: int
    collectives: tuple[int, ...]
    work_s: float


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--calls", type=int, default=2_000)
    parser.add_argument("--collectives", type=int, nargs="+", default=(10, 100, 1_000))
    parser.add_argument("--work-s", type=float, default=0.02)
    dose = Dose(**vars(parser.parse_args()))
    spawning = multiprocessing.get_context("spawn")
    answer = spawning.SimpleQueue()
    with tempfile.TemporaryDirectory() as folder:
        ranks = [
            spawning.Process(target=_rank, args=(rank, f"{folder}/meet", dose, answer))
            for rank in range(2)
        ]
        for rank in ranks:
            rank.start()
        measured: dict[str, Any] = answer.get()
        for rank in ranks:
            rank.join()
    result = {**about("torch"), "rounds": dose.rounds, **measured}
    share = result["calls"]["wait"]["share_of_a_second_for_1000"]
    worst = max(step["ratio"] - 1 for step in result["steps"].values())
    verdicts = {
        f"1,000 waits / 1 s <= {BUDGET:.0%}": judge(share, BUDGET, ""),
        f"step with / without - 1 <= {BUDGET_OF_STEP:.0%}": judge(worst, BUDGET_OF_STEP, ""),
        "operators that only one trace has": judge(len(result["trace"]["differ"]), 0, ""),
        "bytes gained": judge(result["memory_bytes"], MEMORY_BUDGET_BYTES, "B"),
    }
    print_result(result, verdicts)


def _rank(rank: int, meet: str, dose: Dose, answer: Any) -> None:
    """All measurements, as one of two ranks that do the same; the first one's count."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", store=dist.FileStore(meet, 2), rank=rank, world_size=2)
    RECORDER.enable()
    steps = {str(n): _step_cost(n, dose) for n in dose.collectives}
    calls = {name: _call_cost(act, dose) for name, act in _calls().items()}
    trace, memory_bytes = _traces(), _memory_bytes(dose.calls)
    RECORDER.disable()
    dist.barrier()
    if rank == 0:
        answer.put({"steps": steps, "calls": calls, "trace": trace, "memory_bytes": memory_bytes})


def _step_cost(collectives: int, dose: Dose) -> dict[str, float]:
    """A step with so many collectives, measured and not, on the wall and on this process."""
    steps_of_a_round = min(MAX_STEPS_A_ROUND, max(1, dose.calls // collectives))
    steps = _steps(collectives, steps_of_a_round, dose.work_s)
    wall = _with_and_without(steps, dose.rounds, time.perf_counter_ns)
    processor = _with_and_without(steps, dose.rounds, time.process_time_ns)
    pairs = list(zip(wall["with"], wall["without"], strict=True))

    def of_a_step_us(times_ns: list[int]) -> float:
        return round(statistics.median(times_ns) / steps_of_a_round / 1e3, 1)

    return {
        "without_us": of_a_step_us(wall["without"]),
        "with_us": of_a_step_us(wall["with"]),
        "ratio": round(statistics.median(w / wo for w, wo in pairs), 4),
        "processor_without_us": of_a_step_us(processor["without"]),
        "processor_with_us": of_a_step_us(processor["with"]),
    }


def _steps(collectives: int, steps_of_a_round: int, work_s: float) -> Callable[[], None]:
    """What runs all steps of a round."""
    numbers = count()
    tensor, train, work = torch.ones(NUMBERS), _small_training(), _work(work_s)

    def steps() -> None:
        for _ in range(steps_of_a_round):
            with step(next(numbers)), section("backward"):
                work()
                train()
                for _ in range(collectives):
                    dist.all_reduce(tensor)

    return steps


def _work(work_s: float) -> Act:
    """As many products of matrices as take so long now."""
    matrix = torch.ones(128, 128)
    began_s, products = time.perf_counter(), 0
    while time.perf_counter() < began_s + work_s:
        matrix @ matrix
        products += 1

    def work() -> None:
        for _ in range(products):
            matrix @ matrix

    return work


def _traces() -> dict[str, Any]:
    """Operators of a hundred collectives and a backward, with and without: how many of each."""
    tensor, train = torch.ones(NUMBERS), _small_training()
    train()  # from now on each backward adds to a gradient

    def seen() -> Counter[str]:
        with torch.profiler.profile() as profile, section("backward"):
            for _ in range(100):
                dist.all_reduce(tensor)
            train()
        return Counter(event.name for event in profile.events())

    without = seen()
    with _measuring():
        measured = seen()
    names = sorted(name for name in {*without, *measured} if without[name] != measured[name])
    differ = [f"{name}: {without[name]} without, {measured[name]} with" for name in names]
    return {"events": without.total(), "differ": differ}


def _memory_bytes(calls: int) -> int:
    """Gained by Python's allocations over a round of waits."""
    waits = _calls()["wait"]
    with _measuring(), section("backward"):
        waits()
        tracemalloc.start()
        before, _ = tracemalloc.get_traced_memory()
        for _ in range(10 * calls):
            waits()
        after, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    return after - before


def _call_cost(act: Act, dose: Dose) -> dict[str, float]:
    """One call, measured and not, on this thread's processor."""

    def calls() -> None:
        with section("backward"):
            for _ in range(dose.calls):
                act()

    rounds_ns = _with_and_without(calls, dose.rounds, time.thread_time_ns)
    taken = {name: statistics.median(times) for name, times in rounds_ns.items()}
    added_ns = (taken["with"] - taken["without"]) / dose.calls
    return {
        "without_ns": round(taken["without"] / dose.calls, 1),
        "with_ns": round(taken["with"] / dose.calls, 1),
        "added_ns": round(added_ns, 1),
        "share_of_a_second_for_1000": round(added_ns * 1_000 / 1e9, 6),
    }


def _calls() -> dict[str, Act]:
    """One call of each kind, for which nobody has to be waited."""
    from torch.distributed import _functional_collectives as functional

    work = dist.all_reduce(torch.ones(1), async_op=True)
    work.wait()
    done = torch.ones(1)
    return {
        "wait": lambda: work.wait(),  # noqa: PLW0108  looked up for each call, as code does
        "wait_tensor": lambda: functional.wait_tensor(done),
        "backward": _small_training(),
    }


def _small_training() -> Act:
    weight = torch.ones(4, requires_grad=True)

    def train() -> None:
        (weight * 2).sum().backward()

    return train


def _with_and_without(
    act: Callable[[], None], rounds: int, clock_ns: Callable[[], int]
) -> dict[str, list[int]]:
    """Nanoseconds of each in each round."""

    def measured() -> None:
        with _measuring():
            act()

    ways = {"with": measured, "without": act}
    return take_turns(ways, rounds, clock_ns, after_each=RECORDER.drain)


@contextmanager
def _measuring() -> Iterator[Any]:
    waits = CollectiveWaits()
    waits.start()
    yield waits
    waits.close()


if __name__ == "__main__":
    os.environ.pop("OTEL_STRAGGLER_ENDPOINT", None)  # nothing is sent
    main()

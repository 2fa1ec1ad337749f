"""What measuring waits in collectives costs the training thread, with and without, in one run.

    python -m benchmarks.collective_wait_cost

Prints JSON. A world of one rank over gloo, on CPU, so that a collective takes as short as it can.
``steps``: steps of so many ``all_reduce`` of one number and a backward of a small model, on the
wall: the median of the ratios of rounds, and what was added per collective. ``calls``: processor
time added to a ``Work.wait`` of what is done, a ``wait_tensor`` and a ``backward``, in nanoseconds,
and which part of a step of one second a thousand of them are. Ratios count; rounds take turns.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

import torch
import torch.distributed as dist

from benchmarks.harness.about import about
from benchmarks.harness.budgets import judge, print_result
from benchmarks.harness.turns import take_turns
from otel_straggler import section, step
from otel_straggler.client.collectives.session import CollectiveWaits
from otel_straggler.client.recording import RECORDER

COLLECTIVES = (10, 100, 1_000)
"""Of a step."""
CALLS = 2_000
"""Of one kind in a round."""
BUDGET = 0.01
"""Of a step of one second, for a thousand collectives."""
Act = Callable[[], object]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rounds", type=int, default=21)
    rounds = parser.parse_args().rounds
    torch.set_num_threads(1)
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    RECORDER.enable()
    steps = {str(n): _step_cost(n, rounds) for n in COLLECTIVES}
    calls = {name: _call_cost(act, rounds) for name, act in _calls().items()}
    RECORDER.disable()
    dist.destroy_process_group()
    result = {**about("torch"), "rounds": rounds, "steps": steps, "calls": calls}
    share = calls["wait"]["share_of_a_second_for_1000"]
    print_result(result, {f"1,000 waits / 1 s <= {BUDGET:.0%}": judge(share, BUDGET, "")})


def _step_cost(collectives: int, rounds: int) -> dict[str, float]:
    """A step with so many collectives, measured and not, on the wall."""
    numbers = count()
    tensor, train = torch.ones(1), _small_training()

    def steps() -> None:
        for _ in range(max(1, CALLS // collectives)):
            with step(next(numbers)), section("backward"):
                for _ in range(collectives):
                    dist.all_reduce(tensor)
                train()

    taken = _with_and_without(steps, rounds, time.perf_counter_ns)
    pairs = list(zip(taken["with"], taken["without"], strict=True))
    times_a_step = max(1, CALLS // collectives) * 1e3
    return {
        "without_us": round(statistics.median(taken["without"]) / times_a_step, 1),
        "with_us": round(statistics.median(taken["with"]) / times_a_step, 1),
        "ratio": round(statistics.median(w / wo for w, wo in pairs), 4),
        "added_ns_per_collective": round(statistics.median(w - wo for w, wo in pairs) / CALLS, 1),
    }


def _call_cost(act: Act, rounds: int) -> dict[str, float]:
    """One call, measured and not, on this thread's processor."""

    def calls() -> None:
        with section("backward"):
            for _ in range(CALLS):
                act()

    rounds_ns = _with_and_without(calls, rounds, time.thread_time_ns)
    taken = {name: statistics.median(times) for name, times in rounds_ns.items()}
    added_ns = (taken["with"] - taken["without"]) / CALLS
    return {
        "without_ns": round(taken["without"] / CALLS, 1),
        "with_ns": round(taken["with"] / CALLS, 1),
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

"""What ``watch()`` adds to a step in the training thread, with and without, in one run.

    python -m benchmarks.trainers.cost

Prints JSON: processor time of this thread that a step with a fetch, a forward, a backward and an
optimizer step takes more when it is watched, in microseconds, and which part of a step of 20 ms
that is. Nothing is sent; the ring is emptied between rounds. Rounds take turns.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable

import torch
from torch.utils.data import DataLoader

import otel_straggler as ots
from benchmarks.harness.about import about
from benchmarks.harness.budgets import judge, print_result
from benchmarks.harness.turns import take_turns
from otel_straggler.client.recording import RECORDER
from otel_straggler.integrations.zero_code import StragglerInstrumentor

STEPS = 200
"""Of a round."""
STEP_US = 20_000
BUDGET = 0.01
"""Of such a step."""


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rounds", type=int, default=41)
    rounds = parser.parse_args().rounds
    torch.set_num_threads(1)
    RECORDER.enable()
    model = torch.nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    data: DataLoader[torch.Tensor] = DataLoader([torch.ones(4)] * STEPS, batch_size=None)  # type: ignore[arg-type]

    def plain() -> None:
        for inputs in data:
            optimizer.zero_grad()
            model(inputs).sum().backward()
            optimizer.step()

    def watched() -> None:
        with ots.watch(model, optimizer, data):
            plain()

    took = take_turns(
        {"without": plain, "watch": watched}, rounds, time.thread_time_ns, after_each=RECORDER.drain
    )
    added = {"watch": _added_us(took["watch"], took["without"]), "zero_code": _zero_code(plain)}
    result = {**about("torch"), "rounds": rounds, "steps_of_a_round": STEPS, "added_us": added}
    share = {name: us / STEP_US for name, us in added.items()}
    verdicts = {f"{name} / step of 20 ms": judge(part, BUDGET, "") for name, part in share.items()}
    print_result(result, verdicts)


def _zero_code(plain: Callable[[], None]) -> float:
    """The same, watched by the environment: it stays watched from its first steps on."""
    without, instrumented = [], []
    for times in (without, instrumented):
        if times is instrumented:
            StragglerInstrumentor().instrument()
            plain()
        for _ in range(21):
            began_ns = time.thread_time_ns()
            plain()
            times.append(time.thread_time_ns() - began_ns)
            RECORDER.drain()
    StragglerInstrumentor().uninstrument()
    return _added_us(instrumented, without)


def _added_us(watched_ns: list[int], plain_ns: list[int]) -> float:
    return round((statistics.median(watched_ns) - statistics.median(plain_ns)) / STEPS / 1e3, 2)


if __name__ == "__main__":
    os.environ.pop("OTEL_STRAGGLER_ENDPOINT", None)  # nothing is sent
    main()

"""What timing sections by CUDA events costs our own code: no GPU is needed, or used.

    python -m benchmarks.gpu_events

The driver does nothing, at once, so what is left is ours. In C++: a section's boundary with the
stream known, and a run's reading on the exporter's thread. In Python: a reused section as such,
with timing by events on the legacy stream, and with the current stream asked of a function in C, as
torch has one; the difference to the first is two boundaries, the GIL given away and taken back
included. CPU time of this thread, in nanoseconds; the ways take turns. What CUDA's own calls take
only a GPU can show: 1 to 2.5 us for each of the two events is published. Prints JSON.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import time
from pathlib import Path
from typing import Any

from benchmarks.harness.about import about
from benchmarks.harness.budgets import judge, print_result
from otel_straggler import section, step
from otel_straggler.client.recording import RECORDER
from otel_straggler.native import NATIVE

CUDA_EXT = Path(__file__).parents[1] / "cuda_ext"
DRIVER = CUDA_EXT / "build" / "bench" / "libidle_cuda.so"
BOUNDARY_NS = 20.0
RUNS = 1_000
ROUNDS = 60
TIMES = 3


def main() -> None:
    """Build, measure and print."""
    runs = [_measure() for _ in range(TIMES)]
    best = {name: min(run[name] for run in runs) for name in runs[0]}
    sections = _sections()
    print_result(
        {**about(), "rounds": ROUNDS, "best": best, "section_ns": sections},
        {
            "events: own ns at a section's boundary": judge(best["boundary_ns"], BOUNDARY_NS, "ns"),
        },
    )


def _measure() -> dict[str, Any]:
    answer = subprocess.run(
        ["make", "--silent", "-C", str(CUDA_EXT), "bench-events"],
        check=True,
        stdout=subprocess.PIPE,
    )
    measured: dict[str, Any] = json.loads(answer.stdout)
    return measured


def _sections() -> dict[str, float]:
    """By way, the median of its rounds."""
    if NATIVE is None:
        raise SystemExit("the extension was not built; there is nothing to measure")
    timers: dict[str, Any] = {
        "plain": None,
        "legacy_stream": NATIVE.EventTimer(str(DRIVER), None, -1),
        "asked_stream": NATIVE.EventTimer(str(DRIVER), abs, -1),
    }
    RECORDER.enable()
    result: dict[str, list[float]] = {name: [] for name in timers}
    for at in range(ROUNDS):
        for name in sorted(timers, reverse=at % 2 == 1):
            result[name].append(_section_ns(timers[name]))
    RECORDER.disable()
    NATIVE.set_gpu_timer(None)
    return {name: round(statistics.median(costs), 1) for name, costs in result.items()}


def _section_ns(timer: Any) -> float:
    """One round, with this timer."""
    assert NATIVE is not None
    NATIVE.set_gpu_timer(timer)
    if timer is not None and (reason := timer.start()):
        raise SystemExit(reason)
    forward = section("forward")
    step(1)
    began = time.thread_time_ns()
    for _ in range(RUNS):
        with forward:
            pass
    took_ns = time.thread_time_ns() - began
    block = RECORDER.drain().block
    if timer is not None:
        timer.add(block)
        timer.stop(0)
        timer.take_all(True)
        if timer.state()["overruns"]:
            raise SystemExit("there were not enough events; the figure would be too good")
    return took_ns / RUNS


if __name__ == "__main__":
    main()

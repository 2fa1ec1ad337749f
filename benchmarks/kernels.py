"""What timing CUDA kernels costs our own code, on a fake libcupti: no GPU is needed, or used.

    python -m benchmarks.kernels

CPU time to process a kernel's record off the training thread, from the full buffer to the numbers
of its run and its kernel (the fake's walk and flush, zeroing the buffer and busy time included), in
the rhythm of 50,000 kernels a second, and of a second's worth at once; own code at a section's
boundary, by itself and in a real ``with section``, and at a launch, without what CUPTI and the
driver do there; the worst case, where marks are lost so often that the queue of kernels that wait
for theirs (65,536) is full forever; memory with 10,000 distinct kernels. What CUPTI itself costs
only a GPU can show. Prints JSON.
"""

from __future__ import annotations

import ctypes
import json
import statistics
import subprocess
import time
from pathlib import Path
from typing import Any

from benchmarks.harness.about import about
from benchmarks.harness.budgets import judge, not_measured, print_result
from benchmarks.harness.turns import take_turns
from otel_straggler import section, step
from otel_straggler.client.recording import RECORDER
from otel_straggler.native import NATIVE, REASON

CUDA_EXT = Path(__file__).parents[1] / "cuda_ext"
RECORD_NS = 60.0
BOUNDARY_NS = 20.0
CORE_PERCENT = 0.4
CELL_MIB = 16.0
TIMES = 3
SECTIONS = 5_000
ROUNDS = 61


def main() -> None:
    """Build, measure and print."""
    runs = [_measure() for _ in range(TIMES)]
    best = {name: min(run[name] for run in runs) for name in runs[0]}
    mib = best["cell_bytes"] / 2**20
    in_sections = {} if NATIVE is None else _in_sections(NATIVE)
    print_result(
        {**about(), "rounds": TIMES, "best": best, "section_ns": in_sections},
        {
            "kernels: CPU ns a record, by marks": judge(
                best["percent_of_core_marks"] / 100 * 1e9 / 50_000, RECORD_NS, "ns"
            ),
            "kernels: CPU ns a record, by launches": judge(
                best["percent_of_core_launches"] / 100 * 1e9 / 50_000, RECORD_NS, "ns"
            ),
            "kernels: own ns at a section's boundary": judge(
                max(best["recorded_ns_marks"], best["recorded_ns_launches"]), BOUNDARY_NS, "ns"
            ),
            "kernels: own ns at a boundary of a real section": (
                judge(in_sections["a_boundary_more"], BOUNDARY_NS, "ns")
                if in_sections
                else not_measured(REASON)
            ),
            "kernels: percent of a core at 50,000 a second": judge(
                max(best["percent_of_core_marks"], best["percent_of_core_launches"]),
                CORE_PERCENT,
                "%",
            ),
            "kernels: percent of a core, every 50th mark lost": judge(
                best["percent_of_core_lost_marks"], CORE_PERCENT, "%"
            ),
            "kernels: statistics of 10,000 kernels": judge(mib, CELL_MIB, "MiB"),
        },
    )


def _in_sections(native: Any) -> dict[str, float]:
    """CPU ns of ``with section``, timed by launches (whose boundaries make no calls) and not, and
    by how much more each boundary costs; medians of rounds that take turns."""
    path = str(CUDA_EXT / "build/bench/libcupti.so.13")
    ctypes.CDLL(path)  # it is its own driver
    timer = native.KernelTimer(path, "", path, True, False, False)
    if reason := timer.start():
        raise RuntimeError(reason)
    RECORDER.enable()
    step(1)
    forward = section("forward")

    def untimed() -> None:
        for _ in range(SECTIONS):
            with forward:
                pass

    def timed() -> None:
        native.set_gpu_timer(timer)
        untimed()
        native.set_gpu_timer(None)

    took = take_turns(
        {"untimed": untimed, "timed": timed},
        ROUNDS,
        time.thread_time_ns,
        after_each=RECORDER.drain,
    )
    ns = {name: statistics.median(times) / SECTIONS for name, times in took.items()}
    RECORDER.disable()
    timer.stop(time.monotonic_ns())
    return {**ns, "a_boundary_more": (ns["timed"] - ns["untimed"]) / 2}


def _measure() -> dict[str, Any]:
    answer = subprocess.run(
        ["make", "--silent", "-C", str(CUDA_EXT), "bench"], check=True, stdout=subprocess.PIPE
    )
    measured: dict[str, Any] = json.loads(answer.stdout)
    return measured


if __name__ == "__main__":
    main()

"""What timing CUDA kernels costs our own code, on a fake libcupti: no GPU is needed, or used.

    python -m benchmarks.kernels

CPU time to process a kernel's record off the training thread, from the full buffer to the numbers
of its run and its kernel (the fake's walk and flush, zeroing the buffer and busy time included), in
the rhythm of 50,000 kernels a second, and of a second's worth at once; own code at a section's
boundary and at a launch, without what CUPTI and the driver do there; memory with 10,000 distinct
kernels. What CUPTI itself costs only a GPU can tell. Prints JSON.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from benchmarks.harness.about import about
from benchmarks.harness.budgets import judge, print_result

CUDA_EXT = Path(__file__).parents[1] / "cuda_ext"
RECORD_NS = 60.0
BOUNDARY_NS = 20.0
CORE_PERCENT = 0.4
CELL_MIB = 16.0
TIMES = 3


def main() -> None:
    """Build, measure and print."""
    runs = [_measure() for _ in range(TIMES)]
    best = {name: min(run[name] for run in runs) for name in runs[0]}
    mib = best["cell_bytes"] / 2**20
    print_result(
        {**about(), "rounds": TIMES, "best": best},
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
            "kernels: percent of a core at 50,000 a second": judge(
                max(best["percent_of_core_marks"], best["percent_of_core_launches"]),
                CORE_PERCENT,
                "%",
            ),
            "kernels: statistics of 10,000 kernels": judge(mib, CELL_MIB, "MiB"),
        },
    )


def _measure() -> dict[str, Any]:
    answer = subprocess.run(
        ["make", "--silent", "-C", str(CUDA_EXT), "bench"], check=True, stdout=subprocess.PIPE
    )
    measured: dict[str, Any] = json.loads(answer.stdout)
    return measured


if __name__ == "__main__":
    main()

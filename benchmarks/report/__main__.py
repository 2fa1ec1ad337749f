"""What a report without a collector costs compared with NVRx 0.4.1's, and whether the scores agree.

    python -m benchmarks.report        (where NVRx is not installed: make bench-peers)

Ranks over gloo on one machine, 100 runs of every section on every rank, all scores, gathered. NVRx
runs its own code; of its ``Detector`` only the parts that need a GPU are left out (CUPTI,
synchronising the device), so its report here costs less than it does in use. Both take turns, in
one process per rank; ratios are of the two within each round, as medians over the rounds. The
budget is a quarter of NVRx's time for 4 ranks x 200 sections. Prints JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
from typing import Any

from benchmarks.harness import nvrx
from benchmarks.harness.about import about
from benchmarks.harness.budgets import judge, not_measured, print_result

MAX_OF_NVRX = 1 / 4
RANKS, SECTIONS = 4, 200
LONGEST_S = 900
Json = dict[str, Any]


def main() -> None:
    """Measure and print."""
    options = _options()
    measured = _of_all_ranks(options.ranks, options.rounds, options.sections)
    result = {
        **about("nvidia-resiliency-ext", "torch", "numpy"),
        "nvrx": nvrx.is_installed() or nvrx.NOT_INSTALLED,
        "rounds": options.rounds,
        **measured,
    }
    print_result(result, _budgets(measured["report"]))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=41)
    parser.add_argument("--ranks", type=int, default=RANKS)
    parser.add_argument("--sections", type=int, nargs="+", default=[2, 20, SECTIONS])
    return parser.parse_args()


def _of_all_ranks(ranks: int, rounds: int, sections: list[int]) -> Json:
    """Rank 0's figures; all ranks run the same."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    env = {
        **os.environ,
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": port,
        "WORLD_SIZE": str(ranks),
        "OMP_NUM_THREADS": "1",
    }
    command = [sys.executable, "-m", "benchmarks.report.ranks", str(rounds), *map(str, sections)]
    processes = [
        subprocess.Popen(command, env={**env, "RANK": str(rank)}, stdout=subprocess.PIPE)
        for rank in range(ranks)
    ]
    first, *_ = [process.communicate(timeout=LONGEST_S)[0] for process in processes]
    measured: Json = json.loads(first)
    return measured


def _budgets(reports: dict[str, Json]) -> dict[str, Json]:
    wanted = f"{RANKS} ranks x {SECTIONS} sections"
    name = f"generate_report(), {wanted}: own / NVRx's"
    if wanted not in reports:
        return {name: not_measured("this run had other ranks or sections")}
    if "own_over_nvrx_ms" not in reports[wanted]:
        return {name: not_measured(nvrx.NOT_INSTALLED)}
    return {name: judge(reports[wanted]["own_over_nvrx_ms"]["median"], MAX_OF_NVRX, "")}


if __name__ == "__main__":
    main()

"""How long ``otel-straggler score`` takes for a CSV of a million rows.

    python -m benchmarks.score_csv

Alongside, in the same run: ``csv.reader`` that only reads every row (a floor for any reader in
Python), and ``numpy.loadtxt`` of the number columns of a slice, scaled to the whole file.
"""

from __future__ import annotations

import csv
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path

import numpy as np

from otel_straggler.simulate.scenarios import Plan, simulate
from otel_straggler.simulate.writers import write_csv

ROWS = 1_000_000
SLICE = 50_000
ROUNDS = 3
BUDGET_S = 10.0


def main() -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.csv"
        with path.open("w") as file:
            file.writelines(write_csv(simulate("one_slow_rank", Plan(steps=ROWS // 40)).batch))
        rounds = [
            (_seconds(lambda: _score(path)), _seconds(lambda: _read_rows(path)), _loadtxt_s(path))
            for _ in range(ROUNDS)
        ]
        own_s, reader_s, loadtxt_s = (
            statistics.median(times) for times in zip(*rounds, strict=True)
        )
    peak_kib = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    result = {
        "rows": ROWS,
        "score_s": round(own_s, 2),
        "budget_s": BUDGET_S,
        "is_within_budget": own_s <= BUDGET_S,
        "csv_reader_alone_s": round(reader_s, 2),
        "ratio_to_csv_reader_alone": round(own_s / reader_s, 2),
        "numpy_loadtxt_s": round(loadtxt_s, 2),
        "ratio_to_numpy_loadtxt": round(own_s / loadtxt_s, 2),
        "peak_memory_mib": round(peak_kib / 1024),
    }
    print(json.dumps(result, indent=2))


def _seconds(act: Callable[[], object]) -> float:
    started = time.perf_counter()
    act()
    return time.perf_counter() - started


def _score(path: Path) -> None:
    """The whole command, start of the interpreter included."""
    command = [sys.executable, "-m", "otel_straggler.cli", "score", str(path), "--json"]
    answer = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    (window,) = json.loads(answer.stdout)["runs"]["simulated"]["windows"]
    assert {s["rank"] for s in window["stragglers"]} == {5}


def _read_rows(path: Path) -> None:
    with path.open(newline="") as file:
        for _ in csv.reader(file):
            pass


def _loadtxt_s(path: Path) -> float:
    """Step, start and duration of a slice, scaled to all rows."""
    with path.open() as file:
        lines = list(islice(file, 1, SLICE + 1))
    took = _seconds(lambda: np.loadtxt(lines, delimiter=",", usecols=(6, 7, 8)))
    return took * ROWS / SLICE


if __name__ == "__main__":
    main()

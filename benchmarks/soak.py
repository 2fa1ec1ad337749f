"""Ten demos in a row, each with another rank and section: does the collector name the right one?

``python -m benchmarks.soak [--runs 10]`` prints JSON and ends with 1 unless all runs were right.
Not among the benchmarks of ``python -m benchmarks``: it takes about ten minutes.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

TRAIN = Path(__file__).parents[1] / "examples" / "demo" / "train.py"
DEMO = [sys.executable, "-m", "otel_straggler.cli", "demo", "--fault=slow", f"--train={TRAIN}"]
LONGEST_S = 600


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 2**31)
    options = parser.parse_args()
    began = time.monotonic()
    outcomes = []
    for number in range(options.runs):
        outcomes.append(run_demo(options.seed + number))
        print(json.dumps(outcomes[-1]), file=sys.stderr, flush=True)
    right = sum(outcome["right"] for outcome in outcomes)
    seconds = time.monotonic() - began
    result = {
        "runs": options.runs,
        "right": right,
        "seconds": round(seconds, 1),
        "longest_s": round(max(outcome["seconds"] for outcome in outcomes), 1),
        "seed": options.seed,
        "outcomes": outcomes,
    }
    print(json.dumps(result))
    return 0 if right == options.runs else 1


def run_demo(seed: int) -> dict:
    """One demo as a process of its own."""
    began = time.monotonic()
    demo = subprocess.run(
        [*DEMO, "--json", "--seed", str(seed)],
        capture_output=True,
        text=True,
        timeout=LONGEST_S,
        check=False,
    )
    seconds = time.monotonic() - began
    if not demo.stdout:
        return {"right": False, "seconds": seconds, "error": demo.stderr[-500:]}
    reported = json.loads(demo.stdout)
    return {name: reported[name] for name in ("right", "planted", "delay_s")} | {
        "seconds": seconds,
        "seed": seed,
    }


if __name__ == "__main__":
    sys.exit(main())

"""Does training become slower when its collector is killed? Steps with it (A) and without (B).

Blocks in the order ABBA ABBA, within one run of the demo's training; the ratio is median step time
B / A, its interval a bootstrap over blocks and the steps in them. Two runs:

- ``demo``: the demo's steps of about 110 ms, in which the host mostly waits, as for a GPU. The
  budget counts here. What fits into that waiting is hidden, as it would be in a real job.
- ``unpaced``: the same without the waiting: four ranks saturate two cores with steps of a few
  milliseconds, so that every cycle counts. No budget; it shows what the first run might hide.

The collector runs on the same cores, so A carries its work too and a ratio below 1 is possible.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from otel_straggler.demo.processes import Collector
from otel_straggler.demo.training import Training

BUDGET = 1.05
BLOCKS = "ABBAABBA"
RANKS = 4
SCRIPT = Path(__file__).parents[1] / "examples" / "demo" / "train.py"
SETTLE_S = 7.0
"""Left out of each block: the start of a collector, and spans that had to wait for it."""
MEASURED_S = 8.0
LONGEST_START_S = 120
RESAMPLES = 4_000


def main() -> int:
    result = {"budget": BUDGET, "blocks": BLOCKS, "measured_s_per_block": MEASURED_S}
    result["demo"] = measure()
    result["unpaced"] = measure("--unpaced")
    result["pass"] = result["demo"]["interval_95"][1] <= BUDGET
    print(json.dumps(result))
    return 0


def measure(*flags: str) -> dict:
    """One training run through all blocks."""
    with tempfile.TemporaryDirectory(prefix="straggler-outage-") as folder:
        times, log = Path(folder, "times"), Path(folder, "log")
        collector = Collector()
        addresses = collector.addresses
        script = (str(SCRIPT), "--step-times", str(times), *flags)
        training = Training(collector.endpoint, "outage", RANKS, log, script=script)
        try:
            wait_for_steps(times, training)
            spans: list[tuple[str, float, float]] = []
            for block in BLOCKS:
                if block == "A" and collector is None:
                    collector = Collector(addresses=addresses)
                elif block == "B" and collector is not None:
                    collector.kill()
                    collector = None
                time.sleep(SETTLE_S)
                begins = time.time()
                time.sleep(MEASURED_S)
                spans.append((block, begins, time.time()))
            if training.exit_codes:
                raise RuntimeError(training.log[-2000:])
        finally:
            training.close()
            if collector is not None:
                collector.close()
        return compare(read_times(times), spans)


def compare(steps: np.ndarray, spans: list[tuple[str, float, float]]) -> dict:
    """Median step times, their ratio and its 95 % interval."""
    blocks: dict[str, list[np.ndarray]] = {"A": [], "B": []}
    for name, begins, ends in spans:
        is_in = (steps[:, 0] - steps[:, 1] >= begins) & (steps[:, 0] <= ends)
        blocks[name].append(steps[is_in, 1])
    alive, killed = (float(np.median(np.concatenate(blocks[name]))) for name in "AB")
    rng = np.random.default_rng(0)
    ratios = [resampled(blocks["B"], rng) / resampled(blocks["A"], rng) for _ in range(RESAMPLES)]
    return {
        "ratio": round(killed / alive, 4),
        "interval_95": [round(float(q), 4) for q in np.quantile(ratios, [0.025, 0.975])],
        "median_ms": {"alive": round(alive * 1e3, 3), "killed": round(killed * 1e3, 3)},
        "steps": {name: sum(map(len, result)) for name, result in blocks.items()},
        "block_medians_ms": {
            name: [round(float(np.median(b)) * 1e3, 3) for b in result]
            for name, result in blocks.items()
        },
    }


def resampled(blocks: list[np.ndarray], rng: np.random.Generator) -> float:
    """The median of blocks drawn again, and of steps drawn again in each."""
    drawn = [blocks[i] for i in rng.integers(len(blocks), size=len(blocks))]
    return float(np.median(np.concatenate([rng.choice(b, len(b)) for b in drawn])))


def wait_for_steps(times: Path, training: Training) -> None:
    ends_at = time.monotonic() + LONGEST_START_S
    while not (times.exists() and times.stat().st_size > 0):
        if training.exit_codes or time.monotonic() > ends_at:
            raise RuntimeError(training.log[-2000:])
        time.sleep(0.1)


def read_times(path: Path) -> np.ndarray:
    """(steps, 2): end in Unix seconds, length; a line cut off at the end is left out."""
    whole = path.read_text().rpartition("\n")[0]
    return np.array([line.split() for line in whole.splitlines()], dtype=float)


if __name__ == "__main__":
    sys.exit(main())

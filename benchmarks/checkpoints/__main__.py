"""What checkpoints cost, and what is left of them when processes are killed.

    python -m benchmarks.checkpoints [--kills N [--tiers]] [--seed N] [--bytes N] [--json FILE]
    python -m benchmarks.checkpoints --tiers [--seed N] [--json FILE]
    python -m benchmarks.checkpoints --step-times [--bytes N] [--json FILE]

With ``--kills`` only that many kills of ranks while they save, on one folder, in every phase of a
save, or with ``--tiers`` on nodes, which are lost too. With ``--tiers`` alone what a lost node
costs with a local tier and without; with ``--step-times`` only step times next to a save, by cores;
else what a save costs. Prints JSON.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int)
    parser.add_argument("--tiers", action="store_true")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--bytes", type=int, default=2_000_000_000, dest="size_bytes")
    parser.add_argument("--step-times", action="store_true")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if options.kills is not None:
        from benchmarks.checkpoints.kills import run

        result = run(options.kills, options.seed, tiers=options.tiers)
        failed = result["lost_commits"] or result["differing_restores"]
    elif options.step_times:
        from benchmarks.checkpoints.step_times import CORES
        from benchmarks.checkpoints.step_times import measure as measure_steps

        result, failed = {"rows": measure_steps(options.size_bytes, [0.0, 10.0], [*CORES])}, False
    elif options.tiers:
        from benchmarks.checkpoints.lost_nodes import compare

        result, failed = compare(options.seed), False
    else:
        from benchmarks.checkpoints.blocking import measure

        result, failed = measure(options.size_bytes), False
    text = json.dumps(result, indent=2)
    print(text)
    if options.json is not None:
        options.json.write_text(text + "\n")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())

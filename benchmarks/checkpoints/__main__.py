"""What checkpoints cost, and what is left of them when processes are killed.

    python -m benchmarks.checkpoints [--kills N] [--seed N] [--bytes N] [--json FILE]

With ``--kills`` only that many kills of ranks while they save, on one folder, in every phase of a
save; else what a save costs. Prints JSON.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--bytes", type=int, default=2_000_000_000, dest="size_bytes")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if options.kills is not None:
        from benchmarks.checkpoints.kills import run

        result = run(options.kills, options.seed)
        failed = result["lost_commits"] or result["differing_restores"]
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

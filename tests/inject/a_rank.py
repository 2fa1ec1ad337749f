"""A rank without torch: steps with three sections, until it has done as many as asked.

python a_rank.py ENDPOINT STEPS
"""

from __future__ import annotations

import sys
import time

import otel_straggler

SECTION_S = 0.002


def main(endpoint: str, steps: int) -> None:
    otel_straggler.configure(endpoint=endpoint, run_id="run", heartbeat_s=0.5, flush_s=0.1)
    print("trains", flush=True)
    for n in range(steps):
        with otel_straggler.step(n):
            for name, kind in (("data", "data"), ("forward", "compute"), ("backward", "compute")):
                with otel_straggler.section(name, kind=kind):
                    time.sleep(SECTION_S)
    otel_straggler.shutdown()
    print("done", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))

"""One rank that trains for a moment and ends as it is asked to: five lines, without shutdown()."""

import os
import sys
import time

import otel_straggler as ots

STEPS, STEP_S = 30, 0.03


def raise_exit() -> None:
    raise SystemExit(2)


ENDS = {
    "return": lambda: None,
    "shutdown": ots.shutdown,
    "exception": lambda: 1 / 0,
    "exit": lambda: sys.exit(1),
    "raise": raise_exit,
    "os_exit": lambda: os._exit(0),
    "wait": lambda: time.sleep(300),
}


def main(endpoint: str, run_id: str, end: str) -> None:
    ots.configure(endpoint=endpoint, run_id=run_id, heartbeat_s=0.2, flush_s=0.1)
    for n in range(STEPS):
        with ots.step(n), ots.section("forward"):
            time.sleep(STEP_S)
    print("trained", flush=True)
    ENDS[end]()


if __name__ == "__main__":
    main(*sys.argv[1:])

"""One rank of a run that saves checkpoints; in the first attempt it ends by SIGKILL in step 5.

    crashing_rank.py [ENDPOINT RANK ATTEMPT]

It prints, for each activity, the time inside of it and the time around it, in nanoseconds: what the
telemetry says must lie between. Without arguments it is a rank of a launcher, only rank 1 ends by
SIGKILL, and what would be printed is in a file for each rank and attempt.
"""

import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import otel_straggler
from otel_straggler import phase, section, step

SLEEP_S = 0.03
known: list[tuple[str, int, int, int, int, int]] = []
"""Activity, step, time inside, time around, wall clock before its end and after it."""


@contextlib.contextmanager
def timed(name: str, activity: Any, number: int = -1) -> Iterator[None]:
    around = time.perf_counter_ns()
    with activity:
        inside = time.perf_counter_ns()
        yield
        inside, before_ns = time.perf_counter_ns() - inside, time.time_ns()
    around = time.perf_counter_ns() - around
    known.append((name, number, inside, around, before_ns, time.time_ns()))


def sleep(name: str, activity: Any) -> None:
    with timed(name, activity):
        time.sleep(SLEEP_S)


def report(rank: int, attempt: int) -> None:
    if len(sys.argv) > 1:
        print(json.dumps(known), flush=True)
    else:
        Path(f"known-{rank}.{attempt}").write_text(json.dumps(known))


def crash(rank: int, attempt: int) -> None:
    """Once the other rank has sent all its spans; that one waits, as in a collective."""
    otel_straggler.flush(10.0)
    report(rank, attempt)
    if len(sys.argv) == 1:
        while rank == 0 or not Path("known-0.0").exists():
            time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    if len(sys.argv) > 1:
        endpoint, rank, attempt = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
        otel_straggler.configure(endpoint=endpoint, run_id="crashing", rank=rank, world_size=2)
    else:
        rank, attempt = int(os.environ["RANK"]), int(os.environ["OTEL_STRAGGLER_ATTEMPT"])
        otel_straggler.configure()
    sleep("initialization", phase("initialization"))
    sleep("preparation", phase("preparation"))
    if attempt:
        sleep("checkpoint_load", phase("checkpoint_load"))
    for n in range(3 if attempt else 0, 8):
        if n == 5 and not attempt:
            crash(rank, attempt)
        with timed("step", step(n), n):
            sleep("data", section("data_loading", kind="data"))
            with section("forward"):
                time.sleep(2 * SLEEP_S)
        if n == 2:
            sleep("checkpoint", phase("checkpoint"))
        if n == 3:
            sleep("eval", phase("eval"))
    sleep("custom:log upload", phase("custom:log upload"))
    otel_straggler.shutdown()
    report(rank, attempt)
    if len(sys.argv) == 1 and rank == 0:
        Path(os.environ["FAULT_TOL_FINISHED_FLAG_FILE"]).touch()


if __name__ == "__main__":
    main()

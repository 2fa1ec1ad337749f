"""One rank of a run that saves checkpoints; in the first attempt it ends by SIGKILL in step 5.

It prints, for each activity, the time inside of it and the time around it, in nanoseconds: what the
telemetry says must lie between.
"""

import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from typing import Any

import otel_straggler
from otel_straggler import phase, section, step

SLEEP_S = 0.03
known: list[tuple[str, int, int, int]] = []
"""Activity, step, time inside, time around."""


@contextlib.contextmanager
def timed(name: str, activity: Any, number: int = -1) -> Iterator[None]:
    around = time.perf_counter_ns()
    with activity:
        inside = time.perf_counter_ns()
        yield
        inside = time.perf_counter_ns() - inside
    known.append((name, number, inside, time.perf_counter_ns() - around))


def sleep(name: str, activity: Any) -> None:
    with timed(name, activity):
        time.sleep(SLEEP_S)


def main() -> None:
    endpoint, rank, attempt = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    otel_straggler.configure(endpoint=endpoint, run_id="crashing", rank=rank, world_size=2)
    sleep("initialization", phase("initialization"))
    sleep("preparation", phase("preparation"))
    if attempt:
        sleep("checkpoint_load", phase("checkpoint_load"))
    for n in range(3 if attempt else 0, 8):
        if n == 5 and not attempt:
            otel_straggler.flush(10.0)
            print(json.dumps(known), flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
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
    print(json.dumps(known), flush=True)


if __name__ == "__main__":
    main()

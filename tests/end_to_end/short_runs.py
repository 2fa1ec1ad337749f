"""Many processes that end as soon as they have begun: short_runs.py ENDPOINT PID N STALL_S.

Each is a run of its own: one step, then shutdown() (odd ones) or the end of the program. Meanwhile
the collector, whose PID it is, is stopped for three seconds every STALL_S seconds, as on a machine
that swaps or is oversubscribed: longer than a process waits at its end. They are forked from a
process that has imported everything, so that thousands take minutes.
"""

import os
import random
import signal
import sys
import time

import otel_straggler as ots
import otel_straggler.client.checkpoint_reports
import otel_straggler.client.diagnostics.commands
import otel_straggler.client.diagnostics.processes
import otel_straggler.client.gpu.owner
import otel_straggler.client.native_export
import otel_straggler.client.python_export
import otel_straggler.client.settings

AT_ONCE = 16
STOPPED_S = 3.0


def train(endpoint: str, number: int) -> None:
    random.seed(number)
    ots.configure(endpoint=endpoint, run_id=f"short-{number}", rank=0, world_size=1, hardware="off")
    with ots.step(0), ots.section("forward"):
        time.sleep(0.02 * random.random())
    if number % 2:
        ots.shutdown()
    sys.exit()


def main(endpoint: str, collector: int, number: int, stall_s: float) -> None:
    begun, living, codes = 0, set(), []
    is_stopped, next_s = False, time.monotonic() + stall_s
    while begun < number or living:
        if begun < number and len(living) < AT_ONCE:
            child = os.fork()
            if child == 0:
                train(endpoint, begun)
            living.add(child)
            begun += 1
        ended, status = os.waitpid(-1, os.WNOHANG)
        if ended:
            living.discard(ended)
            codes.append(status)
        else:
            time.sleep(0.005)
        if time.monotonic() >= next_s:
            is_stopped = not is_stopped
            os.kill(collector, signal.SIGSTOP if is_stopped else signal.SIGCONT)
            next_s = time.monotonic() + (STOPPED_S if is_stopped else stall_s)
    os.kill(collector, signal.SIGCONT)
    assert not any(codes), codes


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]))

"""One rank that only records: so many sections a second, in steps that are very short.

Run as a process by ``course``. The last line on standard output is JSON: what was recorded.
"""

from __future__ import annotations

import argparse
import json
import os
import time

import otel_straggler
from otel_straggler import section, step
from otel_straggler.client.recording import FORM
from otel_straggler.client.session import Session

STEP_S = 0.016
"""Short, so that what is remembered of steps (4,096 of them in a producer) is full long before
memory is looked at."""
RUN_ID = "no-loss"
SECTIONS = ("data", "forward", "backward")
LONGEST_FLUSH_S = 120.0


def runs_per_step(spans_per_s: float) -> int:
    """Of each section, so that a step and its sections make ``spans_per_s``."""
    return max(1, round((spans_per_s * STEP_S - 1) / len(SECTIONS)))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--endpoint")
    parser.add_argument("--protocol")
    parser.add_argument("--rank", type=int)
    parser.add_argument("--processes", type=int)
    parser.add_argument("--steps", type=int)
    parser.add_argument("--runs", type=int)
    parser.add_argument("--span-budget", type=int)
    parser.add_argument("--queue-bytes", type=int)
    options = parser.parse_args()
    session = otel_straggler.configure(
        endpoint=options.endpoint,
        protocol=options.protocol,
        run_id=RUN_ID,
        rank=options.rank,
        world_size=options.processes,
        span_budget=options.span_budget,
        queue_bytes=options.queue_bytes,
    )
    began_s = time.monotonic()
    record(options.steps, options.runs)
    seconds = time.monotonic() - began_s
    was_sent = send_what_is_left(session)
    otel_straggler.shutdown("ok")
    times = os.times()
    reported = {
        "rank": options.rank,
        "recorder": FORM,
        "recorded": {"step": options.steps} | dict.fromkeys(SECTIONS, options.steps * options.runs),
        "seconds": round(seconds, 2),
        "cpu_s": round(times.user + times.system, 2),
        "was_sent": was_sent,
    }
    print(json.dumps(reported), flush=True)


def record(steps: int, runs: int) -> None:
    """``runs`` of each section in each step; a step that comes late does not delay the next."""
    sections = [section(name) for name in SECTIONS]
    begins_s = time.monotonic()
    for number in range(steps):
        with step(number):
            for _ in range(runs):
                for one in sections:
                    with one:
                        sum(range(50))
        time.sleep(max(0.0, begins_s + (number + 1) * STEP_S - time.monotonic()))


def send_what_is_left(session: Session) -> bool:
    """Flush until nothing waits: a flush gives up at the first failure."""
    ends_at_s = time.monotonic() + LONGEST_FLUSH_S
    while time.monotonic() < ends_at_s:
        session.flush(10.0)
        if session.queued_requests == 0:
            return True
        time.sleep(0.2)
    return False


if __name__ == "__main__":
    main()

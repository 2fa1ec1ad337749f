"""One rank of the demo, in a process of its own.

    python -m otel_straggler.demo.rank PORT

What a GPU would do is waited out; the process, its place in a lockstep, its heartbeats and its
spans are real. It needs no torch.
"""

from __future__ import annotations

import os
import sys
import threading
import time

import otel_straggler
from otel_straggler.demo.lockstep import BE_SLOW, STAY_AWAY, Place

SECTIONS_S = {"data_loading": 0.005, "forward": 0.025, "backward": 0.010}
SLOW_SECTION, SLOWER_BY_S = "forward", 0.030


def main(port: int) -> None:
    """Train until the meeting is over."""
    otel_straggler.configure(heartbeat_s=0.5, flush_s=0.25)
    place = Place(port, int(os.environ["RANK"]))
    seconds = dict(SECTIONS_S)
    answer, n = b"first", 0
    while answer:
        with otel_straggler.step(n):
            for name, takes_s in seconds.items():
                with otel_straggler.section(name, kind="data" if "data" in name else "compute"):
                    time.sleep(takes_s)
                    if answer == STAY_AWAY and name == SLOW_SECTION:
                        threading.Event().wait()
            with otel_straggler.section("gradient_sync", kind="wait"):
                answer = place.meet()
        if answer == BE_SLOW:
            seconds[SLOW_SECTION] += SLOWER_BY_S
        n += 1
    otel_straggler.shutdown()


if __name__ == "__main__":
    main(int(sys.argv[1]))

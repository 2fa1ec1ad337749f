"""Holds the GIL for a while inside of a section; prints from when to when, in Unix seconds."""

import ctypes
import sys
import time

from otel_straggler import configure, section, shutdown, step

HOLD_S = float(sys.argv[1])

configure(heartbeat_s=0.2, flush_s=0.1, run_id="held", rank=0, span_budget=0)
libc_with_gil = ctypes.PyDLL(None)
for n in range(3):
    with step(n), section("forward"):
        pass
with step(3):
    with section("just before"):
        pass
    with section("all_reduce"):
        began = time.time()
        libc_with_gil.usleep(int(HOLD_S * 1e6))
        ended = time.time()
print(began, ended)
shutdown()

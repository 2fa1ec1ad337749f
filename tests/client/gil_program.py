"""Holds the GIL inside of a section for so many seconds; prints from when to when (Unix time)."""

from __future__ import annotations

import ctypes
import sys
import time

from otel_straggler import configure, section, shutdown, step


def main() -> None:
    """Three steps, then one in which a library hangs."""
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
            libc_with_gil.usleep(int(float(sys.argv[1]) * 1e6))
            ended = time.time()
    print(began, ended)
    shutdown()


if __name__ == "__main__":
    main()

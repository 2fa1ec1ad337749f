"""A rank under a launcher that fails as it is asked to: failing_rank.py WHAT, of three ranks.

`raise`: rank 1 raises, and its interpreter takes a while to end; the others lose their peer
meanwhile and abort, as NCCL's watchdog makes them.
`exit`: rank 1 calls sys.exit(3). `kill`: it is killed. The others wait for the launcher.
"""

import atexit
import os
import signal
import sys
import time
from pathlib import Path

import otel_straggler as ots

BEGIN_S = 60.0


def wait_for_all(rank: int) -> None:
    """Until all ranks of this attempt have trained: whoever fails does so in their midst."""
    attempt = os.environ["OTEL_STRAGGLER_ATTEMPT"]
    Path(f"trained-{rank}.{attempt}").touch()
    until_s = time.monotonic() + BEGIN_S
    while not all(Path(f"trained-{each}.{attempt}").exists() for each in range(3)):
        assert time.monotonic() < until_s
        time.sleep(0.01)


def main(what: str) -> None:
    ots.configure(heartbeat_s=0.2, flush_s=0.1)
    rank = int(os.environ["RANK"])
    for n in range(10):
        with ots.step(n), ots.section("forward"):
            time.sleep(0.02)
    ots.flush(10.0)
    wait_for_all(rank)
    raising = Path(f"raising.{os.environ['OTEL_STRAGGLER_ATTEMPT']}")
    if rank == 1 and what == "raise":
        atexit.register(time.sleep, 300)
        raising.touch()
        raise ValueError("bad sample 17 in shard 3\nwith token=abc")
    if rank == 1 and what == "exit":
        sys.exit(3)
    if rank == 1 and what == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if what == "raise":
        while not raising.exists():
            time.sleep(0.01)
        time.sleep(1.0)
        os.abort()
    time.sleep(300)


if __name__ == "__main__":
    main(sys.argv[1])

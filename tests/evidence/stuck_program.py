"""A rank that gets stuck in one of several ways, run as a process of its own.

Arguments: the way; what it does is printed once it is stuck, or is about to be.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
import time
from multiprocessing import get_context

import otel_straggler as straggler


def asleep() -> None:
    say("stuck")
    time.sleep(600)


def deadlocked() -> None:
    lock = threading.Lock()
    lock.acquire()
    say("stuck")
    wait_for_lock(lock)


def wait_for_lock(lock: threading.Lock) -> None:
    lock.acquire()


def keeps_the_gil() -> None:
    say("stuck")
    ends_at_s = time.monotonic() + 600
    while time.monotonic() < ends_at_s:  # a signal ends the sleep, not the loop
        ctypes.PyDLL(None).sleep(600)


def all_reduce_alone() -> None:
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo")
    if dist.get_rank() == 1:
        asleep()
    say("stuck")
    dist.all_reduce(torch.ones(1))


def forks() -> None:
    """The child goes on alone; the parent is stuck as well."""
    child = get_context("fork").Process(target=child_of_a_rank)
    child.start()
    asleep()


def child_of_a_rank() -> None:
    say(f"child {os.getpid()} {len(threading.enumerate())}")
    time.sleep(600)


def ends() -> None:
    say("stuck")
    sys.stdin.readline()


def say(what: str) -> None:
    os.write(1, (what + "\n").encode())


WAYS = {
    one.__name__: one for one in (asleep, deadlocked, keeps_the_gil, all_reduce_alone, forks, ends)
}


def main() -> None:
    straggler.configure(run_id="stuck-run")
    with straggler.step(812):
        with straggler.section("data"):
            pass
        with straggler.section("forward"):
            WAYS[sys.argv[1]]()
    straggler.shutdown()


if __name__ == "__main__":
    main()

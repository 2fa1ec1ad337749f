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


def backward_alone() -> None:
    """Rank 1 does not come to the averaging of gradients in its second backward."""
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo")
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4))
    model(torch.ones(2, 4)).sum().backward()
    loss = model(torch.ones(2, 4)).sum()
    if dist.get_rank() == 1:
        asleep()
    say("stuck")
    loss.backward()


def barrier_of_two() -> None:
    """Rank 2 does not come to a barrier of its own with rank 1, for which rank 0 waits."""
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo")
    pair = dist.new_group([1, 2], group_desc="pair")
    if dist.get_rank() > 0:
        dist.barrier(pair)
    if dist.get_rank() == 2:
        asleep()
    say("stuck")
    if dist.get_rank() == 1:
        dist.barrier(pair)
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


_WAYS = (
    asleep, deadlocked, keeps_the_gil, all_reduce_alone, backward_alone, barrier_of_two, forks, ends
)  # fmt: skip
WAYS = {one.__name__: one for one in _WAYS}


def main() -> None:
    if sys.argv[1] in {"all_reduce_alone", "backward_alone", "barrier_of_two"}:
        import torch.nn.parallel  # noqa: F401  it takes seconds, which are no hang
    straggler.configure(run_id="stuck-run")
    with straggler.step(812):
        with straggler.section("data"):
            pass
        with straggler.section("forward"):
            WAYS[sys.argv[1]]()
    straggler.shutdown()


if __name__ == "__main__":
    main()

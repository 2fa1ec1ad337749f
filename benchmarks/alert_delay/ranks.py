"""Training processes: one that has torch loaded forks a rank for every job it is given.

    python -m benchmarks.alert_delay.ranks

On standard input: a line of JSON per job, the fields of ``jobs.JobSpec``. On standard output:
a line per rank that has begun or ended. A fork costs a hundredth of a process that imports torch,
so that many jobs fit on two cores. Each rank is a gloo rank that trains in lockstep; rank 0 reports
what goes wrong in it to all of them in the all-reduce of a step.

gloo notices that a peer is dead, and its ranks fail; NCCL does not, and its ranks stay in the
collective. What NCCL does is done here: who loses a peer waits.
"""

from __future__ import annotations

import atexit
import ctypes
import json
import os
import select
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import torch
import torch.distributed as dist

import otel_straggler
import otel_straggler.client.native_export
import otel_straggler.client.python_export  # both are what a rank loads later, once for all

Json = dict[str, Any]
NOTHING, FINISH, SLOW, STUCK, FAIL, CHECKPOINT = range(6)
_SIGKILL_ON_DEATH = 1  # PR_SET_PDEATHSIG
_POLL_S = 0.05
SECTIONS_S = {"data": 0.015, "forward": 0.050, "backward": 0.015}
"""A step of 80 ms needs about one per cent of a core."""


def main() -> None:
    """Fork ranks as requested; each is independent from here, so its end is a program's end."""
    torch.set_num_threads(1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    send(ready=os.getpid())
    ranks: dict[int, tuple[str, int]] = {}
    for job in reported_jobs(ranks):
        for placed in job["placement"]:
            pid = os.fork()
            if pid == 0:
                train(job, placed)
            ranks[pid] = job["name"], placed["rank"]
            send(job=job["name"], rank=placed["rank"], pid=pid)
    for pid in ranks:
        os.kill(pid, signal.SIGKILL)


def reported_jobs(ranks: dict[int, tuple[str, int]]) -> Iterator[Json]:
    """As they come, until the input ends; in between, ranks that have ended are reported."""
    reported = b""
    while True:
        reap(ranks)
        if not select.select([0], [], [], _POLL_S)[0]:
            continue
        part = os.read(0, 65_536)
        if not part:
            return
        *lines, reported = (reported + part).split(b"\n")
        yield from map(json.loads, lines)


def reap(ranks: dict[int, tuple[str, int]]) -> None:
    """Report those that have ended."""
    while ranks:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            return
        name, rank = ranks.pop(pid)
        send(job=name, rank=rank, ended=os.waitstatus_to_exitcode(status))


def send(**fields: object) -> None:
    os.write(1, json.dumps(fields).encode() + b"\n")


def train(job: Json, placed: Json) -> NoReturn:
    """One rank, until it is asked to finish, or ends as the faults of the job say."""
    become_a_rank(job, placed)
    atexit.register(os._exit, 1)  # comes last: what has failed need not take torch apart
    dist.init_process_group("gloo")
    pairs = [dist.new_group([first, first + 1]) for first in range(0, len(job["placement"]) - 1, 2)]
    otel_straggler.configure(
        endpoint=job["endpoint"],
        run_id=job["run_id"],
        service_name=job["service_name"],
        heartbeat_s=job["heartbeat_s"],
        flush_s=0.25,
    )
    steps(job, placed["rank"], pairs)
    otel_straggler.shutdown()
    os._exit(0)  # gloo aborts now and then while the interpreter ends (pytorch#190489)


def steps(job: Json, rank: int, pairs: list[Any]) -> None:
    """Until asked to finish."""
    slower_s = 0.0
    order, whom, value = NOTHING, 0, 0.0
    n = job["first_step"]
    while order != FINISH:
        is_meant = whom == rank
        if order == SLOW:
            slower_s = value if is_meant else slower_s
        elif order == FAIL and is_meant:
            raise ValueError("a mistake in the user's program")
        elif order == CHECKPOINT:
            with otel_straggler.phase("checkpoint"), otel_straggler.section("save"):
                time.sleep(value)
        with otel_straggler.step(n):
            with otel_straggler.section("data", kind="data"):
                time.sleep(SECTIONS_S["data"])
            with otel_straggler.section("forward"):
                time.sleep(SECTIONS_S["forward"] + slower_s)
                if order == STUCK and is_meant:  # a collective that its pair does not run
                    agree(torch.ones(1), pairs[rank // 2])
            with otel_straggler.section("backward"):
                time.sleep(SECTIONS_S["backward"])
            with otel_straggler.section("gradient_sync", kind="wait"):
                order, whom, value = agree(orders_of(job, rank))
        n += 1


def orders_of(job: Json, rank: int) -> torch.Tensor:
    """The current commands: rank 0 reads the file and removes it, the others add nothing."""
    nothing = torch.zeros(3, dtype=torch.float64)
    path = Path(job["orders"])
    if rank or not path.exists():
        return nothing
    reported = json.loads(path.read_text())
    path.unlink()
    return torch.tensor(
        [reported["order"], reported["rank"], reported["value"]], dtype=torch.float64
    )


def agree(mine: torch.Tensor, group: Any = None) -> tuple[int, int, float]:
    """The sum over all ranks; forever, if one of them is gone."""
    try:
        dist.all_reduce(mine, group=group)
    except RuntimeError:
        threading.Event().wait()
    order, whom, value = mine.tolist()
    return int(order), int(whom), value


def become_a_rank(job: Json, placed: Json) -> None:
    """Environment, signals and output of a process that a launcher has started."""
    ctypes.CDLL(None).prctl(_SIGKILL_ON_DEATH, signal.SIGKILL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    log = os.open(job["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for fd in (1, 2):
        os.dup2(log, fd)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    attributes = {"host.name": placed["node"], **job["attributes"]}
    os.environ.update(
        job["environment"],
        RANK=str(placed["rank"]),
        WORLD_SIZE=str(len(job["placement"])),
        MASTER_ADDR="127.0.0.1",
        MASTER_PORT=str(job["port"]),
        GLOO_SOCKET_IFNAME="lo",
        TORCHELASTIC_RESTART_COUNT=str(job["attempt"]),
        OTEL_RESOURCE_ATTRIBUTES=",".join(f"{k}={v}" for k, v in attributes.items()),
    )


if __name__ == "__main__":
    main()

"""Two trainings of four gloo ranks that save with DCP, forked from one process that has torch; in
the run ``slow`` rank 3 writes slowly.

    saving_ranks.py ENDPOINT FOLDER
"""

from __future__ import annotations

import os
import sys
import time
import traceback
import warnings
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import checkpoint as dcp

import otel_straggler as ots

RANKS, STEPS, EVERY = 4, 40, 8
SLOW_S = 0.8


class Writer(dcp.FileSystemWriter):  # type: ignore[misc]
    """A disk that answers late."""

    def __init__(self, folder: Path, delay_s: float) -> None:
        super().__init__(folder)
        self._delay_s = delay_s

    def write_data(self, plan: Any, planner: Any) -> Any:
        time.sleep(self._delay_s)
        return super().write_data(plan, planner)


def train(endpoint: str, run_id: str, folder: Path, rank: int) -> None:
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{folder / run_id}.store", rank=rank, world_size=RANKS
    )
    ots.configure(
        endpoint=endpoint, run_id=run_id, rank=rank, world_size=RANKS, heartbeat_s=0.2, flush_s=0.1
    )
    weights = torch.rand(50_000) + rank
    delay_s = SLOW_S if (run_id, rank) == ("slow", 3) else 0.0
    for step in range(1, STEPS + 1):
        with ots.step(step):
            with ots.section("forward"):
                time.sleep(0.01)
            with ots.section("sync", kind="wait"):
                dist.all_reduce(torch.ones(1))
        if step % EVERY == 0:
            writer = Writer(folder / f"{run_id}-{step}", delay_s)
            dcp.save({f"own {rank}": weights}, storage_writer=writer)
    ots.shutdown()
    dist.destroy_process_group()


def fork(endpoint: str, run_id: str, folder: Path, rank: int) -> int:
    child = os.fork()
    if child:
        return child
    try:
        train(endpoint, run_id, folder, rank)
        os._exit(0)
    except BaseException:  # noqa: BLE001  a child must not go on as its parent
        traceback.print_exc()
        os._exit(1)


def main(endpoint: str, folder: Path) -> None:
    runs = [(run_id, rank) for run_id in ("healthy", "slow") for rank in range(RANKS)]
    children = [fork(endpoint, run_id, folder, rank) for run_id, rank in runs]
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    sys.exit(max(map(abs, codes)))


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main(sys.argv[1], Path(sys.argv[2]))

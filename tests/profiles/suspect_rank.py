"""One of several ranks over gloo; rank 1 multiplies a matrix 25 times as large. It trains until
the file ``stop`` exists, at a step that all ranks agree on."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist

import otel_straggler as ots

SLOW_RANK, SIZE, TIMES = 1, 256, 25


def main(folder: Path) -> None:
    torch.set_num_threads(1)
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    store = dist.FileStore(str(folder / "store"), world_size)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=world_size)
    ots.configure()
    rows = SIZE * (TIMES if rank == SLOW_RANK else 1)
    left, right = torch.randn(rows, SIZE), torch.randn(SIZE, SIZE)
    for number in range(1_000_000):
        ots.step(number)
        with ots.section("forward"):
            torch.relu(left @ right).sum()
        stop = torch.tensor([float((folder / "stop").exists())])
        with ots.section("wait", kind="wait"):
            dist.all_reduce(stop, op=dist.ReduceOp.MAX)
        if stop.item():
            break
    ots.shutdown()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]))

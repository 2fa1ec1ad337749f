"""One rank of four that marks its steps and nothing in them; rank 2 takes twice as long."""

import os
import random
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import otel_straggler as ots

STEP_S, STEPS = 0.04, 160


def main(endpoint: str, run_id: str, store: str) -> None:
    rank = int(os.environ["RANK"])
    with synchronized(rank, store) as wait_for_others:
        ots.configure(endpoint=endpoint, run_id=run_id, heartbeat_s=0.2, flush_s=0.1)
        noise = random.Random(rank)
        for n in range(STEPS):
            with ots.step(n):
                time.sleep(STEP_S * (2.0 if rank == 2 else 1.0) * noise.uniform(0.98, 1.02))
                wait_for_others()
        ots.shutdown()


@contextmanager
def synchronized(rank: int, store: str) -> Iterator[Callable[[], object]]:
    """A function that returns when all ranks have called it, or at once without a store."""
    if not store:
        yield lambda: None
        return
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=4)
    gradient = torch.ones(1)
    yield lambda: dist.all_reduce(gradient)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])

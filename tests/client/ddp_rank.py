"""One rank of a DistributedDataParallel training on CPU, run as a process of its own.

Two microbatches a step, gradients sent only with the second; a communication hook and a tensor's
hook with sections. Arguments: file for the rendezvous. The rest is in the environment.
"""

import sys
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from otel_straggler import configure, section, shutdown, step

STEPS = 2


def send(_: object, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """Averages a bucket of gradients, as DistributedDataParallel does itself."""
    with section("send", kind="wait"):
        done = dist.all_reduce(bucket.buffer(), async_op=True).get_future()
    return done.then(lambda future: future.value()[0] / dist.get_world_size())


def main() -> None:
    """Train, and check that the ranks agree in the end."""
    configure(strict=True)
    rank = int(sys.argv[2])
    dist.init_process_group("gloo", init_method=f"file://{sys.argv[1]}", rank=rank, world_size=2)
    torch.manual_seed(0)
    model = DistributedDataParallel(torch.nn.Linear(4, 1))
    model.register_comm_hook(None, send)
    model.module.weight.register_hook(section("hook")(lambda gradient: gradient * 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for n in range(STEPS):
        with step(n):
            with model.no_sync():
                run_microbatch(model, rank, 0)
            run_microbatch(model, rank, 1)
            with section("optimizer"):
                optimizer.step()
                optimizer.zero_grad()
    print(model.module.weight.flatten().tolist())
    dist.destroy_process_group()
    shutdown()


def run_microbatch(model: Any, rank: int, microbatch: int) -> None:
    with section("forward").run(microbatch=microbatch):
        loss = model(torch.full((2, 4), rank + 1.0)).sum()
    with section("backward").run(microbatch=microbatch):
        loss.backward()


if __name__ == "__main__":
    main()

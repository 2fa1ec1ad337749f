"""You will see rank 2 of a DDP training named: it is slow inside backward, where all wait.
Run it with: python examples/07_ddp.py
It takes about 30 seconds, longer on a busy machine.
"""

import torch
import torch.distributed as dist
from shared.watching import STEPS, Layer, watch
from torch.nn.parallel import DistributedDataParallel

import otel_straggler as ots


def train() -> None:
    """An ordinary DDP loop with the sections of the quick start."""
    dist.init_process_group("gloo")
    model = DistributedDataParallel(torch.nn.Sequential(Layer(), Layer(), Layer()))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    ots.configure()  # the collector comes from the environment, the rank from torchrun
    ots.set_topology(data=(dist.get_rank(), dist.get_world_size()))
    for n in range(STEPS):
        ots.step(n)
        with ots.section("forward"):
            loss = model(torch.randn(8, 32)).square().mean()
        with ots.section("backward"):
            loss.backward()  # averages gradients: all ranks leave it with the slowest
        with ots.section("optimizer"):
            optimizer.step()
            optimizer.zero_grad()
    ots.shutdown()
    dist.destroy_process_group()


if __name__ == "__main__":
    watch(train)

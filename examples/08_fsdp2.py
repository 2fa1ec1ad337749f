"""You will see rank 2 of an FSDP2 training named: it is slow inside backward, where all wait.
Run it with: python examples/08_fsdp2.py
It takes about 30 seconds, longer on a busy machine.
"""

import torch
import torch.distributed as dist
from shared.watching import STEPS, Layer, watch
from torch.distributed.fsdp import fully_shard

import otel_straggler as ots


def train() -> None:
    """Parameters are sharded: forward and backward gather them layer by layer."""
    dist.init_process_group("gloo")
    model = torch.nn.Sequential(Layer(), Layer(), Layer())
    for layer in model:
        fully_shard(layer)
    fully_shard(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    ots.configure()  # the collector comes from the environment, the rank from torchrun
    ots.set_topology(data=(dist.get_rank(), dist.get_world_size()))
    for n in range(STEPS):
        ots.step(n)
        with ots.section("forward"):
            loss = model(torch.randn(8, 32)).square().mean()
        with ots.section("backward"):
            loss.backward()
        with ots.section("optimizer"):
            optimizer.step()
            optimizer.zero_grad()
    ots.shutdown()
    dist.destroy_process_group()


if __name__ == "__main__":
    watch(train)

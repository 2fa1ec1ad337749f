"""You will see rank 2 named in a training whose ranks split each layer: it is slow inside backward.
Run it with: python examples/09_tensor_parallel.py
It takes about 30 seconds, longer on a busy machine.
"""

import torch
import torch.distributed as dist
from shared.watching import STEPS, Layer, watch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

import otel_straggler as ots


def train() -> None:
    """Every layer is split among all ranks, which meet in it, forward and backward."""
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    model = torch.nn.Sequential(Layer(), Layer(), Layer())
    for layer in model:
        parallelize_module(layer, mesh, {"wide": ColwiseParallel(), "narrow": RowwiseParallel()})
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    ots.configure()  # the collector comes from the environment, the rank from torchrun
    # Each rank has an equal part of the same work, so they are peers. Where several such groups
    # train together, say which: set_topology(tensor=(t, 4), data=(d, 8)).
    ots.set_topology(data=(dist.get_rank(), dist.get_world_size()))
    for n in range(STEPS):
        ots.step(n)
        with ots.section("forward"):
            loss = model(torch.randn(8, 32).requires_grad_()).square().mean()
        with ots.section("backward"):
            loss.backward()
        with ots.section("optimizer"):
            optimizer.step()
            optimizer.zero_grad()
    ots.shutdown()
    dist.destroy_process_group()


if __name__ == "__main__":
    watch(train)

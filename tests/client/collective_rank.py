"""One rank of trainings over gloo on CPU, run as a process of its own, one after the other.

Arguments: file for the rendezvous, names of the trainings. Rank 1 is slower in backward by
``DOSE_S`` in those trainings that are not called ``healthy``. The rest is in the environment:
``TIMED_DEVICE`` has DDP's own timers read of models on this kind of device instead of GPUs.
"""

from __future__ import annotations

import itertools
import os
import sys
import time
from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

from otel_straggler import configure, phase, section, shutdown, step
from otel_straggler.client.collectives import ddp_logger

STEPS = 6
BASE_S = 0.02
DOSE_S = 0.1
WIDTH = 32
Forward = Callable[[torch.Tensor], torch.Tensor]
_steps = itertools.count()


class TakesTime(torch.autograd.Function):
    """The same in forward; its backward takes a while and needs no processor."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, backward_s: float) -> torch.Tensor:
        ctx.backward_s = backward_s
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        time.sleep(ctx.backward_s)
        return gradients[0], None


def layers(count: int = 3) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(count)))


def train(name: str, model: Any, parameters: Iterable[Any], forward: Forward | None = None,
          accumulate: Any = None, reduce: Callable[[], None] | None = None) -> None:  # fmt: skip
    """Some steps with the sections of the quick start, in a phase with the training's name.

    Args:
        forward: instead of calling the model.
        accumulate: surroundings of a microbatch whose gradients are not averaged.
        reduce: called after backward, in no section.
    """
    is_slow = dist.get_rank() == 1 and name != "healthy"
    backward_s = BASE_S + (DOSE_S if is_slow else 0.0)
    optimizer = torch.optim.SGD(list(parameters), lr=0.01)
    for _ in range(STEPS):
        with phase(name), step(next(_steps)):
            if accumulate is not None:
                with accumulate():
                    (forward or model)(torch.ones(2, WIDTH)).sum().backward()
            with section("forward"):
                output = (forward or model)(torch.ones(2, WIDTH))
                loss = TakesTime.apply(output, backward_s).sum()
            with section("backward"):
                loss.backward()
            if reduce is not None:
                reduce()
            optimizer.step()
            optimizer.zero_grad()


def ddp(name: str, **options: Any) -> None:
    model = DistributedDataParallel(layers(), **options)
    train(name, model, model.parameters())


def accumulated(name: str) -> None:
    model = DistributedDataParallel(layers())
    train(name, model, model.parameters(), accumulate=model.no_sync)


def two_modules(name: str) -> None:
    first, second = (DistributedDataParallel(layers(2)) for _ in range(2))
    parameters = [*first.parameters(), *second.parameters()]
    train(name, None, parameters, lambda x: second(first(x)))


def checkpointed(name: str, *, reentrant: bool) -> None:
    class Checkpointed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = layers()

        def forward(self, x: torch.Tensor) -> Any:
            for layer in self.layers:
                x = checkpoint(layer, x, use_reentrant=reentrant)
            return x

    model = DistributedDataParallel(Checkpointed())
    train(name, None, model.parameters(), lambda x: model(x.requires_grad_()))


def sharded(name: str) -> None:
    model = layers(4)
    for layer in model:
        fully_shard(layer)
    fully_shard(model)
    train(name, model, model.parameters())


def tensor_parallel(name: str) -> None:
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    plan = {"0": ColwiseParallel(), "1": RowwiseParallel()}
    model = parallelize_module(layers(2), mesh, plan)
    train(name, None, model.parameters(), lambda x: model(x.requires_grad_()))


def by_hand(name: str) -> None:
    """Gradients are averaged by the training itself, outside of all sections."""
    model = layers()

    def reduce() -> None:
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)

    train(name, model, model.parameters(), reduce=reduce)


def compiled(name: str) -> None:
    model = DistributedDataParallel(layers())
    train(name, torch.compile(model, backend="aot_eager"), model.parameters())


TRAININGS: dict[str, Callable[[str], None]] = {
    "healthy": ddp,
    "plain": ddp,
    "static_graph": lambda name: ddp(name, static_graph=True),
    "find_unused": lambda name: ddp(name, find_unused_parameters=True),
    "small_buckets": lambda name: ddp(name, bucket_cap_mb=0.001),
    "accumulated": accumulated,
    "two_modules": two_modules,
    "reentrant": lambda name: checkpointed(name, reentrant=True),
    "checkpointed": lambda name: checkpointed(name, reentrant=False),
    "sharded": sharded,
    "tensor_parallel": tensor_parallel,
    "by_hand": by_hand,
    "compiled": compiled,
}


def main() -> None:
    torch.set_num_threads(1)
    if device := os.environ.get("TIMED_DEVICE"):
        ddp_logger._DEVICES = (device,)
    configure(strict=True, span_budget=0)
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    meeting = f"file://{sys.argv[1]}"
    dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=world_size)
    for name in sys.argv[2:]:
        TRAININGS[name](name)
    dist.barrier()
    shutdown()
    os._exit(0)  # destroy_process_group() of gloo aborts once in many times, ours loaded or not


if __name__ == "__main__":
    main()

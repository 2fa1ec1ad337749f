"""What is trained: a model in each of the ways in which PyTorch averages gradients."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

import otel_straggler as ots
from benchmarks.inside_backward.work import LAYERS, PACE, WIDTH, Layer, load_batch, network

Forward = Callable[[torch.Tensor], torch.Tensor]
MICROBATCHES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """A model and how it is trained.

    Attributes:
        forward: from a batch to what the loss is made of.
        parameters: that are trained.
        microbatches: of a step.
        unaveraged: surrounds all microbatches but the last.
    """

    forward: Forward
    parameters: Iterable[nn.Parameter]
    microbatches: int = 1
    unaveraged: Callable[[], AbstractContextManager[None]] = contextlib.nullcontext


def train(training: Training, steps: int) -> None:
    """The loop of the quick start, and its sections."""
    optimizer = torch.optim.SGD(list(training.parameters), lr=0.01)
    for n in range(steps):
        PACE.begin(n)
        ots.step(n)
        for microbatch in range(training.microbatches):
            is_last = microbatch == training.microbatches - 1
            with contextlib.nullcontext() if is_last else training.unaveraged():
                _one_microbatch(training.forward)
        with ots.section("optimizer"):
            optimizer.step()
            optimizer.zero_grad()


def _one_microbatch(forward: Forward) -> None:
    with ots.section("data_loading", kind="data"):
        inputs = load_batch()
    with ots.section("forward"):
        loss = forward(inputs).square().mean()
    with ots.section("backward"):
        loss.backward()


def _ddp(**options: object) -> Training:
    model = DistributedDataParallel(network(), **options)
    return Training(forward=model, parameters=model.parameters())


def _accumulated() -> Training:
    model = DistributedDataParallel(network())
    return Training(
        forward=model,
        parameters=model.parameters(),
        microbatches=MICROBATCHES,
        unaveraged=model.no_sync,
    )


class _TwoHeads(nn.Module):
    """Every other time another head, whose parameters are unused the other time."""

    def __init__(self) -> None:
        super().__init__()
        self.trunk = network()
        self.heads = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(2))
        self.calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        result: torch.Tensor = self.heads[self.calls % 2](self.trunk(x))
        return result


def _find_unused() -> Training:
    model = DistributedDataParallel(_TwoHeads(), find_unused_parameters=True)
    return Training(forward=model, parameters=model.parameters())


def _two_modules() -> Training:
    half = LAYERS // 2
    first = DistributedDataParallel(network(0, half))
    second = DistributedDataParallel(network(half, LAYERS))
    return Training(
        forward=lambda x: second(first(x)),
        parameters=[*first.parameters(), *second.parameters()],
    )


class _Checkpointed(nn.Module):
    """Runs the forward of each layer again inside backward."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = network()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=False)
        return x


def _checkpointed() -> Training:
    model = DistributedDataParallel(_Checkpointed())
    return Training(forward=model, parameters=model.parameters())


def _compiled() -> Training:
    torch._dynamo.reset()  # each run compiles its own model, as a new process would
    model = DistributedDataParallel(network())
    return Training(forward=torch.compile(model), parameters=model.parameters())


def _sharded() -> Training:
    from torch.distributed.fsdp import fully_shard

    model = network()
    for layer in model:
        fully_shard(layer)
    fully_shard(model)
    return Training(forward=model, parameters=model.parameters())


def _tensor_parallel() -> Training:
    """Pairs of layers, split by columns, then by rows; their collectives are DTensor's."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        RowwiseParallel,
        parallelize_module,
    )

    model = nn.Sequential(*(_Pair(at) for at in range(0, LAYERS, 2)))
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    plan = {"wide": ColwiseParallel(), "narrow": RowwiseParallel()}
    for pair in model:
        parallelize_module(pair, mesh, plan)
    return Training(forward=lambda x: model(x.requires_grad_()), parameters=model.parameters())


class _Pair(nn.Module):
    def __init__(self, at: int) -> None:
        super().__init__()
        torch.manual_seed(at)
        self.first, self.second = Layer(at), Layer(at + 1)
        self.wide, self.narrow = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        result: torch.Tensor = self.second(self.narrow(self.wide(x)))
        return result


TRAININGS: dict[str, Callable[[], Training]] = {
    "ddp": _ddp,
    "accumulated": _accumulated,
    "static_graph": lambda: _ddp(static_graph=True),
    "find_unused": _find_unused,
    "two_modules": _two_modules,
    "checkpointed": _checkpointed,
    "compiled": _compiled,
    "sharded": _sharded,
    "tensor_parallel": _tensor_parallel,
}

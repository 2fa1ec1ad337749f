"""The table of loops. Each trains one run; a row of the benchmark is an entry here.

``train(steps, is_watched)`` builds a model of ``benchmarks.inside_backward.work`` with DDP, trains
it on ``benchmarks.trainers.data.loader``, and begins and ends telemetry as the user of that trainer
would: endpoint, run, rank, and world are in the environment. Not watched, it is the same training
without anything of this package.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch.nn.parallel import DistributedDataParallel

import otel_straggler as ots
from benchmarks.inside_backward.work import network
from benchmarks.trainers.data import loader
from benchmarks.trainers.libraries import (
    train_by_accelerate,
    train_by_deepspeed,
    train_by_lightning,
    train_by_transformers,
)
from otel_straggler.integrations.zero_code import StragglerInstrumentor

SECTIONS = {name: name for name in ("data_loading", "forward", "backward")}
"""Of the work that becomes slow, the section of the training in which it happens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingLoop:
    """A way to have a training watched.

    Attributes:
        title: in the table.
        train: a run of so many steps, watched or not.
        scale: of all times, where the trainer itself takes long.
        sections: see ``SECTIONS``.
        package: that is needed.
        unseen_steps: that are over before telemetry begins.
    """

    title: str
    train: Callable[[int, bool], None]
    scale: float = 1.0
    sections: dict[str, str] = field(default_factory=lambda: dict(SECTIONS))
    package: str = ""
    unseen_steps: int = 0

    @property
    def why_not(self) -> str:
        """Why it cannot run here; empty if it can."""
        if not self.package or importlib.util.find_spec(self.package):
            return ""
        return f"{self.package} is not installed"


def train_bare(steps: int, is_watched: bool) -> None:
    """The loop of the quick start."""
    model = DistributedDataParallel(network())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    data = loader(steps)
    if not is_watched:
        _train(model, optimizer, data)
        return
    ots.configure()
    with ots.watch(model, optimizer, data):
        _train(model, optimizer, data)
    ots.shutdown()


def train_without_code(steps: int, is_watched: bool) -> None:
    """The same; what ``otel-straggler run`` does before and after the script is around it."""
    if not is_watched:
        _train_without_code(steps)
        return
    StragglerInstrumentor().instrument()
    _train_without_code(steps)
    StragglerInstrumentor().uninstrument()


def _train_without_code(steps: int) -> None:
    model = DistributedDataParallel(network())
    _train(model, torch.optim.SGD(model.parameters(), lr=0.01), loader(steps))


def _train(
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    data: torch.utils.data.DataLoader[torch.Tensor],
) -> None:
    for inputs in data:
        optimizer.zero_grad()
        model(inputs).square().mean().backward()
        optimizer.step()


MUCH_CODE = 4.0
"""All times are so many times as long for trainers that run a millisecond of their own code in a
step. The ranks meet and then all want a processor, and on two cores half of them wait 0.4 ms for
one: of a forward pass of 10 ms that is 4 %, by the toss of a coin, watched or not. Where each rank
has a core of its own there is none of it."""

LOOPS = {
    "bare_watch": TrainingLoop(title="bare loop, `watch`", train=train_bare),
    "zero_code": TrainingLoop(
        title="bare loop, zero code", train=train_without_code, unseen_steps=1
    ),
    "lightning": TrainingLoop(
        title="Lightning", train=train_by_lightning, package="lightning", scale=MUCH_CODE
    ),
    "transformers": TrainingLoop(
        title="Transformers", train=train_by_transformers, package="transformers"
    ),
    "accelerate": TrainingLoop(title="Accelerate", train=train_by_accelerate, package="accelerate"),
    "deepspeed": TrainingLoop(
        title="DeepSpeed (ZeRO 1)", train=train_by_deepspeed, package="deepspeed", scale=MUCH_CODE
    ),
}
"""By name."""

"""A rank: a small transformer under DDP, with README's two lines and a loop that marks nothing.

    torchrun --nproc-per-node 4 -m benchmarks.real_runs.rank FILE

FILE is a plan as JSON (``planning.Plan``). Layers sleep where a GPU would work, because four ranks
share two cores; the transformer computes besides. What rank 0 and the slow rank saw of the time, by
their own clocks, goes to FILE's folder: the beginning of each step, seconds since 1970.
"""

from __future__ import annotations

import json
import random
import sys
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

import otel_straggler as ots
from benchmarks.real_runs.planning import PLACES, Plan

WIDTH, TOKENS, BATCH, VOCABULARY = 32, 16, 4, 64


class Pace:
    """Sleeps as a healthy rank does, plus what the plan adds on this rank from its onset on."""

    def __init__(self, plan: Plan, rank: int) -> None:
        self.plan = plan
        self.is_slow = plan.fault is not None and plan.fault.rank == rank
        self.step = 0
        self._chance = random.Random(rank)

    def spend(self, place: str) -> None:
        """Take the time of this place in a step."""
        seconds = PLACES[place] * self._chance.lognormvariate(0.0, 0.02)
        fault = self.plan.fault
        if fault is not None and self.is_slow and fault.place == place and self.step >= fault.step:
            seconds += fault.seconds
        time.sleep(seconds)


class _Work(torch.autograd.Function):
    """Takes its time in forward, and in backward before the gradients of what precedes it."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, pace: Pace) -> torch.Tensor:
        ctx.pace = pace
        pace.spend("forward")
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        ctx.pace.spend("backward")
        return gradient, None


class Model(nn.Module):
    """A transformer that guesses the next token."""

    def __init__(self, pace: Pace) -> None:
        super().__init__()
        self.pace = pace
        self.embed = nn.Embedding(VOCABULARY, WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, 2, 2 * WIDTH, dropout=0.0, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 1)
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = _Work.apply(self.embed(tokens), self.pace)
        result: torch.Tensor = self.head(self.layers(x))
        return nn.functional.cross_entropy(result.flatten(0, 1), tokens.flatten())


class Tokens(Dataset[torch.Tensor]):
    """Batches that take their time to load."""

    def __init__(self, pace: Pace) -> None:
        self.pace = pace

    def __len__(self) -> int:
        return self.pace.plan.steps

    def __getitem__(self, at: int) -> torch.Tensor:
        self.pace.spend("data")
        return torch.randint(VOCABULARY, (BATCH, TOKENS))


def main() -> None:
    """Train as planned."""
    path = Path(sys.argv[1])
    plan = Plan.from_json(json.loads(path.read_text()))
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    pace = Pace(plan, rank)
    model = DistributedDataParallel(Model(pace))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    dataloader = DataLoader(Tokens(pace), batch_size=None)
    ots.configure(endpoint=plan.endpoint, run_id=plan.run_id)
    ots.watch(model, optimizer, dataloader)
    begun_s = [time.time()]
    for step, tokens in enumerate(dataloader):
        optimizer.zero_grad()
        model(tokens).backward()
        optimizer.step()
        pace.spend("outside")
        pace.step = step + 1
        begun_s.append(time.time())
    ots.shutdown()
    (path.parent / f"{plan.run_id}.rank{rank}.json").write_text(json.dumps(begun_s))
    dist.barrier()


if __name__ == "__main__":
    main()

"""Loops that call an engine of DeepSpeed: a stand-in with its methods, and, in a process of its
own, the real one if it is installed."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from otel_straggler.client.watch.handle import WATCHING
from otel_straggler.errors import UsageError
from otel_straggler.integrations.deepspeed import watch

from .recorded import Recorded

STEP = ["data_loading", "forward", "backward", "optimizer", "step"]


def engine(*, accumulated: int = 1) -> Any:
    """As a DeepSpeedEngine of 0.19: ``backward`` goes on after torch's, ``step`` is called for each
    batch, and ``global_steps`` counts where the weights were due to be updated."""
    import torch

    class Engine(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.module = torch.nn.Linear(8, 2)
            self.optimizer = torch.optim.SGD(self.module.parameters(), lr=0.01)
            self.micro_steps = self.global_steps = 0

        def forward(self, batch: Any) -> Any:
            return self.module(batch).square().mean()

        def is_gradient_accumulation_boundary(self) -> bool:
            return (self.micro_steps + 1) % accumulated == 0

        def backward(self, loss: Any, retain_graph: bool = False) -> Any:
            (loss / accumulated).backward(retain_graph=retain_graph)
            return loss

        def step(self, lr_kwargs: Any = None) -> None:
            if self.is_gradient_accumulation_boundary():
                self.optimizer.step()
                self.optimizer.zero_grad()
                self.global_steps += 1
            self.micro_steps += 1

    return Engine()


def loader() -> Any:
    import torch

    return torch.utils.data.DataLoader(torch.rand(32, 8), batch_size=4)


def train(made: Any, batches: Any) -> None:
    for batch in batches:
        loss = made(batch)
        made.backward(loss)
        made.step()


def test_each_step_has_its_four_sections() -> None:
    made, batches = engine(), loader()
    with Recorded() as recorded, watch(made, batches):
        train(made, batches)
    assert recorded.names(2) == STEP
    assert len({run.step for run in recorded.runs if run.name == "step"}) >= 7


def test_a_step_ends_where_weights_are_updated() -> None:
    """The engine's step is called for each batch; those before are in the same step."""
    made, batches = engine(accumulated=4), loader()
    with Recorded() as recorded, watch(made, batches):
        train(made, batches)
    assert recorded.names(1).count("backward") == 4
    assert {run.step for run in recorded.runs if run.name == "optimizer"} == {0, 1}


def test_closing_leaves_the_engine_as_it_was() -> None:
    made = engine()
    watching = watch(made)
    assert {"backward", "step"} <= set(vars(made))
    watching.close()
    assert not {"backward", "step"} & set(vars(made))
    assert not made._forward_pre_hooks
    assert not WATCHING._watched


def test_what_is_no_engine_is_refused() -> None:
    import torch

    with pytest.raises(UsageError, match=r"Pass what deepspeed\.initialize\(\) returns first"):
        watch(torch.nn.Linear(8, 2))


def test_a_loader_that_cannot_be_watched_leaves_nothing_watched() -> None:
    made = engine()
    with pytest.raises(UsageError, match="dataloader"):
        watch(made, 5)
    assert not WATCHING._watched
    assert "step" not in vars(made)


SCRIPT = """
import json, os, sys, warnings
warnings.simplefilter("ignore")
sys.path[:0] = [os.environ["TESTS"]]
import deepspeed, torch
from otel_straggler.integrations.deepspeed import watch
from recorded import Recorded

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 2)
    def forward(self, batch):
        return self.layer(batch).square().mean()

deepspeed.init_distributed("gloo")
names = {}
for stage in (0, 1, 2):
    model = Model()
    engine, _, loader, _ = deepspeed.initialize(
        model=model, model_parameters=model.parameters(), training_data=list(torch.rand(64, 8)),
        config={
            "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 2,
            "optimizer": {"type": "Adam", "params": {"lr": 0.001, "torch_adam": True}},
            "zero_optimization": {"stage": stage}})
    with Recorded() as recorded, watch(engine, loader):
        for batch in loader:
            engine.backward(engine(batch))
            engine.step()
    names[stage] = recorded.names(2)
print(json.dumps(names))
torch.distributed.destroy_process_group()
"""


@pytest.mark.skipif(
    not importlib.util.find_spec("deepspeed"),
    reason="needs deepspeed and a C++ compiler; would show that its real engine is timed",
)
def test_the_real_engine_is_timed_with_and_without_zero(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    done = subprocess.run(
        [*launcher, "--nproc-per-node=1", "train.py"],
        cwd=tmp_path,
        env={
            **os.environ,
            "DS_ACCELERATOR": "cpu",
            "TESTS": str(Path(__file__).parent),
            "PYTHONPATH": os.pathsep.join(sys.path),
        },
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    names = json.loads(done.stdout.splitlines()[-1])
    batch = ["data_loading", "forward", "backward", "optimizer"]
    assert names == {stage: [*batch, *batch, "step"] for stage in ("0", "1", "2")}

"""Lightning's and Transformers' trainers are saved, resumed, and stopped by ``Manager``."""

from __future__ import annotations

import importlib.util
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from otel_straggler.checkpoint.folder import list_checkpoints

from . import lightning_runs

pytestmark = pytest.mark.filterwarnings("ignore")
needs_transformers = pytest.mark.skipif(
    not all(importlib.util.find_spec(name) for name in ("transformers", "accelerate")),
    reason="needs transformers and accelerate; would show that a Trainer is saved and resumed",
)
needs_lightning = lightning_runs.needs_lightning("that fits are saved and resumed")


def steps_in(folder: Path) -> list[int]:
    return sorted(one.step for one in list_checkpoints(folder) if not one.problem)


class Stopper:
    """Becomes a callback that ends a training after a step, as a fault would or a scheduler."""

    @staticmethod
    def of(base: type, hook: str, at: int, act: Any) -> Any:
        def end(self: Any, first: Any, second: Any, *rest: Any, **more: Any) -> None:
            trainer = first if hook == "on_train_batch_end" else second
            if trainer.global_step == at:
                act()

        return type("Stopping", (base,), {hook: end})()


def fail() -> None:
    raise ZeroDivisionError


# --- Lightning -----------------------------------------------------------------------------------


def fit(distribution: str, folder: Path, *more: Any, max_steps: int) -> tuple[Any, Any]:
    """Trainer and module of a fit of 8 batches an epoch that saves every other step."""
    from otel_straggler.integrations.lightning import CheckpointCallback

    saves = CheckpointCallback(folder / "saves", every_steps=2, keep=9)
    trainer = lightning_runs.trainer(
        distribution, folder, [saves, *more], max_steps=max_steps, max_epochs=-1
    )
    module = lightning_runs.model(distribution)
    trainer.fit(module, lightning_runs.loader())
    return trainer, module


@needs_lightning
@pytest.mark.parametrize("distribution", lightning_runs.DISTRIBUTIONS)
def test_a_fit_goes_on_where_its_last_save_was(tmp_path: Path, distribution: str) -> None:
    """In the second epoch: weights, step, and epoch are those of the save."""
    import torch

    _, module = fit(distribution, tmp_path, max_steps=10)
    assert steps_in(tmp_path / "saves") == [2, 4, 6, 8, 10]
    weights = module.layer.weight.detach().clone()
    trainer, module = fit(distribution, tmp_path, max_steps=10)
    assert torch.equal(module.layer.weight, weights)
    assert trainer.global_step == 10
    trainer, module = fit(distribution, tmp_path, max_steps=14)
    whole, _ = fit(distribution, tmp_path / "whole", max_steps=14)
    assert trainer.global_step == whole.global_step == 14
    assert trainer.current_epoch == whole.current_epoch
    assert steps_in(tmp_path / "saves")[-2:] == [12, 14]
    assert not torch.equal(module.layer.weight, weights)


@needs_lightning
def test_a_fit_that_fails_keeps_its_saves(tmp_path: Path) -> None:
    import lightning.pytorch as lightning

    stop = Stopper.of(lightning.Callback, "on_train_batch_end", 5, fail)
    with pytest.raises(ZeroDivisionError):
        fit("lightning.pytorch", tmp_path, stop, max_steps=8)
    assert steps_in(tmp_path / "saves") == [2, 4]
    trainer, _ = fit("lightning.pytorch", tmp_path, max_steps=8)
    assert trainer.global_step == 8


# --- Transformers --------------------------------------------------------------------------------


def train(folder: Path, *more: Any, max_steps: int, **options: Any) -> Any:
    import torch
    from transformers import Trainer, TrainingArguments

    from otel_straggler.integrations.transformers import CheckpointCallback

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(8, 2)

        def forward(self, x: Any, labels: Any = None) -> Any:
            logits = self.layer(x)
            return {"loss": logits.square().mean(), "logits": logits}

    class Items(torch.utils.data.Dataset):  # type: ignore[type-arg]
        def __len__(self) -> int:
            return 40

        def __getitem__(self, item: int) -> Any:
            return {"x": torch.rand(8), "labels": torch.tensor(1)}

    arguments = TrainingArguments(
        str(folder / "out"), per_device_train_batch_size=4, max_steps=max_steps, report_to=[],
        use_cpu=True, disable_tqdm=True, save_strategy="no",
    )  # fmt: skip
    saves = CheckpointCallback(folder / "saves", **{"every_steps": 2, "keep": 9, **options})
    trainer = Trainer(Model(), arguments, train_dataset=Items(), callbacks=[saves, *more])
    trainer.train()
    return trainer


@needs_transformers
def test_a_trainer_goes_on_where_its_last_save_was(tmp_path: Path) -> None:
    import torch

    weights = train(tmp_path, max_steps=4).model.layer.weight.detach().clone()
    assert steps_in(tmp_path / "saves") == [2, 4]
    trainer = train(tmp_path, max_steps=7)
    assert trainer.state.global_step == 7
    assert steps_in(tmp_path / "saves") == [2, 4, 6]
    assert not torch.equal(trainer.model.layer.weight, weights)
    rate = trainer.lr_scheduler.state_dict()["last_epoch"]
    assert rate == 7


@needs_transformers
def test_a_trainer_that_fails_keeps_its_saves(tmp_path: Path) -> None:
    from transformers import TrainerCallback

    with pytest.raises(ZeroDivisionError):
        train(tmp_path, Stopper.of(TrainerCallback, "on_step_end", 3, fail), max_steps=6)
    assert steps_in(tmp_path / "saves") == [2]
    assert train(tmp_path, max_steps=6).state.global_step == 6


@needs_transformers
def test_sigterm_saves_the_step_and_stops_the_trainer(tmp_path: Path) -> None:
    """And it would end the process by then: this one has a handler."""
    from transformers import TrainerCallback

    received: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _: received.append(number))

    def terminate() -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(0.01)

    try:
        stop = Stopper.of(TrainerCallback, "on_step_end", 3, terminate)
        trainer = train(tmp_path, stop, max_steps=1_000_000, every_steps=None)
    finally:
        signal.signal(signal.SIGTERM, before)
    (saved,) = steps_in(tmp_path / "saves")
    assert saved == trainer.state.global_step
    assert saved < 1_000
    assert received

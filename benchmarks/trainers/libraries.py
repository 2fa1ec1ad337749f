"""Trainings in which a library has the loop, or its parts; watched as its user would have it."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

import otel_straggler as ots
from benchmarks.inside_backward.work import PACE, load_batch, network
from benchmarks.trainers.data import FETCHED_AT_NS, loader


def train_by_lightning(steps: int, is_watched: bool) -> None:
    """The Trainer of ``lightning``."""
    import lightning

    from otel_straggler.integrations.lightning import StepTimingCallback

    class Module(lightning.LightningModule):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.network = network()

        def training_step(self, batch: torch.Tensor, _: int) -> torch.Tensor:
            return self.network(batch).square().mean()

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), lr=0.01)

    with tempfile.TemporaryDirectory() as folder:
        lightning.Trainer(
            accelerator="cpu",
            strategy="ddp",
            devices=dist.get_world_size(),
            max_epochs=1,
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            default_root_dir=folder,
            callbacks=[StepTimingCallback()] if is_watched else [],
        ).fit(Module(), loader(steps))


def train_by_transformers(steps: int, is_watched: bool) -> None:
    """The Trainer of ``transformers``."""
    from transformers import Trainer, TrainingArguments

    from otel_straggler.integrations.transformers import StepTimingCallback

    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder,
            max_steps=steps,
            per_device_train_batch_size=1,
            use_cpu=True,
            disable_tqdm=True,
            save_strategy="no",
            logging_strategy="no",
            report_to=[],
            ddp_find_unused_parameters=False,
            optim="sgd",
        )
        Trainer(
            model=_WithLoss(),
            args=arguments,
            train_dataset=_Items(steps),
            data_collator=_Collator(),
            callbacks=[StepTimingCallback()] if is_watched else [],
        ).train()


def train_by_accelerate(steps: int, is_watched: bool) -> None:
    """A loop over what an ``Accelerator`` has prepared."""
    from accelerate import Accelerator

    from otel_straggler.integrations.accelerate import watch

    accelerator = Accelerator(cpu=True)
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    data = torch.utils.data.DataLoader(_Items(steps), batch_size=1, collate_fn=_Collator())

    def train() -> None:
        parts = accelerator.prepare(model, optimizer, data)
        prepared_model, prepared_optimizer, batches = parts
        for batch in batches:
            prepared_optimizer.zero_grad()
            accelerator.backward(prepared_model(batch["inputs"]).square().mean())
            prepared_optimizer.step()

    _run(train, lambda: watch(accelerator), is_watched)


def train_by_deepspeed(steps: int, is_watched: bool) -> None:
    """A loop over an engine of DeepSpeed, with its optimizer sharded (ZeRO 1)."""
    import deepspeed

    from otel_straggler.integrations.deepspeed import watch

    model = network()
    engine, *_ = deepspeed.initialize(
        model=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.01),
        config={
            "train_micro_batch_size_per_gpu": 4,
            "zero_optimization": {"stage": 1},
            "zero_allow_untested_optimizer": True,
            "steps_per_print": 1_000_000,
        },
    )
    data = loader(steps)

    def train() -> None:
        for batch in data:
            engine.backward(engine(batch).square().mean())
            engine.step()

    _run(train, lambda: watch(engine, data), is_watched)
    engine.destroy()


def _run(
    train: Callable[[], None], watch: Callable[[], AbstractContextManager[Any]], is_watched: bool
) -> None:
    if is_watched:
        ots.configure()
    with watch() if is_watched else nullcontext():
        train()
    if is_watched:
        ots.shutdown()


class _WithLoss(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.network = network()

    def forward(self, inputs: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"loss": self.network(inputs).square().mean()}


class _Items(torch.utils.data.Dataset[int]):
    """Numbers that stand for samples, one for each step of each rank: the collator loads."""

    def __init__(self, steps: int) -> None:
        self._count = steps * dist.get_world_size()

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, item: int) -> int:
        return item


class _Collator:
    """A batch for each call, as ``data.Batches``. Accelerate asks for one more ahead."""

    def __init__(self) -> None:
        self._batches = 0

    def __call__(self, _: Sequence[int]) -> dict[str, torch.Tensor]:
        if self._batches == 0:
            FETCHED_AT_NS.clear()
        FETCHED_AT_NS.append(time.perf_counter_ns())
        PACE.begin(self._batches)
        self._batches += 1
        return {"inputs": load_batch()}

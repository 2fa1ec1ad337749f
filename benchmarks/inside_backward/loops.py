"""Trainings in which a library has the loop; its callbacks are where sections begin and end."""

from __future__ import annotations

import tempfile
from contextlib import AbstractContextManager
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

import otel_straggler as ots
from benchmarks.inside_backward.work import BATCH, PACE, WIDTH, load_batch, network


class Sections:
    """The open section of a loop that is seen only by callbacks."""

    def __init__(self) -> None:
        self._open: AbstractContextManager[object] | None = None

    def begin_step(self, step: int) -> None:
        """End what is open; loading comes first."""
        self.end()
        PACE.begin(step)
        ots.step(step)
        self.enter("data_loading", kind="data")

    def enter(self, name: str, **facts: Any) -> None:
        """End what is open, and begin ``name``."""
        self.end()
        self._open = ots.section(name, **facts)
        self._open.__enter__()

    def end(self) -> None:
        if self._open is not None:
            self._open.__exit__(None, None, None)
            self._open = None


class _Batches(torch.utils.data.IterableDataset[torch.Tensor]):
    """As many as are asked for."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __iter__(self) -> Any:
        return (load_batch() for _ in range(self.count))


# --- Hugging Face ------------------------------------------------------------------------------


def train_by_transformers(steps: int) -> None:
    """The Trainer of ``transformers``, whose callbacks see forward and backward as one."""
    from transformers import Trainer, TrainerCallback, TrainingArguments

    class Callbacks(TrainerCallback):  # type: ignore[misc]
        def __init__(self) -> None:
            self.sections = Sections()

        def on_train_begin(self, *_: object, **__: object) -> None:
            self.sections.begin_step(0)

        def on_step_begin(self, *_: object, **__: object) -> None:
            self.sections.enter("forward_backward")

        def on_pre_optimizer_step(self, *_: object, **__: object) -> None:
            self.sections.enter("optimizer")

        def on_step_end(self, _args: Any, state: Any, *_: object, **__: object) -> None:
            if state.global_step < steps:
                self.sections.begin_step(state.global_step)
            else:
                self.sections.end()

    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder,
            max_steps=steps,
            per_device_train_batch_size=BATCH,
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
            data_collator=lambda _: {"inputs": load_batch()},
            callbacks=[Callbacks()],
        ).train()


class _Items(torch.utils.data.Dataset[int]):
    """Numbers that stand for samples: the collator loads."""

    def __init__(self, steps: int) -> None:
        self.count = (steps + 2) * BATCH * dist.get_world_size()

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, item: int) -> int:
        return item


class _WithLoss(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.network = network()

    def forward(self, inputs: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"loss": self.network(inputs).square().mean()}


# --- Lightning ---------------------------------------------------------------------------------


def train_by_lightning(steps: int) -> None:
    """The Trainer of ``lightning``, whose callbacks tell forward from backward."""
    import lightning

    class Module(lightning.LightningModule):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.network = network()

        def training_step(self, batch: torch.Tensor, _: int) -> torch.Tensor:
            return self.network(batch.reshape(BATCH, WIDTH)).square().mean()

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), lr=0.01)

    class Callbacks(lightning.Callback):  # type: ignore[misc]
        def __init__(self) -> None:
            self.sections = Sections()

        def on_train_epoch_start(self, *_: object) -> None:
            self.sections.begin_step(0)

        def on_train_batch_start(self, *_: object) -> None:
            self.sections.enter("forward")

        def on_before_backward(self, *_: object) -> None:
            self.sections.enter("backward")

        def on_after_backward(self, *_: object) -> None:
            self.sections.enter("optimizer")

        def on_train_batch_end(self, trainer: Any, *_: object) -> None:
            if trainer.global_step < steps:
                self.sections.begin_step(trainer.global_step)
            else:
                self.sections.end()

    with tempfile.TemporaryDirectory() as folder:
        lightning.Trainer(
            accelerator="cpu",
            strategy="ddp",
            devices=dist.get_world_size(),
            max_steps=steps,
            max_epochs=1,
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            default_root_dir=folder,
            callbacks=[Callbacks()],
        ).fit(Module(), torch.utils.data.DataLoader(_Batches(steps + 2), batch_size=None))

"""Small fits of Lightning for the tests: what they record, and where they write. Loads Lightning
only when asked to, since the tests must be collected without it."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from otel_straggler.client.recording import RECORDING, Inbox

DISTRIBUTIONS = ("lightning.pytorch", "pytorch_lightning")


class Run(NamedTuple):
    """An execution of a section."""

    step: int | None
    phase: str
    name: str
    kind: str
    duration_ns: int


class Recorded:
    """What this process records in a ``with`` block."""

    def __init__(self) -> None:
        self.runs: list[Run] = []

    def __enter__(self) -> Recorded:
        self._inbox = Inbox(RECORDING)
        return self

    def __exit__(self, *_: object) -> None:
        for batch in self._inbox.drain():
            for (timer, _, start_ns, context, _), _, end_ns, _, _ in batch:
                duration_ns = end_ns - start_ns
                run = Run(context.step, context.phase, timer.name, timer.kind, duration_ns)
                self.runs.append(run)
        self._inbox.close()

    def names(self, step: int | None) -> list[str]:
        """In the order of their ends."""
        return [run.name for run in self.runs if run.step == step]


def model(distribution: str, *, is_manual: bool = False) -> Any:
    """A module of Lightning with one layer and 8 batches an epoch."""
    import torch

    lightning = importlib.import_module(distribution)

    class Model(lightning.LightningModule):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(8, 2)
            self.automatic_optimization = not is_manual

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            loss = self.layer(batch).square().mean()
            if not is_manual:
                return loss
            optimizer = self.optimizers()
            optimizer.zero_grad()
            self.manual_backward(loss)
            optimizer.step()
            return None

        def validation_step(self, batch: Any, batch_idx: int) -> Any:
            return self.layer(batch).sum()

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.01)

    return Model()


def loader() -> Any:
    import torch

    return torch.utils.data.DataLoader(torch.rand(32, 8), batch_size=4)


def trainer(distribution: str, folder: Path, callbacks: Sequence[Any] = (), **options: Any) -> Any:
    lightning = importlib.import_module(distribution)
    quiet = {
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "num_sanity_val_steps": 0,
    }
    return lightning.Trainer(
        accelerator="cpu",
        devices=1,
        default_root_dir=str(folder),
        callbacks=list(callbacks),
        **{**quiet, **options},
    )

"""Small fits of Lightning. It is loaded only when asked for: tests are collected without it."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

DISTRIBUTIONS = ("lightning.pytorch", "pytorch_lightning")
LOGGER = "test_logger"


def needs_lightning(would_show: str) -> pytest.MarkDecorator:
    """A mark for tests that need both distributions."""
    has_both = all(importlib.util.find_spec(name.split(".")[0]) for name in DISTRIBUTIONS)
    reason = f"needs lightning and pytorch-lightning; would show {would_show}"
    return pytest.mark.skipif(not has_both, reason=reason)


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

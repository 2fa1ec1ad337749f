"""Small trainings, and what was recorded of them."""

from __future__ import annotations

from typing import Any

import pytest

from otel_straggler.client.recording import RECORDER

torch = pytest.importorskip("torch")
data = pytest.importorskip("torch.utils.data")
STEP = ["data_loading", "forward", "backward", "optimizer", "step"]
"""Sections of a step and the step, in the order in which they end."""


class Model(torch.nn.Module):  # type: ignore[misc,name-defined]
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(2, 2)

    def forward(self, x: Any) -> Any:
        return torch.relu(self.linear(x))


def sgd(*models: Any) -> Any:
    return torch.optim.SGD([p for model in models for p in model.parameters()], lr=0.1)


def loader(batches: int) -> Any:
    return data.DataLoader(data.TensorDataset(torch.ones(batches, 2)))


def train_on(batches: Any, model: Any, optimizer: Any) -> None:
    for (x,) in batches:
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()


def recorded() -> list[tuple[str, int | None]]:
    """Names and steps, in order of their ends, since the last time."""
    return [(record[0][0].name, record[0][3].step) for record in RECORDER.drain()]


def of_step(number: int, *names: str) -> list[tuple[str, int | None]]:
    return [(name, number) for name in names or STEP]


def inside() -> list[tuple[str, str]]:
    """Names, and the section around each."""
    records = RECORDER.drain()
    return [(frame[0].name, around[0].name if around else "") for frame, around, *_ in records]

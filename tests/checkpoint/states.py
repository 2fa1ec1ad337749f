"""Folders with checkpoints of one rank, made by a manager without a process group."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from otel_straggler.checkpoint import Manager


@contextmanager
def manager_in(folder: Path, **options: Any) -> Iterator[Manager]:
    with Manager(folder, **{"handle_sigterm": False, **options}) as manager:
        yield manager


def state_at(step: int) -> dict[str, Any]:
    return {"weights": torch.full((1_000,), float(step)), "position": {"epoch": step}}


def saved(folder: Path, *steps: int, **options: Any) -> list[Path]:
    """Save these steps; their paths."""
    with manager_in(folder, **options) as manager:
        paths = [manager.save(step, state_at(step)) for step in steps]
    return [path for path in paths if path is not None]


def restored(folder: Path, step: int | None = None) -> tuple[int | None, dict[str, Any]]:
    """What a new training restores."""
    state = state_at(0)
    with manager_in(folder) as manager:
        return manager.restore(state, step), state

"""Batches whose loading takes a set time; they also count and time the steps of any trainer."""

from __future__ import annotations

import time
from collections.abc import Iterator

import torch
from torch.utils.data import DataLoader, IterableDataset

from benchmarks.inside_backward.work import PACE, load_batch

FETCHED_AT_NS: list[int] = []
"""When the batches of the newest training were asked for, ``perf_counter_ns``."""


class Batches(IterableDataset[torch.Tensor]):
    """One batch for each step, in the time that the step's pace has for loading."""

    def __init__(self, steps: int) -> None:
        self._steps = steps

    def __len__(self) -> int:
        return self._steps

    def __iter__(self) -> Iterator[torch.Tensor]:
        FETCHED_AT_NS.clear()
        for n in range(self._steps):
            FETCHED_AT_NS.append(time.perf_counter_ns())
            PACE.begin(n)
            yield load_batch()


def loader(steps: int) -> DataLoader[torch.Tensor]:
    """Loads in the training process, as without workers."""
    return DataLoader(Batches(steps), batch_size=None)

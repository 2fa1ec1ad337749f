"""A training whose batches come from workers that open sections too, run as a process of its own.

Argument: how the workers are started, fork or spawn.
"""

from __future__ import annotations

import sys

import torch
from torch.utils.data import DataLoader, Dataset

from otel_straggler import configure, section, shutdown, step


class Numbers(Dataset):  # type: ignore[type-arg,misc]
    """Eight numbers, each loaded inside a section."""

    def __len__(self) -> int:
        return 8

    def __getitem__(self, at: int) -> torch.Tensor:
        with step(at), section("load in a worker", kind="data"):
            return torch.tensor(float(at))


def main() -> None:
    """One epoch of four steps, begun inside an open section."""
    configure(strict=True)
    loader = DataLoader(Numbers(), batch_size=2, num_workers=2, multiprocessing_context=sys.argv[1])
    total = 0.0
    with section("epoch"):
        batches = iter(loader)
        for n in range(len(loader)):
            with step(n):
                with section("batch", kind="data"):
                    batch = next(batches)
                with section("forward"):
                    total += float(batch.sum())
    print(total)
    shutdown()


if __name__ == "__main__":
    main()

"""One rank of a training that saves checkpoints, run as a process of its own.

    training_rank.py FOLDER RENDEZVOUS RANK STEPS

Restores the newest checkpoint, trains to step STEPS, and prints a hash of all it has after the
restore and at each save. LOCAL is the beginning of the name of each rank's local tier. With EARLY
the first save does not wait for the process that writes. STAGERS is a folder with torch's
``staging.py`` and ``_state_dict_stager.py``. DIE
("<phase>:<rank>:<step>") kills the process that writes, and DIE_WHO ("writer", "trainer", "both")
says whom of that rank. This file is loaded in the process that writes, too.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import random
import signal
import sys
import time
from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

if "STAGERS" in os.environ:
    import other_stagers  # noqa: F401  before DCP is imported

from otel_straggler.checkpoint import LocalTier, Manager, PerRank, saving, training_state

WORLD = int(os.environ.get("WORLD", "2"))
EVERY = 2


class Loader:
    """A data loader whose position is different on each rank."""

    def __init__(self, rank: int) -> None:
        self.position = 1_000 * rank

    def batch(self) -> torch.Tensor:
        self.position += 1
        return torch.randn(4, 16) + self.position / 1_000

    def state_dict(self) -> dict[str, Any]:
        return {"position": self.position}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.position = state["position"]


def digest(model: Any, optimizer: Any, loader: Loader, progress: dict[str, Any]) -> str:
    """Of parameters, momenta, generators, position, and scalars."""
    parts: list[Any] = [random.getstate(), torch.get_rng_state().tolist(), loader.position]
    parts += [each.detach().tolist() for each in model.parameters()]
    for state in optimizer.state_dict()["state"].values():
        parts += [v.tolist() if torch.is_tensor(v) else v for v in state.values()]
    return hashlib.sha256(repr((parts, progress)).encode()).hexdigest()[:16]


def main(folder: str, rendezvous: str, rank: int, steps: int) -> None:
    logging.basicConfig(level=logging.INFO, stream=sys.stderr)
    store = dist.TCPStore("127.0.0.1", int(rendezvous), WORLD, is_master=rank == 0)
    os.environ["MASTER_ADDR"] = "127.0.0.1"  # for DCP's process
    dist.init_process_group("gloo", store=store, rank=rank, world_size=WORLD)
    torch.manual_seed(rank)
    random.seed(rank)
    torch.set_num_threads(1)
    model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.ReLU()))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    loader = Loader(rank)
    progress = {"tokens": 0}
    state = training_state(model, optimizer, loader=PerRank(loader), progress=progress)
    options: dict[str, Any] = {
        "every_steps": None if "ON_REQUEST" in os.environ else EVERY,
        "use_process": "IN_THREAD" not in os.environ,
    }
    if "LOCAL" in os.environ:
        node = f"{os.environ['LOCAL']}-{rank}"
        options |= {"local": LocalTier(node, every_steps=1), "every_steps": 100}
    with Manager(folder, keep=3, timeout_s=30.0, emergency_s=20.0, **options) as manager:
        if manager._saver._started is not None and "EARLY" not in os.environ:
            manager._saver._started.result()  # the process that writes runs
        start = manager.restore(state)
        progress = state["progress"]
        said = digest(model, optimizer, loader, progress) if start is not None else "-"
        print("restored", start, said, flush=True)
        for step in range((start or 0) + 1, steps + 1):
            optimizer.zero_grad()
            model(loader.batch()).square().mean().backward()
            optimizer.step()
            random.random()
            progress["tokens"] += 64
            said = digest(model, optimizer, loader, progress)
            print("step", step, said, flush=True)
            manager.step(step, state)
            if "WAIT" in os.environ:
                manager.wait()
            if manager.should_stop:
                break
            if "SLOW" in os.environ:
                time.sleep(0.05)
    print("ended", flush=True)
    dist.destroy_process_group()


def die_at(phase: str, rank: int, step: int, who: str) -> None:
    """Patch the phases so that one kills."""
    timed, commit = saving.Operation.phase, saving.commit

    @contextlib.contextmanager
    def dying(self: saving.Operation, name: str) -> Iterator[None]:
        with timed(self, name):
            yield
            its = self.context
            if (name, its.rank, its.step) == (phase, rank, step):
                die(its.parent_pid, who)

    def dying_commit(path: Any, manifest: Any, keys: Any) -> Any:
        if phase == "rename" and manifest.step == step:
            die(os.getppid(), who)
        result = commit(path, manifest, keys)
        if phase == "renamed" and manifest.step == step:
            die(os.getppid(), who)
        return result

    saving.Operation.phase = dying
    saving.commit = dying_commit


def die(trainer: int, who: str) -> None:
    if who != "writer":
        os.kill(trainer, signal.SIGKILL)
    if who != "trainer":
        os.kill(os.getpid(), signal.SIGKILL)


if "DIE" in os.environ:
    wanted = os.environ["DIE"].split(":")
    die_at(wanted[0], int(wanted[1]), int(wanted[2]), os.environ.get("DIE_WHO", "both"))

if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))

"""Scenarios of ranks on several nodes with a local tier, forked from one process that has torch;
prints what each rank reports, as JSON. A node is a folder of its own.

    python -m tests.checkpoint.tiered_ranks FOLDER
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch._dynamo  # by the optimizer, so that not each rank loads it
import torch.distributed as dist

from otel_straggler.checkpoint import LocalTier, Manager, PerRank, saving, training_state
from otel_straggler.checkpoint.folder import list_checkpoints
from otel_straggler.errors import StragglerError

from .forked_ranks import STEPS, Facts, full, run_ranks, trained

PER_NODE = 2


class Position:
    """Of a data loader; different on each rank."""

    def __init__(self, rank: int) -> None:
        self.at = 1_000 * rank

    def state_dict(self) -> dict[str, Any]:
        return {"at": self.at}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.at = state["at"]


def node_of(rank: int) -> int:
    return rank // PER_NODE


def manager_on(folder: Path, node: int, **options: Any) -> Manager:
    """Of a rank on ``node``."""
    tier = {"every_steps": 1, **options.pop("tier", {})}
    return Manager(
        options.pop("storage", folder / "storage"),
        local=LocalTier(folder / f"node-{node}", **tier),
        **{"use_process": False, "timeout_s": 30.0, "handle_sigterm": False, **options},
    )


def every_kind(rank: int, steps: int) -> tuple[dict[str, Any], Callable[[], list[Any]]]:
    """A state with DTensors, an optimizer, generators, positions, scalars and a plain tensor; and
    what gives its values."""
    model, optimizer = trained(steps)
    position, progress = Position(rank), {"tokens": 64 * steps, "loss": 0.5**steps}
    position.at += steps
    random.seed(rank + 10 * steps)
    average = torch.full((3,), float(steps))
    state = training_state(
        model, optimizer, loader=PerRank(position), progress=progress, average=average
    )

    def values() -> list[Any]:
        generators = [random.getstate(), torch.get_rng_state().tolist()]
        own = [position.at, state["progress"], state["average"].tolist()]
        return json.loads(json.dumps([full(model, optimizer), own, generators]))

    return state, values


def trained_on_nodes(
    folder: Path, rank: int, facts: Facts, *, node: Callable[[int], int] = node_of
) -> None:
    """Steps 1 to 5; 4 is persistent, the last three are on the nodes."""
    with manager_on(folder, node(rank), tier={"keep": 3}, every_steps=4, keep=1) as manager:
        for step in range(1, 6):
            state, values = every_kind(rank, step)
            manager.step(step, state)
            facts[f"at {step}"] = values()
            manager.wait()
    dist.barrier()
    facts["local"] = [one.step for one in list_checkpoints(folder / f"node-{node(rank)}")]
    facts["persistent"] = [one.step for one in list_checkpoints(folder / "storage")]


def restored_by(
    folder: Path, rank: int, facts: Facts, *, node: Callable[[int], int] = node_of
) -> None:
    state, values = every_kind(rank, 0)
    with manager_on(folder, node(rank), tier={"keep": 3}) as manager:
        facts["step"] = manager.restore(state)
        facts["values"] = values()
        if manager.restored is not None:
            facts["files"] = manager.restored.read.files
            facts["phases"] = sorted(manager.restored.phases_s)
    facts["leftovers"] = [str(path) for path in folder.glob("*/.*ing-*")]


def lose(folder: Path, *nodes: int) -> None:
    for node in nodes:
        shutil.rmtree(folder / f"node-{node}")


def node_lost(root: Path) -> dict[str, list[Facts]]:
    """Four ranks on two nodes; then a node, both nodes, numbers and the world size change."""
    made = root / "made"
    results = {"trained": run_ranks(made, trained_on_nodes, world=4)}

    def again(name: str, lost: tuple[int, ...], work: Any = restored_by, world: int = 4) -> None:
        shutil.copytree(made, root / name)
        lose(root / name, *lost)
        results[name] = run_ranks(root / name, work, world=world)

    def others(folder: Path, rank: int, facts: Facts) -> None:
        restored_by(folder, rank, facts, node=lambda rank: 1 - node_of(rank))

    again("nothing lost", ())
    again("a node lost", (1,))
    again("all nodes lost", (0, 1))
    again("renumbered", (0,), others)
    again("two ranks", (1,), one_on_each, world=2)
    return results


def three_nodes(root: Path) -> dict[str, list[Facts]]:
    """One rank on each; node 0 keeps copies of node 2, which has some of node 1."""
    made = root / "made"
    results = {"trained on three": run_ranks(made, train_one_on_each, world=3)}
    for name, lost in {"one of three": (1,), "two of three": (1, 2)}.items():
        shutil.copytree(made, root / name)
        lose(root / name, *lost)
        results[name] = run_ranks(root / name, one_on_each, world=3)
    return results


def train_one_on_each(folder: Path, rank: int, facts: Facts) -> None:
    trained_on_nodes(folder, rank, facts, node=lambda rank: rank)


def one_on_each(folder: Path, rank: int, facts: Facts) -> None:
    restored_by(folder, rank, facts, node=lambda rank: rank)


def full_node(root: Path) -> dict[str, list[Facts]]:
    """A node has no room: what is due for storage goes past the nodes."""
    return {"full node": run_ranks(root / "made", save_on_full_node)}


def save_on_full_node(folder: Path, rank: int, facts: Facts) -> None:
    import resource

    state = {f"own {rank}": torch.full((30_000,), float(rank))}
    with manager_on(folder, rank, every_steps=2) as manager:
        manager.save(1, state)
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        write = saving.CommittingWriter.write_data

        def write_with_no_room(self: Any, *arguments: Any) -> Any:
            """The limit is of this process, and the disk that is full is the node's."""
            is_local = self._operation.context.folder.name.startswith("node-")
            if is_local and rank == 1:
                resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, hard))
            try:
                return write(self, *arguments)
            finally:
                resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

        saving.CommittingWriter.write_data = write_with_no_room  # type: ignore[method-assign]
        for step in range(2, STEPS):
            dist.all_reduce(torch.ones(1))
            manager.step(step, state)
            manager.wait()
            is_saved = torch.tensor(float(len(list_checkpoints(folder / "storage")) > 1))
            dist.all_reduce(is_saved)
            if is_saved:
                break
            time.sleep(0.002)
    facts["last_step"] = step
    facts["local"] = [one.step for one in list_checkpoints(folder / f"node-{rank}")]
    facts["persistent"] = [one.reason for one in manifests(folder / "storage")]
    facts["leftovers"] = [str(path) for path in folder.glob("*/.*ing-*")]


def dead_node(root: Path) -> dict[str, list[Facts]]:
    """A node dies; the other saves what all ranks have alike."""
    return {"dead node": run_ranks(root / "made", save_without_the_other)}


def save_without_the_other(folder: Path, rank: int, facts: Facts) -> None:
    manager = manager_on(folder, rank, tier={"every_steps": 100_000})
    manager._agreement._answer_s = 0.3
    dist.barrier()
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    manager.request_save("a node died")
    until_s = time.monotonic() + 20.0
    step = 0
    while not manifests(folder / "storage") and time.monotonic() < until_s:
        step += 1
        manager.step(step, {"weights": torch.ones(3)})
        time.sleep(0.005)
    manager.close()
    found = [manifests(folder / name) for name in ("node-0", "storage")]
    facts["saved"] = [[(one.reason, len(one.files)) for one in listed] for listed in found]
    (folder / f"facts-{rank}.json").write_text(json.dumps(facts))
    os._exit(0)  # the process group is broken


def manifests(folder: Path) -> list[Any]:
    return [one.manifest for one in list_checkpoints(folder) if not one.problem]


def wrong_nodes(root: Path) -> dict[str, list[Facts]]:
    """Folders of a node that hold something else."""
    return {
        name: run_ranks(root / name.replace(" ", "-"), work)
        for name, work in {"another run": another_run, "foreign": foreign, "some": on_some}.items()
    }


def another_run(folder: Path, rank: int, facts: Facts) -> None:
    with manager_on(folder, rank, storage=folder / "earlier") as manager:
        manager.save(7, {"weights": torch.ones(3)})
    refused(folder, rank, facts)
    facts["kept"] = [one.step for one in list_checkpoints(folder / f"node-{rank}")]


def foreign(folder: Path, rank: int, facts: Facts) -> None:
    """On the node of rank 1 alone; both ranks learn of it."""
    if rank == 1:
        (folder / "node-1").mkdir()
        (folder / "node-1" / "thesis.tex").write_text("years of work")
    refused(folder, rank, facts)
    facts["kept"] = [path.name for path in (folder / "node-1").iterdir()]


def on_some(folder: Path, rank: int, facts: Facts) -> None:
    try:
        tier = LocalTier(folder / "node", every_steps=1) if rank else None
        Manager(folder / "storage", local=tier, use_process=False, handle_sigterm=False)
    except StragglerError as error:
        facts["error"] = f"{type(error).__name__}: {error}"


def refused(folder: Path, rank: int, facts: Facts) -> None:
    try:
        manager_on(folder, rank)
    except StragglerError as error:
        facts["error"] = f"{type(error).__name__}: {error}"
    dist.barrier()


GROUPS: list[Callable[[Path], dict[str, list[Facts]]]] = [
    node_lost,
    three_nodes,
    full_node,
    dead_node,
    wrong_nodes,
]


def main(root: Path) -> None:
    results = {}
    for group in GROUPS:
        if os.environ.get("ONLY", "") in group.__name__:
            (root / group.__name__).mkdir()
            results.update(group(root / group.__name__))
    print(json.dumps(results))


if __name__ == "__main__":
    assert threading.active_count() == 1
    main(Path(sys.argv[1]))

"""Scenarios of two ranks, which are forked from one process that has torch; prints what each rank
reports, as JSON.

    python -m tests.checkpoint.forked_ranks FOLDER
"""

from __future__ import annotations

import json
import os
import pickle
import signal
import socket
import sys
import threading
import time
import traceback
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from otel_straggler.checkpoint import Manager, PerRank, training_state
from otel_straggler.checkpoint.folder import list_checkpoints
from otel_straggler.checkpoint.store import Exchange
from otel_straggler.errors import StragglerError

from . import forging

Facts = dict[str, Any]
STEPS = 5_000


def run_ranks(
    folder: Path, work: Callable[[Path, int, Facts], None], world: int = 2
) -> list[Facts]:
    """What the ranks put into their dictionary, with their exit code."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    folder.mkdir(exist_ok=True)
    children = [_fork(folder, work, rank, world, port) for rank in range(world)]
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    paths = [folder / f"facts-{rank}.json" for rank in range(world)]
    facts = [json.loads(path.read_text()) if path.exists() else {} for path in paths]
    return [{**each, "exit_code": code} for each, code in zip(facts, codes, strict=True)]


def _fork(folder: Path, work: Any, rank: int, world: int, port: int) -> int:
    child = os.fork()
    if child:
        return child
    try:
        torch.set_num_threads(1)
        store = dist.TCPStore("127.0.0.1", port, world, is_master=rank == 0)
        dist.init_process_group("gloo", store=store, rank=rank, world_size=world)
        facts: Facts = {}
        try:
            work(folder, rank, facts)
        finally:
            (folder / f"facts-{rank}.json").write_text(json.dumps(facts))
        dist.destroy_process_group()
        os._exit(0)
    except BaseException:  # noqa: BLE001  a child must not go on as its parent
        traceback.print_exc()
        os._exit(1)


def manager_in(folder: Path, **options: Any) -> Manager:
    return Manager(folder / "checkpoints", use_process=False, timeout_s=30.0, **options)


def steps_of(folder: Path) -> list[int]:
    listed = list_checkpoints(folder / "checkpoints")
    return [one.step for one in listed if not one.problem]


def loop(manager: Manager, facts: Facts, at: dict[int, Callable[[], object]]) -> None:
    """A loop in lockstep, until the manager says that it should stop."""
    for step in range(1, STEPS):
        dist.all_reduce(torch.ones(1))
        facts["last_step"] = step
        at.get(step, lambda: None)()
        manager.step(step, {"weights": torch.full((10,), float(step))})
        if manager.should_stop:
            return
        time.sleep(0.002)


def sigterm_of_one_rank(folder: Path, rank: int, facts: Facts) -> None:
    manager = manager_in(folder, emergency_s=20.0)
    at = {5: lambda: os.kill(os.getpid(), signal.SIGTERM)} if rank == 1 else {}
    (folder / f"facts-{rank}.json").write_text("{}")
    loop(manager, facts, at)
    manager.close()
    facts["steps"] = steps_of(folder)


def request_by_file(folder: Path, rank: int, facts: Facts) -> None:
    """An agent on the node of rank 1 asks for it."""
    asked = folder / f"request-{rank}"
    manager = manager_in(folder, request_file=asked)
    poll = manager._file.poll

    def ask() -> None:
        asked.write_text("hang of rank 0\n")
        poll()

    for step in range(1, STEPS):
        dist.all_reduce(torch.ones(1))
        if (step, rank) == (5, 1):
            ask()
        manager.step(step, {"weights": torch.full((10,), float(step))})
        is_saved = torch.tensor(float(bool(steps_of(folder))))
        dist.all_reduce(is_saved)
        if is_saved:
            break
        time.sleep(0.002)
    manager.close()
    (one,) = list_checkpoints(folder / "checkpoints")
    facts["reason"] = one.manifest.reason if one.manifest else ""
    facts["is_restored"] = step >= one.step


def interval_by_time(folder: Path, rank: int, facts: Facts) -> None:
    """Each rank has a clock of its own; the saves are of the same steps."""
    manager = manager_in(folder, every_s=0.3, keep=100)
    for step in range(1, STEPS):
        dist.all_reduce(torch.ones(1))
        manager.step(step, {f"own {rank}": torch.full((10,), float(step))})
        enough = torch.tensor(float(len(steps_of(folder)) >= 2))
        dist.all_reduce(enough)
        if enough:
            break
        time.sleep(0.002)
    manager.close()
    state = {f"own {rank}": torch.zeros(10)}
    with manager_in(folder) as manager:
        facts["restored"] = [manager.restore(state, step) == step for step in steps_of(folder)]


def dead_rank(folder: Path, rank: int, facts: Facts) -> None:
    """What all ranks have alike is saved by who lives; what only the dead had cannot be."""
    mesh = init_device_mesh("cpu", (2,))
    sharded = dist.tensor.distribute_tensor(torch.ones(4), mesh, [dist.tensor.Shard(0)])
    manager = manager_in(folder)
    manager._agreement._answer_s = 0.3
    dist.barrier()
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    step = 0
    for name, state in {
        "alike": {"weights": torch.ones(3)},
        "sharded": {"of both": sharded},
    }.items():
        manager.request_save("a rank died")
        until_s = time.monotonic() + 20.0
        was_saved = manager._save
        called: list[int] = []

        def save(
            step: int, *rest: Any, into: list[int] = called, how: Any = was_saved, **options: Any
        ) -> None:
            into.append(step)
            how(step, *rest, **options)

        manager._save = save  # type: ignore[method-assign]
        while not called and time.monotonic() < until_s:
            step += 1
            manager.step(step, state)
            time.sleep(0.005)
        manager._save = was_saved  # type: ignore[method-assign]
        facts[name] = bool(called) and called == steps_of(folder)[:1]
    manager.close()
    (folder / f"facts-{rank}.json").write_text(json.dumps(facts))
    os._exit(0)  # the process group is broken


def full_disk_of_one_rank(folder: Path, rank: int, facts: Facts) -> None:
    """The other is told, and does not wait until it is too late."""
    import resource

    manager = manager_in(folder)
    state = {f"own {rank}": torch.ones(100_000)}
    facts["first"] = manager.save(1, state) is not None
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    if rank == 1:
        resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, hard))
    began_s = time.monotonic()
    facts["second"] = manager.save(2, state) is not None
    facts["was_quick"] = time.monotonic() - began_s < 20.0
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    dist.barrier()
    facts["third"] = manager.save(3, state) is not None
    manager.close()
    facts["steps"] = steps_of(folder)


def two_trainings(folder: Path, rank: int, facts: Facts) -> None:
    """All ranks of the second are refused, not only the one that holds the lock."""
    with manager_in(folder):
        try:
            manager_in(folder, handle_sigterm=False)
        except StragglerError as error:
            facts["error"] = f"{type(error).__name__}: {error}"


def sharded_model(folder: Path, rank: int, facts: Facts) -> None:
    """FSDP2 with AdamW; restored by two ranks, and then by one (``restored_by_one``)."""
    manager = manager_in(folder)
    model, optimizer = trained(steps=2)
    state = training_state(model, optimizer, step=2)
    facts["saved"] = manager.save(2, state) is not None
    facts["before"] = full(model, optimizer)
    manager.close()
    other, other_optimizer = trained(steps=0)
    state = training_state(other, other_optimizer, step=0)
    with manager_in(folder) as manager:
        facts["step"] = manager.restore(state)
    facts["after"] = full(other, other_optimizer)
    facts["scalar"] = state["step"]


def restored_by_one(folder: Path, rank: int, facts: Facts) -> None:
    model, optimizer = trained(steps=0)
    with manager_in(folder) as manager:
        facts["step"] = manager.restore(training_state(model, optimizer, step=0))
    facts["after"] = full(model, optimizer)


def trained(steps: int) -> tuple[Any, Any]:
    torch.manual_seed(steps)
    model = torch.nn.Sequential(torch.nn.Linear(8, 6), torch.nn.Linear(6, 3))
    fully_shard(model, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(steps):
        model(torch.randn(2, 8)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    return model, optimizer


def full(model: Any, optimizer: Any) -> list[Any]:
    values = [each.full_tensor().tolist() for each in model.parameters()]
    for state in optimizer.state_dict()["state"].values():
        values += [
            (v.full_tensor() if hasattr(v, "full_tensor") else v).tolist() for v in state.values()
        ]
    return values


class Position:
    """Of a data loader."""

    def __init__(self, rank: int) -> None:
        self.position = rank

    def state_dict(self) -> Facts:
        return {"position": self.position}

    def load_state_dict(self, state: Facts) -> None:
        self.position = state["position"]


def object_of_one_rank(folder: Path, rank: int, facts: Facts) -> None:
    """Where rank 1 has its own, somebody has put a function."""
    marker, position = folder / "marker", Position(rank)
    state = {"weights": torch.full((10,), 1.0), "of": PerRank(position)}
    with manager_in(folder) as manager:
        path = manager.save(1, state)
        assert path is not None
    dist.barrier()
    if rank == 0:
        evil = forging.torch_saved(forging.touching(marker))
        forging.with_object(path, "of.rank 1.position", evil)
    dist.barrier()
    facts["error"] = error_of_restore(folder, state)
    facts["has_run"] = marker.exists()
    facts["is_unchanged"] = position.position == rank


def forged_message(folder: Path, rank: int, facts: Facts) -> None:
    """Somebody who reaches the store has left a pickle before rank 1 says what it has."""
    marker = folder / "marker"
    state = {"weights": torch.full((10,), 1.0)}
    with manager_in(folder) as manager:
        manager.save(1, state)
        if rank == 0:
            address = manager._members.address.under("restore/1")
            store = address.connect(5.0)
            store.set("offer/1/0", zlib.compress(pickle.dumps(forging.touching(marker))))
            store.set("offer/1", "1")
        dist.barrier()
        if rank == 1:
            Exchange.send = keeping_silent(Exchange.send)
        try:
            manager.restore(state)
        except StragglerError as error:
            facts["error"] = f"{type(error).__name__}: {error}"
    facts["has_run"] = marker.exists()


def keeping_silent(send: Any) -> Any:
    """What the other has written stays there."""

    def silent(self: Exchange, name: str, content: object, to: int | None = None) -> None:
        if name != "offer":
            send(self, name, content, to)

    return silent


def folder_of_others(folder: Path, rank: int, facts: Facts) -> None:
    """Rank 0 alone looks at it, and all end."""
    if rank == 0:
        (folder / "checkpoints").mkdir(mode=0o700)
        (folder / "checkpoints").chmod(0o775)
    dist.barrier()
    try:
        manager_in(folder)
    except StragglerError as error:
        facts["error"] = f"{type(error).__name__}: {error}"


def error_of_restore(folder: Path, state: Facts) -> str:
    with manager_in(folder) as manager:
        try:
            manager.restore(state)
        except StragglerError as error:
            return f"{type(error).__name__}: {error}"
    return ""


SCENARIOS: list[Callable[[Path, int, Facts], None]] = [
    sigterm_of_one_rank,
    request_by_file,
    interval_by_time,
    dead_rank,
    full_disk_of_one_rank,
    two_trainings,
    sharded_model,
    object_of_one_rank,
    forged_message,
    folder_of_others,
]


def main(root: Path) -> None:
    results = {}
    wanted = os.environ.get("ONLY", "")
    for scenario in SCENARIOS:
        if wanted in scenario.__name__:
            results[scenario.__name__] = run_ranks(root / scenario.__name__, scenario)
    if not wanted or wanted == "sharded_model":
        sharded = root / "sharded_model"
        results["restored_by_one"] = run_ranks(sharded, restored_by_one, world=1)
    print(json.dumps(results))


if __name__ == "__main__":
    assert threading.active_count() == 1
    main(Path(sys.argv[1]))

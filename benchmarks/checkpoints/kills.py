"""Kills ranks while they save, again and again on one folder, and accounts for every commit.

Each attempt restores the newest checkpoint and trains on; its ranks are forked from this process,
which has torch. What a rank has written is in a ledger that outlives it: the hash of its state at
every step, and each commit that it was told of.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import signal
import socket
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

RANKS = 2
MAX_STEPS = 4
MATRIX = (
    *(
        (phase, rank)
        for phase in ("stage", "plan", "write", "commit", "any")
        for rank in range(RANKS)
    ),
    ("rename", 0),  # only the coordinator renames
    ("renamed", 0),
)
TIERS_MATRIX = tuple(
    (phase, rank)
    for phase in (
        "stage", "plan", "write", "replicate", "commit", "rename", "renamed", "persist",
        "persisted", "any",
    )
    for rank in range(RANKS)
    if (phase, rank) != ("persisted", 1)  # only the coordinator completes what is in storage
)  # fmt: skip
"""Each rank is a node; every second row the node's folder is lost, too."""
STORAGE, EVERY_STORED = "checkpoints", 2


@dataclass(frozen=True)
class Kill:
    """Which rank dies where: at the end of a phase of its save, or after a while.

    Attributes:
        is_node: its node's folder is deleted.
    """

    phase: str
    rank: int
    save: int
    after_s: float
    is_node: bool = False


def run(kills: int, seed: int, *, tiers: bool = False) -> dict[str, Any]:
    """Cost: half a second a kill.

    Args:
        tiers: save on nodes, with a copy on the other one, and every second step in storage.

    Returns:
        counts: kills by phase; ``lost_commits``: checkpoints that a rank was told of and that were
        not the newest restored, nor replaced by a newer one; ``differing_restores``: ranks whose
        state after a restore was not, bit for bit, that of the step.
    """
    import torch.distributed.checkpoint  # noqa: F401  for the children

    draw = random.Random(seed)
    counts = {
        "kills": 0, "attempts": 0, "restores": 0, "commits": 0, "lost_commits": 0,
        "differing_restores": 0, "lost_nodes": 0,
    }  # fmt: skip
    by_phase: dict[str, int] = {}
    was_killed = False
    matrix = TIERS_MATRIX if tiers else MATRIX
    with tempfile.TemporaryDirectory() as made:
        root = Path(made)
        ledger = Ledger(root / "ledger")
        number = -1
        while number < 0 or counts["kills"] < kills or was_killed:  # the last attempt is whole
            number += 1
            phase, rank = matrix[number % len(matrix)]
            # a node that dies before the first save has made copies again may take the last
            save = draw.randint(2 if tiers else 1, MAX_STEPS)
            is_node = tiers and phase != "any" and (number // 2 + number // len(matrix)) % 2 == 0
            kill = Kill(phase, rank, save, draw.uniform(0.0, 0.25), is_node)
            kill_or_none = kill if counts["kills"] < kills else None
            was_killed = _attempt(root, ledger, kill_or_none, tiers=tiers)
            if was_killed and kill.is_node:
                shutil.rmtree(root / f"node-{rank}")
                counts["lost_nodes"] += 1
            counts["attempts"] += 1
            counts["kills"] += was_killed
            if was_killed:
                by_phase[phase] = by_phase.get(phase, 0) + 1
            for name, count in ledger.account().items():
                counts[name] += count
    return {"seed": seed, **counts, "by_phase": by_phase}


class Ledger:
    """Lines that ranks append; one write each, so that a kill leaves none half."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._read = 0
        self._digests: dict[tuple[int, int], str] = {}
        self._committed = 0

    def add(self, **facts: Any) -> None:
        file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(file, json.dumps(facts).encode() + b"\n")
        os.close(file)

    def account(self) -> dict[str, int]:
        """Of the lines since the last time."""
        counts = dict.fromkeys(("restores", "commits", "lost_commits", "differing_restores"), 0)
        lines = self.path.read_bytes().splitlines() if self.path.exists() else []
        for line in lines[self._read :]:
            facts = json.loads(line)
            key = (facts["step"], facts["rank"])
            if facts["kind"] == "state":
                self._digests[key] = facts["digest"]
            elif facts["kind"] == "commit":
                counts["commits"] += 1
                self._committed = max(self._committed, facts["step"])
            elif facts["step"] < self._committed:
                counts["lost_commits"] += 1
            elif facts["step"] > 0:
                counts["restores"] += 1
                counts["differing_restores"] += self._digests.get(key) != facts["digest"]
        self._read = len(lines)
        return counts


def _attempt(root: Path, ledger: Ledger, kill: Kill | None, *, tiers: bool) -> bool:
    """Start all ranks; once one has died the others are ended, as a launcher does it."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    began_s = time.monotonic()
    ranks = [
        fork(lambda rank=rank: _train(root, ledger, kill, rank, port, tiers=tiers))
        for rank in range(RANKS)
    ]  # type: ignore[misc]
    alive, was_killed = set(ranks), False
    while alive:
        late = (
            kill is not None
            and kill.phase == "any"
            and time.monotonic() - began_s > 0.3 + kill.after_s
        )
        if late and kill is not None and ranks[kill.rank] in alive:
            os.kill(ranks[kill.rank], signal.SIGKILL)
        for child in list(alive):
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                alive.remove(child)
                was_killed |= os.waitstatus_to_exitcode(status) == -signal.SIGKILL
                if os.waitstatus_to_exitcode(status) != 0:
                    time.sleep(kill.after_s if kill is not None else 0.0)
                    for other in alive:
                        os.kill(other, signal.SIGKILL)
        time.sleep(0.005)
    return was_killed


def fork(work: Callable[[], None]) -> int:
    child = os.fork()
    if child:
        return child
    try:
        work()
        os._exit(0)
    except BaseException:  # noqa: BLE001  a child must not go on as its parent
        if os.environ.get("SHOW_ERRORS"):
            traceback.print_exc()
        os._exit(1)


def _train(
    root: Path, ledger: Ledger, kill: Kill | None, rank: int, port: int, *, tiers: bool
) -> None:
    import torch
    import torch.distributed as dist

    from otel_straggler.checkpoint import LocalTier, Manager

    torch.set_num_threads(1)
    if not os.environ.get("SHOW_ERRORS"):
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    store = dist.TCPStore("127.0.0.1", port, RANKS, is_master=rank == 0)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=RANKS)
    state = {
        "shared": torch.zeros(40, 100),
        f"own of {rank}": torch.full((1_000,), float(rank)),
        f"scalars of {rank}": {"position": 0, "generator": torch.Generator().get_state()},
    }
    local = LocalTier(root / f"node-{rank}", every_steps=1) if tiers else None
    every = EVERY_STORED if tiers else 1
    with Manager(
        root / STORAGE, local=local, every_steps=every, use_process=False, timeout_s=20.0
    ) as manager:
        start = manager.restore(state) or 0
        ledger.add(kind="restore", step=start, rank=rank, digest=digest(state))
        if kill is not None and kill.rank == rank:
            _arm(manager, kill, start)
        for step in range(start + 1, start + 1 + MAX_STEPS):
            state["shared"] += 1.0 / step
            state[f"own of {rank}"] *= 1.0 + 1.0 / step
            state[f"scalars of {rank}"]["position"] += step
            dist.all_reduce(torch.ones(1))
            ledger.add(kind="state", step=step, rank=rank, digest=digest(state))
            manager.step(step, state)
            if manager.wait() is not None:
                ledger.add(kind="commit", step=step, rank=rank)
    dist.destroy_process_group()


def digest(state: dict[str, Any]) -> str:
    import torch

    flat = [
        (key, value.numpy().tobytes() if torch.is_tensor(value) else repr(value))
        for name, part in sorted(state.items())
        for key, value in (part.items() if isinstance(part, dict) else [(name, part)])
    ]
    return hashlib.sha256(repr(flat).encode()).hexdigest()[:16]


def _arm(manager: Any, kill: Kill, start: int) -> None:
    """Have this process die in the save that ``kill`` names."""
    from otel_straggler.checkpoint import saving

    at_step = start + kill.save

    def die(step: int) -> None:
        if step == at_step:
            os.kill(os.getpid(), signal.SIGKILL)

    if kill.phase == "stage":
        begin = manager._saver.begin

        def dying_begin(context: Any, state: Any) -> Any:
            result = begin(context, state)
            die(context.step)
            return result

        manager._saver.begin = dying_begin
    elif kill.phase in {"rename", "renamed"}:
        commit = saving.commit

        def dying_commit(path: Path, manifest: Any, keys: Any) -> Path:
            if kill.phase == "rename":
                die(manifest.step)
            result = commit(path, manifest, keys)
            die(manifest.step)
            return result

        saving.commit = dying_commit
    elif kill.phase in {"persist", "persisted"}:
        _die_in_persisting(kill.phase, die, at_step)
    elif kill.phase != "any":
        _die_in_phase(saving.Operation, kill.phase, die)


def _die_in_phase(operation: Any, phase: str, die: Callable[[int], None]) -> None:
    import contextlib

    timed = operation.phase

    @contextlib.contextmanager
    def dying(self: Any, name: str) -> Any:
        with timed(self, name):
            if name == phase:
                die(self.context.step)
            yield

    operation.phase = dying


def _die_in_persisting(phase: str, die: Callable[[int], None], step: int) -> None:
    """While a file is copied to storage, or before what is there is complete. Not every step goes
    there: at the first that does."""
    from otel_straggler.checkpoint import persisting

    copy, commit = persisting._copy, persisting.commit
    due = step + step % EVERY_STORED

    def dying_copy(source: Path, target: Path, entry: Any) -> None:
        copy(source, target, entry)
        if f"step-{due}-" in str(target):
            os.truncate(target, target.stat().st_size // 2)
            die(step)

    def dying_commit(path: Path, manifest: Any, keys: Any) -> Path:
        if manifest.step == due:
            die(step)
        return commit(path, manifest, keys)

    if phase == "persist":
        persisting._copy = dying_copy
    else:
        persisting.commit = dying_commit

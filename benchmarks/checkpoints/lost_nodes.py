"""What a lost node costs a training: with a local tier and copies, and with storage alone.

Two nodes of one rank each, which are forked from this process. Nodes die at steps that a seed
draws: their process is killed and their folder deleted, the other rank is ended, and both start
again. The same steps with the local tier and without.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import socket
import statistics
import tempfile
import time
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks.checkpoints.kills import fork
from otel_straggler.goodput.account import account
from otel_straggler.goodput.checkpoint_formula import checkpoint_goodput
from otel_straggler.goodput.job_events import (
    LOADED,
    SAVED,
    STARTED,
    STEP_FINISHED,
    TERMINATED,
    JobEvent,
    activities_of_events,
)

NODES = 2
_TMPFS = Path("/dev/shm")


@dataclass(frozen=True)
class Plan:
    """A training and its failures.

    Attributes:
        failures: the node that dies, by the step at which it does for the first time.
        local_every, stored_every: steps between saves; ``local_every`` 0: no local tier.
        is_lockstep: wait for each save, so that the steps that are lost do not depend on the disk.
    """

    steps: int
    step_s: float
    failures: dict[int, int]
    local_every: int
    stored_every: int
    size_bytes: int = 2_000_000
    is_lockstep: bool = False

    def is_due(self, step: int) -> bool:
        is_local = bool(self.local_every) and step % self.local_every == 0
        return is_local or step % self.stored_every == 0


def compare(seed: int, steps: int = 500, failures: int = 5) -> dict[str, Any]:
    """Cost: about a minute."""
    draw = random.Random(seed)
    at = {step: draw.randrange(NODES) for step in sorted(draw.sample(range(20, steps), failures))}
    plans = {
        "with_local_tier": Plan(steps, 0.03, at, 20, 200),
        "storage_alone": Plan(steps, 0.03, at, 0, 200),
    }
    return {
        "seed": seed,
        "steps": steps,
        "failures_at_steps": list(at),
        "local_every_steps": plans["with_local_tier"].local_every,
        "stored_every_steps": plans["with_local_tier"].stored_every,
        **{name: run(plan) for name, plan in plans.items()},
    }


def run(plan: Plan) -> dict[str, Any]:
    """Train through all failures.

    Returns:
        ``lost_steps`` and ``phases_s`` by failure: until all ranks have ended, until the manager is
        there, find, verify, read with the part that was fetching, and the steps done again;
        ``goodput`` of the account; ``goodput_by_checkpoints`` by the formula of
        ``resiliency.goodput_measure``; ``differing_restores``.
    """
    import torch.distributed.checkpoint  # noqa: F401  for the children

    left = dict(plan.failures)
    recoveries: list[tuple[int, int, float]] = []
    with tempfile.TemporaryDirectory(dir=_TMPFS if _TMPFS.is_dir() else None) as made:
        root = Path(made)
        while True:
            died_at_step = _attempt(root, plan, left)
            if died_at_step is None:
                break
            ended_s = time.time()
            node = left.pop(died_at_step)
            shutil.rmtree(root / f"node-{node}", ignore_errors=True)
            recoveries.append((died_at_step, node, ended_s))
        facts = [json.loads(line) for line in (root / "facts").read_text().splitlines()]
    return {**_summary(facts, recoveries), "recoveries": _recoveries(facts, recoveries)}


def _summary(facts: list[dict[str, Any]], recoveries: list[Any]) -> dict[str, Any]:
    events = [
        JobEvent(round(f["at_s"] * 1e9), f["event"], *f["rest"]) for f in facts if "event" in f
    ]
    finished = [event for event in events if event.event_type == STEP_FINISHED]
    step_s = statistics.median(
        (after.at_ns - before.at_ns) / 1e9
        for before, after in pairwise(finished)
        if after.step == before.step + 1
    )
    saved = {fact["rest"][0]: fact["at_s"] for fact in facts if fact.get("event") == SAVED}
    of_run = account(activities_of_events(events), reference_step_s=step_s)
    assert of_run is not None
    digests: dict[tuple[int, int], str] = {}
    differing = 0
    for fact in facts:
        if fact.get("kind") == "state":
            digests[fact["step"], fact["rank"]] = fact["digest"]
        elif fact.get("kind") == "restore":
            differing += digests[fact["step"], fact["rank"]] != fact["digest"]
    return {
        "wall_s": round((events[-1].at_ns - events[0].at_ns) / 1e9, 2),
        "step_s": round(step_s, 4),
        "goodput": round(of_run.goodput, 3),
        "goodput_by_checkpoints": round(checkpoint_goodput(events, step_s).goodput, 3),
        "attempts": len(recoveries) + 1,
        "saves": len(saved),
        "differing_restores": differing,
    }


def _recoveries(facts: list[dict[str, Any]], recoveries: list[Any]) -> list[dict[str, Any]]:
    """Of each failure."""
    found = []
    for died_at_step, node, ended_s in recoveries:
        killed_s = next(
            f["at_s"] for f in facts if f.get("kind") == "died at" and f["step"] == died_at_step
        )
        start = next(
            f for f in facts
            if f.get("kind") == "joined" and f["at_s"] > ended_s and f["rank"] == node
        )  # fmt: skip
        later = [f for f in facts if f.get("event") == STEP_FINISHED and f["at_s"] > ended_s]
        again = next(f["at_s"] for f in later if f["rest"][0] >= died_at_step)
        phases = {
            "end": ended_s - killed_s,
            "start": start["at_s"] - ended_s,
            **start["phases_s"],
            "redo": again - start["restored_s"],
        }
        found.append({
            "step": died_at_step,
            "lost_steps": died_at_step - start["step"],
            "read": start["read"],
            "recovery_s": round(again - killed_s, 2),
            "phases_s": {name: round(seconds, 3) for name, seconds in phases.items()},
        })  # fmt: skip
    return found


def _attempt(root: Path, plan: Plan, left: dict[int, int]) -> int | None:
    """The step at which a node died; None if all steps were done."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    children = [
        fork(lambda rank=rank: _train(root, plan, left, rank, port))
        for rank in range(NODES)  # type: ignore[misc]
    ]
    first, status = os.wait()
    is_done = os.waitstatus_to_exitcode(status) == 0
    for child in children:
        if child != first:
            if not is_done:
                os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
    if is_done:
        return None
    lines = (root / "facts").read_text().splitlines()
    died = [fact for fact in map(json.loads, lines) if fact.get("kind") == "died at"]
    if not died or died[-1]["step"] not in left:
        message = "a rank has failed; SHOW_ERRORS=1 shows how"
        raise RuntimeError(message)
    return int(died[-1]["step"])


def _train(root: Path, plan: Plan, left: dict[int, int], rank: int, port: int) -> None:
    import torch
    import torch.distributed as dist

    from benchmarks.checkpoints.kills import digest
    from otel_straggler.checkpoint import LocalTier, Manager

    facts = _Facts(root / "facts", rank)
    facts.event(STARTED)
    torch.set_num_threads(1)
    if not os.environ.get("SHOW_ERRORS"):
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    store = dist.TCPStore("127.0.0.1", port, NODES, is_master=rank == 0)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=NODES)
    state = {f"own of {rank}": torch.rand(plan.size_bytes // 4), "step": 0}
    local = (
        LocalTier(root / f"node-{rank}", every_steps=plan.local_every) if plan.local_every else None
    )
    with Manager(
        root / "storage", local=local, every_steps=plan.stored_every, use_process=False
    ) as manager:
        joined_s = time.time()
        start = manager.restore(state) or 0
        if manager.restored is not None:
            facts.add(kind="restore", step=start, rank=rank, digest=digest(state))
        facts.joined(joined_s, start, manager.restored)
        facts.event(LOADED, start, 0, int((time.time() - joined_s) * 1e9))
        for step in range(start + 1, plan.steps + 1):
            time.sleep(plan.step_s)
            state[f"own of {rank}"][:1000] += 1.0 / step
            state["step"] = step
            dist.all_reduce(torch.ones(1))
            if left.get(step) == rank:
                facts.add(kind="died at", step=step, at_s=time.time())
                os.kill(os.getpid(), signal.SIGKILL)
            facts.event(STEP_FINISHED, step)
            facts.add(kind="state", step=step, rank=rank, digest=digest(state))
            began_s = time.time()
            manager.step(step, state)
            if plan.is_lockstep:
                manager.wait()
            if plan.is_due(step):
                blocked_ns = int((time.time() - began_s) * 1e9)
                facts.event(SAVED, step, 0, blocked_ns)
    facts.event(TERMINATED)
    dist.destroy_process_group()


class _Facts:
    """Lines that ranks append, one write each; events are of rank 0."""

    def __init__(self, path: Path, rank: int) -> None:
        self._path = path
        self._rank = rank

    def add(self, **facts: Any) -> None:
        file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(file, json.dumps(facts).encode() + b"\n")
        os.close(file)

    def event(self, event: str, *rest: int) -> None:
        if self._rank == 0:
            self.add(event=event, at_s=time.time(), rest=rest)

    def joined(self, joined_s: float, step: int, restored: Any) -> None:
        """How the start went; of the rank on the new node it is what counts."""
        phases = {} if restored is None else restored.phases_s
        read = {} if restored is None else restored.read.size_bytes
        self.add(
            kind="joined", at_s=joined_s, restored_s=time.time(), step=step, phases_s=phases,
            read=read, rank=self._rank,
        )  # fmt: skip

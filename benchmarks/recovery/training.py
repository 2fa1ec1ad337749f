"""One rank of a training with checkpoints, which hangs or is killed once, as a file asks for.

    otel-straggler run [...] benchmarks/recovery/training.py FOLDER STEPS

It logs to FOLDER/steps.jsonl when rank 0 has done which step of which attempt. FOLDER/fault.json,
if there is one when the step that it names is over in the first attempt, says who fails and how.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import torch
import torch.distributed as dist

import otel_straggler
from otel_straggler import fault_tolerance

CHECKPOINT_EVERY = 10
STEP_S = 0.1


def main(folder: Path, steps: int) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    client = monitored()
    otel_straggler.configure(heartbeat_s=0.5, flush_s=0.2, strict=True)
    model, first = restored(folder)
    for step in range(first, steps):
        with otel_straggler.step(step):
            with section(client, "forward"):
                time.sleep(STEP_S)
            gradient = torch.full_like(model, step)
            with section(client, "all_reduce"):
                dist.all_reduce(gradient)
            model += gradient / dist.get_world_size()
        if rank == 0:
            log_step(folder, step)
            if step % CHECKPOINT_EVERY == 0:
                save(folder, model, step)
        fail_if_asked(folder, rank, step)
    dist.barrier()
    assert float(model[0]) == sum(range(steps)), "resumed from its checkpoint, nothing twice"
    if rank == 0:
        Path(os.environ["FAULT_TOL_FINISHED_FLAG_FILE"]).touch()
    if client is not None:
        client.shutdown_workload_monitoring()
    otel_straggler.shutdown()
    dist.destroy_process_group()


def monitored() -> fault_tolerance.RankMonitorClient | None:
    if "OTEL_STRAGGLER_AGENT_SOCKET" not in os.environ:
        return None
    client = fault_tolerance.RankMonitorClient()
    client.init_workload_monitoring()
    return client


@contextlib.contextmanager
def section(client: fault_tolerance.RankMonitorClient | None, name: str) -> Iterator[None]:
    """For the collector and the agent. A rank that waits in all_reduce is a victim."""
    with otel_straggler.section(name, kind="wait" if name == "all_reduce" else "compute"):
        if client is not None:
            client.start_section(name)
        yield
        if client is not None:
            client.end_section(name)


def restored(folder: Path) -> tuple[torch.Tensor, int]:
    """Weights, and the first step to do."""
    checkpoint = folder / "checkpoint.json"
    if not checkpoint.exists():
        return torch.zeros(2, dtype=torch.float64), 0
    saved = json.loads(checkpoint.read_text())
    return torch.tensor(saved["model"], dtype=torch.float64), saved["step"] + 1


def save(folder: Path, model: torch.Tensor, step: int) -> None:
    written = folder / "checkpoint.new"
    written.write_text(json.dumps({"step": step, "model": model.tolist()}))
    written.replace(folder / "checkpoint.json")


def log_step(folder: Path, step: int) -> None:
    attempt = int(os.environ.get("OTEL_STRAGGLER_ATTEMPT", "0"))
    with (folder / "steps.jsonl").open("a") as file:
        file.write(json.dumps({"step": step, "attempt": attempt, "at": time.time()}) + "\n")


def fail_if_asked(folder: Path, rank: int, step: int) -> None:
    asked = folder / "fault.json"
    if os.environ.get("OTEL_STRAGGLER_ATTEMPT", "0") != "0" or not asked.exists():
        return
    fault = json.loads(asked.read_text())
    if (fault["rank"], fault["step"]) != (rank, step):
        return
    (folder / "failed.json").write_text(json.dumps({"at": time.time()}))
    if fault["kind"] == "hang":
        wait_for_nobody()
    os.kill(os.getpid(), signal.SIGKILL)


def wait_for_nobody() -> None:
    """As in a dead lock: the diagnostics have to name this function."""
    time.sleep(3_600)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))

"""How long a save stops a training: torch.save, DCP's own, and the manager's; one rank, one disk.

All write the same state with fsync. The manager's first save is given apart: it also makes the
shared memory that it copies to, unless a thread has made that ready while the training went on.
"""

from __future__ import annotations

import statistics
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.checkpoints.step_times import step_of_some_ms

SAVES = 3
TENSOR_BYTES = 50_000_000
STEPS_ALONE = 50


def measure(size_bytes: int) -> dict[str, Any]:
    """Returns seconds; ``step_slowdown`` is the ratio of median step times with and without a
    save running."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    store = dist.TCPStore("127.0.0.1", 0, 1, is_master=True)
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    count = max(1, size_bytes // TENSOR_BYTES)
    state = {f"layer {n}": torch.rand(size_bytes // count // 4) for n in range(count)}
    warnings.filterwarnings("ignore", message="torch.distributed is disabled")
    with tempfile.TemporaryDirectory(prefix="checkpoints-") as folder:
        result = _measure(Path(folder), state)
    dist.destroy_process_group()
    return {"size_bytes": size_bytes, "saves": SAVES, **result}


def _measure(folder: Path, state: dict[str, Any]) -> dict[str, Any]:
    import shutil

    import torch
    from torch.distributed import checkpoint as dcp

    from otel_straggler.checkpoint import Manager

    def torch_save() -> None:
        import os

        with (folder / "state.pt").open("wb") as file:
            torch.save(state, file)
            os.fsync(file.fileno())

    def dcp_save() -> None:
        dcp.save(state, checkpoint_id=folder / "dcp")

    torch_s = _median_s(torch_save)
    (folder / "state.pt").unlink()
    dcp_s = _median_s(dcp_save)
    shutil.rmtree(folder / "dcp")
    step = step_of_some_ms()
    blocking_s, save_s, alone_s, during_s = [], [], [], []
    with Manager(folder / "managed", keep=1) as manager:
        manager._saver._started.result()
        for number in range(SAVES + 1):
            alone_s += [step() for _ in range(STEPS_ALONE)]
            began_s = time.perf_counter()
            manager._save(number, state, "benchmark", (0,), f"save {number}")
            blocking_s.append(time.perf_counter() - began_s)
            while not manager._running.is_done:
                during_s.append(step())
            save_s.append(time.perf_counter() - began_s)
            manager.wait()
    managed_s = statistics.median(blocking_s[1:])
    return {
        "torch_save_s": torch_s,
        "dcp_save_s": dcp_s,
        "managed_blocking_s": managed_s,
        "managed_first_blocking_s": blocking_s[0],
        "managed_first_ready_blocking_s": _first_with_memory_ready_s(folder, state),
        "managed_commit_s": statistics.median(save_s[1:]),
        "of_dcp_save": managed_s / dcp_s,
        "step_s": statistics.median(alone_s),
        "step_slowdown": statistics.median(during_s) / statistics.median(alone_s),
    }


def _first_with_memory_ready_s(folder: Path, state: dict[str, Any]) -> float:
    from otel_straggler.checkpoint import Manager

    with Manager(folder / "ready", every_steps=1_000, keep=1) as manager:
        manager.step(1, state)
        thread = manager._saver._copier._memory._thread
        if thread is not None:
            thread.join()
        began_s = time.perf_counter()
        manager._save(2, state, "benchmark", (0,), "save")
        return time.perf_counter() - began_s


def _median_s(save: Callable[[], None]) -> float:
    durations = []
    for _ in range(SAVES):
        began_s = time.perf_counter()
        save()
        durations.append(time.perf_counter() - began_s)
    return statistics.median(durations)

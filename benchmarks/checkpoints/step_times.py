"""Step times of a training next to a save that is written: one rank, by the cores that the two
have, and by the time over which the save is spread.

Steps alone and next to a save take turns, so that what else the machine does hits both.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

SAVES = 3
STEPS_ALONE_S = 4.0
NICE = (0, 10, 19)
"""Of the process that writes; measured without a spread."""
CORES = {
    "any core": lambda all_cores: (all_cores, all_cores),
    "a core each": lambda all_cores: (all_cores[:1], all_cores[1:]),
    "one core for both": lambda all_cores: (all_cores[:1], all_cores[:1]),
}


def measure(size_bytes: int, spreads_s: list[float], cores: list[str]) -> list[dict[str, Any]]:
    """One row for each; ``mean`` and ``median`` are step times next to a save / alone."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    store = dist.TCPStore("127.0.0.1", 0, 1, is_master=True)
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    state = {f"layer {n}": torch.rand(size_bytes // 40) for n in range(10)}
    with tempfile.TemporaryDirectory(prefix="checkpoints-") as folder:
        rows = _rows(Path(folder), state, spreads_s, cores)
    dist.destroy_process_group()
    return rows


def _rows(
    folder: Path, state: dict[str, Any], spreads_s: list[float], cores: list[str]
) -> list[dict[str, Any]]:
    from torch.distributed.checkpoint import _async_process_executor as executor

    from otel_straggler.checkpoint import Manager

    all_cores = sorted(os.sched_getaffinity(0))
    rows = []
    with Manager(folder / "checkpoints", keep=1) as manager:
        manager._saver._started.result()
        writer = executor._CHECKPOINT_PROCESS._save_process.pid
        for name in cores:
            own, its = CORES[name](all_cores)
            os.sched_setaffinity(0, own)
            _pin(writer, its)
            for spread_s in spreads_s:
                numbers = _measure_one(manager, state, spread_s)
                rows.append({"cores": name, "spread_s": spread_s, **numbers})
        for nice in NICE:  # on the cores of the last row, where it matters most
            _set_nice(writer, nice)
            numbers = _measure_one(manager, state, 0.0)
            rows.append({"cores": name, "nice": nice, **numbers})
        os.sched_setaffinity(0, all_cores)
        _pin(writer, all_cores)
    return rows


def _pin(pid: int, cores: list[int]) -> None:
    for thread in Path(f"/proc/{pid}/task").iterdir():
        os.sched_setaffinity(int(thread.name), cores)


def _set_nice(pid: int, nice: int) -> None:
    """Lower than it was only as root."""
    for thread in Path(f"/proc/{pid}/task").iterdir():
        os.setpriority(os.PRIO_PROCESS, int(thread.name), nice)


def _measure_one(manager: Any, state: dict[str, Any], spread_s: float) -> dict[str, float]:
    step = step_of_some_ms()
    alone_s: list[float] = []
    during_s: list[float] = []
    save_s, blocking_s = [], []
    for number in range(SAVES):
        until_s = time.perf_counter() + STEPS_ALONE_S
        while time.perf_counter() < until_s:
            alone_s.append(step())
        context = manager._members.context(f"step-{time.time_ns()}", number, "benchmark", (0,), 600)
        began_s = time.perf_counter()
        running = manager._saver.begin(replace(context, spread_s=spread_s), state)
        blocking_s.append(time.perf_counter() - began_s)
        while not running.is_done:
            during_s.append(step())
        running.result()
        save_s.append(running.save_s)
    return {
        "mean": statistics.mean(during_s) / statistics.mean(alone_s),
        "median": statistics.median(during_s) / statistics.median(alone_s),
        "step_alone_s": statistics.median(alone_s),
        "blocking_s": statistics.median(blocking_s),
        "save_s": statistics.median(save_s),
    }


def step_of_some_ms() -> Callable[[], float]:
    """A step of some 10 ms on one core."""
    import torch

    left, right = torch.rand(600, 600), torch.rand(600, 600)

    def run() -> float:
        began_s = time.perf_counter()
        for _ in range(2):
            torch.mm(left, right)
        return time.perf_counter() - began_s

    return run

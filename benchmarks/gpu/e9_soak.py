"""E9: 25 million kernels in each way; whether memory stays flat and timestamps sound."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.gpu.arms import arms_of
from benchmarks.gpu.cuda import cuda
from benchmarks.gpu.experiment import Expected, Experiment, Notebook
from benchmarks.gpu.ways import Timed

ARMS = ("m1", "m2", "graphs m1")
RECORDS = 25_000_000
MAX_GROWTH_MIB = 32.0
"""Between the second fifth of the time and its end."""
BATCH, SECTION = 500, 1_000
SHARE_S, ALONGSIDE_S = 160.0, 30.0
"""Of each arm, at most, and what it takes in addition: to begin, and to hand over the rest."""


def measure(notebook: Notebook) -> None:
    """One arm after the other: each wants the whole GPU."""
    wanted = 200_000 if notebook.is_quick else RECORDS
    for at, name in enumerate(ARMS):
        share_s = max(5.0, min(SHARE_S, notebook.left_s() / (len(ARMS) - at) - ALONGSIDE_S))
        with arms_of(__name__, (name,), {}) as arms:
            order = {"records": wanted, "seconds": share_s}
            reported = arms.round(0, share_s + ALONGSIDE_S / 2, {name: order}).get(name)
            notebook.failures(arms.failures)
        if reported is None:
            continue
        notebook.fact(name, reported)
        notebook.figure(f"records {name}", reported["records"])
        for what in ("invalid", "dropped", "lost"):
            notebook.figure(f"{what} {name}", reported[what])
        notebook.figure(f"host growth {name}", growth_mib(reported["host_bytes"]))
        notebook.figure(f"device growth {name}", growth_mib(reported["device_bytes"]))
        notebook.figure(f"rate {name}", reported["records"] / reported["seconds"])
        if reported["records"] >= wanted:
            notebook.figure(f"flaws {name}", flaws(reported))


def growth_mib(samples: Sequence[float]) -> float:
    """From the second fifth on: the first fills buffers and pools.

    >>> growth_mib([0, 2**20, 2**20, 2**20, 2**20, 3 * 2**20])
    2.0
    """
    if len(samples) < 2:
        return 0.0
    settled = np.asarray(samples, dtype=float)[len(samples) // 5 :]
    return round(float(settled[-1] - settled[0]) / 2**20, 2)


def flaws(reported: Mapping[str, Any]) -> int:
    """Records that were not whole, and one for each memory that grows.

    Kernels whose run is not known (lost) are no flaw at this rate, a dozen times that of training:
    the room for those that wait for their mark is bounded.
    """
    grows = sum(
        growth_mib(reported[which]) > MAX_GROWTH_MIB for which in ("host_bytes", "device_bytes")
    )
    return int(reported["invalid"] + reported["dropped"] + grows)


class Arm:
    """Launches as fast as it can, in sections."""

    def __init__(self, name: str, options: Mapping[str, Any]) -> None:
        del options
        self._cuda = cuda()
        self._cuda.begin()
        self._way = Timed(self._cuda, prefers_launches=name.endswith("m2"))
        self._way.start()
        self._probe = self._cuda.probe()
        self._probe.open_launcher(self._cuda.driver)
        self._replay = self._graph() if name.startswith("graphs") else None

    def turn(self, records: int, seconds: float) -> dict[str, Any]:
        """Until so many have come back, or the time is over."""
        way, timer = self._way, self._way.timer
        way.begin_turn()
        began_s = next_s = time.monotonic()
        samples: dict[str, list[float]] = {"host_bytes": [], "device_bytes": [], "events": []}
        while (now_s := time.monotonic()) - began_s < seconds:
            way.begin(1)
            self._work()
            way.end()
            if now_s < next_s:
                continue
            next_s += 1.0
            way.hand_over()
            timer.take_kernels()
            state = timer.state()
            samples["host_bytes"].append(_resident_bytes())
            samples["device_bytes"].append(self._cuda.memory_used())
            samples["events"].append(state["events"])
            if state["events"] >= records:
                break
        self._cuda.synchronize()
        taken_s = time.monotonic() - began_s
        way.end_turn()
        way.stop()
        facts = way.facts()
        return {**facts, "records": facts["events"], "seconds": taken_s, **samples}

    def _work(self) -> None:
        if self._replay is not None:
            self._replay()
            return
        for _ in range(SECTION // BATCH):
            if (code := self._probe.launch(BATCH, 0, None)) < 0:
                raise RuntimeError(f"the driver refused a launch with {-code}")

    def _graph(self) -> Any:
        if self._cuda.is_fake:
            return None
        torch = self._cuda.torch
        x = torch.ones(16, device="cuda")
        x.add_(1)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for _ in range(SECTION):
                x.add_(1)
        return graph.replay

    def finish(self) -> dict[str, Any]:
        return {}


def _resident_bytes() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return float(pages * 4096)


def _expected(name: str, is_requirement: bool) -> tuple[Expected, ...]:
    needed = {"is_requirement": is_requirement}
    return (
        Expected(figure=f"records {name}", minimum=RECORDS),
        Expected(figure=f"rate {name}", unit="1/s", minimum=50_000),
        Expected(figure=f"invalid {name}", maximum=0, **needed),
        Expected(figure=f"dropped {name}", maximum=0, **needed),
        Expected(figure=f"lost {name}", maximum=0),
        Expected(figure=f"host growth {name}", unit="MiB", maximum=MAX_GROWTH_MIB, **needed),
        Expected(figure=f"device growth {name}", unit="MiB", maximum=MAX_GROWTH_MIB, **needed),
    )


make_arm = Arm
EXPERIMENT = Experiment(
    key="E9",
    question="25 million kernels in each mode: constant memory and valid timestamps",
    expected=(
        *_expected("m1", True),
        *_expected("m2", True),
        *_expected("graphs m1", False),
    ),
    limit_s=560,
    measure=measure,
)

"""E1: what a launch costs the CPU, and the GPU between short kernels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchmarks.gpu.arms import arms_of
from benchmarks.gpu.cuda import cuda
from benchmarks.gpu.experiment import Expected, Experiment, Notebook
from benchmarks.gpu.figures import more_than
from benchmarks.gpu.named_ways import way_of

ARMS = ("off", "kernels", "m1", "m2", "m3", "m4")
BATCH = 500
"""Launches before the GPU is waited for: fewer than its queue has room for."""
SPIN_TICKS = 9_000
"""About 5 µs at 1.8 GHz: longer than a launch takes, so that the GPU is what is full."""


def measure(notebook: Notebook) -> None:
    """All arms in turns; differences to ``off`` of the same round."""
    rounds, batches = (2, 5) if notebook.is_quick else (10, 20)
    with arms_of(__name__, ARMS, {}) as arms:
        orders = {name: {"batches": batches} for name in ARMS}
        result = [arms.round(at, 30, orders) for at in notebook.rounds(rounds)]
        facts = arms.round(0, 30, {name: {"finish": True} for name in ARMS})
        notebook.failures(arms.failures)
        notebook.fact("seen", facts)
    notebook.fact("rounds", result)
    for what in ("cpu_ns", "gpu_ns"):
        values = [{name: reported[what] for name, reported in one.items()} for one in result]
        for name in ARMS[1:]:
            notebook.figure(f"{what[:3]} {name}", more_than(values, name, "off"))


class Arm:
    """Launches in batches, one section each."""

    def __init__(self, name: str, options: Mapping[str, Any]) -> None:
        del options
        self._cuda = cuda()
        self._cuda.begin()
        self._way = way_of(self._cuda, name)
        self._probe = self._cuda.probe()
        self._probe.open_launcher(self._cuda.driver)
        self._way.start()

    def turn(self, batches: int) -> dict[str, float]:
        """ns per launch: of the CPU for empty kernels, of the GPU for those that fill it."""
        self._way.begin_turn()
        self._batch(0)
        cpu = sum(self._batch(0)[0] for _ in range(batches))
        gpu = sum(self._batch(SPIN_TICKS)[1] for _ in range(batches))
        self._way.end_turn()
        return {"cpu_ns": cpu / batches / BATCH, "gpu_ns": gpu / batches / BATCH}

    def _batch(self, ticks: int) -> tuple[float, float]:
        """ns of all launches on the CPU, and of all kernels on the GPU."""
        begun, ended = self._cuda.event(), self._cuda.event()
        self._cuda.synchronize()
        self._way.begin(1)
        begun.record()
        cpu_ns = self._probe.launch(BATCH, ticks, None)
        ended.record()
        self._way.end()
        self._cuda.synchronize()
        if cpu_ns < 0:
            raise RuntimeError(f"the driver refused a launch with {-cpu_ns}")
        return float(cpu_ns), begun.elapsed_time(ended) * 1e6

    def finish(self) -> dict[str, Any]:
        """What the way has seen."""
        self._way.stop()
        return self._way.facts()


make_arm = Arm
EXPERIMENT = Experiment(
    key="E1",
    question="Overhead of a launch, on the CPU and between kernels on the GPU",
    expected=(
        Expected(figure="cpu kernels", unit="ns", minimum=300, maximum=1000),
        Expected(figure="cpu m1", unit="ns", minimum=300, maximum=1000),
        Expected(figure="cpu m2", unit="ns", minimum=400, maximum=1400),
        Expected(figure="cpu m3", unit="ns", minimum=600, maximum=1800),
        Expected(figure="cpu m4", unit="ns", minimum=1300, maximum=3000),
        Expected(figure="gpu kernels", unit="ns", minimum=0, maximum=1000),
        Expected(figure="gpu m1", unit="ns", minimum=0, maximum=1000),
        Expected(figure="gpu m2", unit="ns", minimum=0, maximum=1000),
        Expected(figure="gpu m3", unit="ns", minimum=0, maximum=1000),
        Expected(figure="gpu m4", unit="ns", minimum=0, maximum=1000),
    ),
    limit_s=90,
    budget_s=15,
    measure=measure,
)

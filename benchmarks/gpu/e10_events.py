"""E10: what CUDA events cost, and how far they are from the time that kernels ran."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from benchmarks.gpu.arms import arms_of
from benchmarks.gpu.cuda import cuda
from benchmarks.gpu.experiment import Expected, Experiment, Notebook
from benchmarks.gpu.figures import spread
from benchmarks.gpu.native import KEEP, KERNEL

TIMES = 400
LENGTHS = (1, 10, 100)
SPIN_TICKS = 9_000


def measure(notebook: Notebook) -> None:
    """One process without CUPTI for costs, one with it for the truth."""
    rounds = 3 if notebook.is_quick else 9
    costs: dict[str, list[float]] = {}
    with arms_of(__name__, ("costs", "truth"), {}) as arms:
        for at in notebook.rounds(rounds):
            answers = arms.round(at, 20, {"costs": {}, "truth": {}})
            for reported in answers.values():
                for name, value in reported.items():
                    costs.setdefault(name, []).append(value)
            notebook.failures(arms.failures)
            for name, values in costs.items():
                notebook.figure(name, spread(values))


class Arm:
    """Either of the two."""

    def __init__(self, name: str, options: Mapping[str, Any]) -> None:
        del options
        self._is_truth = name == "truth"
        self._cuda = cuda()
        self._cuda.begin()
        self._probe = self._cuda.probe()
        self._probe.open_launcher(self._cuda.driver)
        if self._is_truth:
            self._probe.reading(KEEP)
            self._probe.register()
            self._probe.enable(KERNEL)

    def turn(self) -> dict[str, float]:
        """Figures by name."""
        return self._biases() if self._is_truth else self._costs()

    def _costs(self) -> dict[str, float]:
        events = [self._cuda.event() for _ in range(TIMES)]
        for event in events:
            event.record()  # PyTorch makes the driver's event at the first one
        self._cuda.synchronize()
        began_ns = time.perf_counter_ns()
        for event in events:
            event.record()
        recorded_ns = time.perf_counter_ns() - began_ns
        self._cuda.synchronize()
        began_ns = time.perf_counter_ns()
        for event in events:
            event.query()
        queried_ns = time.perf_counter_ns() - began_ns
        record_ns, query_ns = self._probe.time_events(TIMES, self._cuda.pointer())
        return {
            "record in Python": recorded_ns / TIMES,
            "query in Python": queried_ns / TIMES,
            "record in C": record_ns,
            "query in C": query_ns,
        }

    def _biases(self) -> dict[str, float]:
        return {f"bias of {kernels} kernels": self._bias(kernels) for kernels in LENGTHS}

    def _bias(self, kernels: int) -> float:
        """µs between events beyond the time from the first kernel's begin to the last one's end."""
        begun, ended = self._cuda.event(), self._cuda.event()
        self._probe.launch(20, SPIN_TICKS, None)  # the GPU is busy while all of it is launched
        begun.record()
        self._probe.launch(kernels, SPIN_TICKS, None)
        ended.record()
        self._cuda.synchronize()
        self._probe.flush(0)
        records = self._probe.take()
        timed = np.sort(records[records["kind"] == KERNEL], order="start")[-kernels:]
        ran_ns = int(timed["end"].max()) - int(timed["start"].min())
        return begun.elapsed_time(ended) * 1e3 - ran_ns / 1e3

    def finish(self) -> dict[str, Any]:
        return {}


make_arm = Arm
EXPERIMENT = Experiment(
    key="E10",
    question="Cost of CUDA events, and their error in kernel times",
    expected=(
        Expected(figure="record in Python", unit="ns", minimum=1000, maximum=5000),
        Expected(figure="record in C", unit="ns", minimum=500, maximum=2500),
        Expected(figure="query in Python", unit="ns"),
        Expected(figure="query in C", unit="ns"),
        *(
            Expected(figure=f"bias of {n} kernels", unit="µs", minimum=0, maximum=8)
            for n in LENGTHS
        ),
    ),
    limit_s=45,
    budget_s=10,
    measure=measure,
)

"""E5: what single calls of CUPTI cost."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchmarks.gpu.arms import arms_of
from benchmarks.gpu.cuda import cuda
from benchmarks.gpu.experiment import Expected, Experiment, Notebook
from benchmarks.gpu.figures import spread
from benchmarks.gpu.native import DRIVER, EXTERNAL, KERNEL
from benchmarks.gpu.variants import switch_off_calls

TIMES = {
    "flush": 200,
    "push_pop": 10_000,
    "driver_call": 10_000,
    "clock": 10_000,
    "mark": 10_000,
    "subscribe": 20,
    "enable_disable": 20,
}
"""How often each is called in a turn; last what some versions of CUPTI hang in."""


def measure(notebook: Notebook) -> None:
    """One process, in turns."""
    rounds = 3 if notebook.is_quick else 9
    with arms_of(__name__, ("calls",), {}) as arms:
        for name in TIMES:
            order = {"calls": {"call": name}}
            reported = [arms.round(at, 10, order).get("calls") for at in notebook.rounds(rounds)]
            values = [one["ns"] for one in reported if one is not None]
            if values:
                notebook.figure(name, spread(values))
            notebook.failures(arms.failures)


class Arm:
    """A process in which some kernels run between calls."""

    def __init__(self, name: str, options: Mapping[str, Any]) -> None:
        del name, options
        self._cuda = cuda()
        self._cuda.begin()
        self._probe = self._cuda.probe()
        self._probe.open_launcher(self._cuda.driver)
        self._probe.register()

    def turn(self, call: str) -> dict[str, float]:
        """ns of a call. What needs records on has them on."""
        if call == "mark":
            self._probe.enable(DRIVER)
            switch_off_calls(self._probe)
            self._probe.enable(EXTERNAL)
        if call == "flush":
            self._probe.enable(KERNEL)
        self._probe.launch(200, 0, None)
        taken_ns = self._probe.ns_per_call(call, TIMES[call])
        self._cuda.synchronize()
        if call == "mark":
            self._probe.disable(EXTERNAL)
            self._probe.disable(DRIVER)
        if call == "flush":
            self._probe.disable(KERNEL)
        self._probe.flush(0)
        return {"ns": taken_ns}

    def finish(self) -> dict[str, Any]:
        return {}


make_arm = Arm
EXPERIMENT = Experiment(
    key="E5",
    question="Cost of single CUPTI calls",
    expected=(
        Expected(figure="enable_disable", unit="ns", maximum=1e4),
        Expected(figure="flush", unit="ns", minimum=1e4, maximum=1e5),
        Expected(figure="push_pop", unit="ns", maximum=400),
        Expected(figure="driver_call", unit="ns", maximum=100),
        Expected(figure="mark", unit="ns", maximum=500),
        Expected(figure="subscribe", unit="ns"),
        Expected(figure="clock", unit="ns", maximum=50),
    ),
    limit_s=45,
    budget_s=8,
    measure=measure,
)

"""E5: what single calls of CUPTI cost."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchmarks.gpu.arms import arms_of
from benchmarks.gpu.cuda import cuda
from benchmarks.gpu.experiment import Expected, Experiment, Notebook
from benchmarks.gpu.figures import spread
from benchmarks.gpu.native import EXTERNAL, KERNEL

TIMES = {
    "enable_disable": 20,
    "flush": 200,
    "push_pop": 10_000,
    "driver_call": 10_000,
    "subscribe": 20,
    "clock": 10_000,
    "mark": 10_000,
}
"""How often each is called in a turn; marks last: from then on they are recorded."""


def measure(notebook: Notebook) -> None:
    """One process, in turns."""
    rounds = 3 if notebook.is_quick else 9
    with arms_of(__name__, ("calls",), {}) as arms:
        told = [arms.round(at, 30, {"calls": {}}).get("calls", {}) for at in range(rounds)]
        notebook.failures(arms.failures)
    for name in TIMES:
        values = [one[name] for one in told if name in one]
        if values:
            notebook.figure(name, spread(values))


class Arm:
    """A process in which some kernels run between calls."""

    def __init__(self, name: str, options: Mapping[str, Any]) -> None:
        del name, options
        self._cuda = cuda()
        self._cuda.begin()
        self._probe = self._cuda.probe()
        self._probe.open_launcher(self._cuda.driver)
        self._probe.register()

    def turn(self) -> dict[str, float]:
        """ns per call. Calls that need records on have them on."""
        found = {}
        for name, times in TIMES.items():
            is_mark = name == "mark"
            if is_mark:
                self._probe.enable(EXTERNAL)
                self._probe.driver_call(2, 1)
            if name == "flush":
                self._probe.enable(KERNEL)
            self._probe.launch(200, 0, None)
            found[name] = self._probe.ns_per_call(name, times)
            self._cuda.synchronize()
            if is_mark:
                self._probe.driver_call(2, 0)
                self._probe.disable(EXTERNAL)
            if name == "flush":
                self._probe.disable(KERNEL)
            self._probe.flush(0)
        return found

    def finish(self) -> dict[str, Any]:
        return {}


make_arm = Arm
EXPERIMENT = Experiment(
    key="E5",
    question="what single calls of CUPTI cost",
    expected=(
        Expected(figure="enable_disable", unit="ns", least=1e5, most=1e7),
        Expected(figure="flush", unit="ns", least=1e4, most=1e5),
        Expected(figure="push_pop", unit="ns", most=100),
        Expected(figure="driver_call", unit="ns", most=100),
        Expected(figure="mark", unit="ns", most=500),
        Expected(figure="subscribe", unit="ns"),
        Expected(figure="clock", unit="ns", most=50),
    ),
    limit_s=45,
    measure=measure,
)

"""E6: whether a process that has stopped our timer is as fast as one that never began."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from benchmarks.gpu.arms import arms_of
from benchmarks.gpu.cuda import cuda
from benchmarks.gpu.experiment import Expected, Experiment, Notebook
from benchmarks.gpu.named_ways import way_of
from benchmarks.gpu.residues import NEVER, Phases, Round, run_phases, write_noise
from benchmarks.gpu.ways import CUPTI_WAYS, Off
from benchmarks.gpu.workloads import SMALL, Size, Training, Turns

ARMS = (*NEVER, *CUPTI_WAYS)


def measure(notebook: Notebook) -> None:
    """Rounds before, with and after timing; the arm that never times is in all of them."""
    steps = notebook.steps(20)
    with arms_of(__name__, ARMS, {"size": asdict(SMALL)}) as arms:

        def work(at: int, state: str) -> Round:
            answers = arms.round(at, 30, {name: {"steps": steps, "state": state} for name in ARMS})
            notebook.failures(arms.failures)
            return answers

        def write(phases: Phases) -> None:
            for name in ARMS[1:]:
                notebook.figure(f"residue {name}", phases.residue(name, "wall_ms"))
                notebook.fact(f"on {name}", phases.cost(name, "wall_ms"))

        wanted = (2, 1, 2) if notebook.is_quick else (8, 3, 12)
        phases = run_phases(notebook, wanted, work, write)
    write_noise(notebook, phases.residue("also_never", "wall_ms"))


class Arm:
    """A model in training that starts and stops timing on request."""

    def __init__(self, name: str, options: Mapping[str, Any]) -> None:
        self._cuda = cuda()
        self._cuda.begin()
        self._own = Off(self._cuda) if name in NEVER else way_of(self._cuda, name)
        self._training = Training(self._cuda, Size(**options["size"]), Off(self._cuda))
        self._turns = {
            "off": Turns(self._cuda, self._training.way, self._training.step),
            "on": Turns(self._cuda, self._own, self._training.step),
        }
        self._off, self._state = self._training.way, "off"

    def turn(self, steps: int, state: str) -> dict[str, Any]:
        """As of ``Turns``."""
        if state != self._state:
            self._training.way = self._own if state == "on" else self._off
            self._own.start() if state == "on" else self._own.stop()
            self._state = state
        return self._turns[state].turn(steps)

    def finish(self) -> dict[str, Any]:
        return self._own.facts()


make_arm = Arm
EXPERIMENT = Experiment(
    key="E6",
    question="Whether a step is as fast as before once timing has stopped",
    expected=(
        Expected(figure="residue also_never", unit="%", minimum=-0.2, maximum=0.2),
        Expected(figure="residue m1", unit="%", maximum=0.2, is_requirement=True),
        Expected(figure="residue m2", unit="%", maximum=0.2),
    ),
    limit_s=90,
    budget_s=30,
    measure=measure,
)

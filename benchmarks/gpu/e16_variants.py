"""E16: what each way to attribute kernels costs a launch and a step, and what is left of it.

c: marks by records of one call; g: marks by a callback on that call; l: callbacks at launches.

Steps say what a user sees, and are as noisy as the CPU; launches of empty kernels, in C, say to a
few ns what each of them takes more. Their residue counts for a step by the launches in it.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from benchmarks.gpu import e6_residue, native
from benchmarks.gpu.arms import arms_of
from benchmarks.gpu.e2_order import marks_result
from benchmarks.gpu.experiment import Expected, Experiment, Notebook
from benchmarks.gpu.figures import Figure
from benchmarks.gpu.named_ways import VARIANTS
from benchmarks.gpu.residues import NEVER, Phases, Round, run_phases, write_noise
from benchmarks.gpu.variants import Variant
from benchmarks.gpu.workloads import SMALL

ARMS = (*NEVER, *VARIANTS)
MARKED = ("c", "g")
BATCH, BATCHES = 500, 5
"""Empty launches before the GPU is waited for, and how often."""
MARKS, BETWEEN = 20, 5
"""Marks, and launches between each two of them."""


def measure(notebook: Notebook) -> None:
    """Fresh processes that take turns, ABBA: before, with and after timing; then marks."""
    steps = notebook.steps(20)
    with arms_of(__name__, ARMS, {"size": asdict(SMALL)}) as arms:

        def work(at: int, state: str) -> Round:
            answers = arms.round(at, 30, {name: {"steps": steps, "state": state} for name in ARMS})
            notebook.failures(arms.failures)
            return answers

        def write(phases: Phases) -> None:
            _write(notebook, phases)

        wanted = (2, 1, 2) if notebook.is_quick else (8, 4, 12)
        phases = run_phases(notebook, wanted, work, write)
        marked = arms.round(0, 15, {name: {"steps": 0, "state": "marks"} for name in MARKED})
        notebook.failures(arms.failures)
        notebook.fact("seen", arms.round(0, 15, {name: {"finish": True} for name in VARIANTS}))
    for name, result in marked.items():
        for what in ("marks seen", "kernels between wrong marks"):
            notebook.figure(f"{what} {name}", result[what])
        notebook.fact(f"marks {name}", result)
    write_noise(notebook, phases.residue("also_never", "wall_ms"))


def _write(notebook: Notebook, phases: Phases) -> None:
    never = [one["never"] for one in phases.before if "never" in one]
    launches = _launches_per_step(phases.during)
    if never:
        step_ns = 1e6 * statistics.median(one["wall_ms"] for one in never)
        launch_ns = statistics.median(one["launch_ns"] for one in never)
        notebook.fact("of never", {"step_ms": step_ns / 1e6, "launch_ns": launch_ns})
        notebook.fact("launches per step", launches)
        _write_launches(notebook, phases, launch_ns, 100 * launches / step_ns)
    for name in ARMS[1:]:
        notebook.figure(f"residue {name}", phases.residue(name, "wall_ms"))
    for name in VARIANTS:
        notebook.figure(f"step {name}", phases.cost(name, "wall_ms"))


def _write_launches(
    notebook: Notebook, phases: Phases, launch_ns: float, percent_per_ns: float
) -> None:
    """Of a launch in ns, and of a step in percent.

    Args:
        notebook: gets them.
        phases: with ``launch_ns`` and ``idle_ns`` of arms.
        launch_ns: of an arm that never times.
        percent_per_ns: what a ns of each launch is of a step.
    """
    for name in ARMS[1:]:
        left = phases.residue(name, "launch_ns")
        notebook.figure(f"residue of launches {name}", _scaled(left, launch_ns * percent_per_ns))
    for name in VARIANTS:
        notebook.figure(f"launch {name}", _scaled(phases.cost(name, "launch_ns"), launch_ns))
        idle = phases.cost(name, "idle_ns")
        notebook.figure(f"idle {name}", _scaled(idle, launch_ns * percent_per_ns))


def _scaled(percent: Figure | None, whole: float) -> Figure | None:
    """Percent of something as what it is."""
    if percent is None:
        return None
    value, low, high = (v / 100 * whole for v in (percent["value"], *percent["iqr"]))
    return {**percent, "value": round(value, 4), "iqr": [round(low, 4), round(high, 4)]}


def _launches_per_step(during: Sequence[Round]) -> float:
    seen = [one["kernels_per_step"] for answers in during for one in answers.values()]
    return statistics.median([count for count in seen if count] or [0.0])


class Arm(e6_residue.Arm):
    """A model in training, and launches in C."""

    def __init__(self, name: str, options: Any) -> None:
        super().__init__(name, options)
        self._probe = self._cuda.probe()
        self._probe.open_launcher(self._cuda.driver)

    def turn(self, steps: int, state: str) -> dict[str, Any]:
        """As of ``Turns``, with ns of a launch; ``idle_ns`` with kernel records off."""
        if state == "marks":
            return self._marked()
        kernels = self._probe.counts()["kernels"]
        reported = super().turn(steps, state)
        seen = self._probe.counts()["kernels"] - kernels
        launch_ns = idle_ns = self._launch_ns()
        if state == "on" and isinstance(self._own, Variant):  # CUPTI is left alone by all others
            self._probe.flush(0)
            self._own.switch(is_on=False)
            idle_ns = self._launch_ns()
            self._own.switch(is_on=True)
        launched = {"launch_ns": launch_ns, "idle_ns": idle_ns}
        run = steps + reported["extra_steps"]
        return {**reported, **launched, "kernels_per_step": seen / run}

    def _launch_ns(self) -> float:
        taken = []
        for _ in range(BATCHES):
            self._cuda.synchronize()
            taken.append(self._probe.launch(BATCH, 0, None))
        self._cuda.synchronize()
        if min(taken) < 0:
            raise RuntimeError(f"the driver refused a launch with {-min(taken)}")
        return float(statistics.median(taken)) / BATCH

    def _marked(self) -> dict[str, float]:
        self._own.start()
        self._probe.reading(native.KEEP)
        self._probe.flush(0)
        self._probe.take()
        code = self._probe.order(MARKS, 1, BETWEEN, 1)
        self._cuda.synchronize()
        self._probe.flush(0)
        records = self._probe.take()
        self._own.stop()
        if code:
            raise RuntimeError(f"the driver refused a launch with {code}")
        return marks_result(records, MARKS, BETWEEN)


def _expected(name: str, is_requirement: bool) -> tuple[Expected, ...]:
    needed = {"unit": "%", "maximum": 0.2, "is_requirement": is_requirement}
    return (
        Expected(figure=f"step {name}", unit="%"),
        Expected(figure=f"launch {name}", unit="ns", minimum=300, maximum=4000),
        Expected(figure=f"idle {name}", **needed),
        Expected(figure=f"residue {name}", **needed),
        Expected(figure=f"residue of launches {name}", **needed),
    )


make_arm = Arm
EXPERIMENT = Experiment(
    key="E16",
    question="What three ways to attribute kernels cost, and leave behind",
    expected=(
        Expected(figure="residue also_never", unit="%", minimum=-0.2, maximum=0.2),
        Expected(figure="residue of launches also_never", unit="%", minimum=-0.2, maximum=0.2),
        *(e for name in VARIANTS for e in _expected(name, name == "c")),
        *(
            Expected(figure=f"{what} {name}", minimum=low, maximum=low, is_requirement=name == "c")
            for name in MARKED
            for what, low in (("marks seen", 1), ("kernels between wrong marks", 0))
        ),
    ),
    limit_s=100,
    budget_s=55,
    measure=measure,
)

"""E6: whether a process that has stopped timing is as fast as one that never began."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from benchmarks.gpu.arms import arms_of
from benchmarks.gpu.cuda import cuda
from benchmarks.gpu.experiment import Expected, Experiment, Notebook
from benchmarks.gpu.figures import Figure, percent_over
from benchmarks.gpu.ways import CUPTI_WAYS, Off, way_of
from benchmarks.gpu.workloads import SMALL, Size, Training, Turns

ARMS = ("never", "also_never", *CUPTI_WAYS)
"""Two that never time: what they differ by is what this can see."""

RESOLUTION = 0.2
"""Percent."""


def measure(notebook: Notebook) -> None:
    """Rounds before, with and after timing; the arm that never times is in all of them."""
    before, during, after = (2, 1, 2) if notebook.is_quick else (8, 3, 12)
    steps = notebook.steps(40)
    states = ["off"] * before + ["on"] * during + ["off"] * after
    result: list[dict[str, float]] = []
    with arms_of(__name__, ARMS, {"size": asdict(SMALL)}) as arms:
        for at in notebook.rounds(len(states)):
            orders = {name: {"steps": steps, "state": states[at]} for name in ARMS}
            answers = arms.round(at, 30, orders)
            notebook.failures(arms.failures)
            result.append({name: reported["wall_ms"] for name, reported in answers.items()})
            _write(notebook, result, before, before + during)
    _judge_noise(notebook, residue(result[:before], result[before + during :], "also_never"))


def _write(notebook: Notebook, result: list[dict[str, float]], begun: int, ended: int) -> None:
    notebook.fact("rounds", result)
    for name in ARMS[1:]:
        notebook.figure(f"residue {name}", residue(result[:begun], result[ended:], name))
        notebook.fact(f"on {name}", percent_over(result[begun:ended], name, "never"))


def _judge_noise(notebook: Notebook, seen: Figure | None) -> None:
    if seen is not None and abs(seen["value"]) > RESOLUTION:
        notebook.note(
            f"Two processes that never timed differ by {seen['value']} %: "
            f"{RESOLUTION} % cannot be seen on this machine as busy as it was."
        )


def residue(
    before: Sequence[Mapping[str, float]], after: Sequence[Mapping[str, float]], name: str
) -> Figure | None:
    """Percent that ``name`` is slower afterwards than it was before, relative to ``never``.

    >>> never = {"never": 10.0}
    >>> residue([{**never, "m1": 11.0}], [{**never, "m1": 12.1}], "m1")["value"]
    10.0
    """
    early, late = percent_over(before, name, "never"), percent_over(after, name, "never")
    if early is None or late is None:
        return None

    def relative(value: float) -> float:
        return round(100 * ((1 + value / 100) / (1 + early["value"] / 100) - 1), 3)

    return {**late, "value": relative(late["value"]), "iqr": [relative(v) for v in late["iqr"]]}


class Arm:
    """A model in training that starts and stops timing on request."""

    def __init__(self, name: str, options: Mapping[str, Any]) -> None:
        self._cuda = cuda()
        self._cuda.begin()
        self._own = way_of(self._cuda, name) if name in CUPTI_WAYS else Off(self._cuda)
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
        Expected(figure="residue m2", unit="%", maximum=0.2, is_requirement=True),
    ),
    limit_s=90,
    measure=measure,
)

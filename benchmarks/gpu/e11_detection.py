"""E11: whether a GPU that is 10 % slower shows in its score within 50 steps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from functools import partial
from typing import Any

from benchmarks.gpu.arms import arms_of
from benchmarks.gpu.cuda import cuda
from benchmarks.gpu.experiment import Expected, Experiment, Notebook
from benchmarks.gpu.kernel_medians import Kernels, kernels_of, score_beside
from benchmarks.gpu.neighbour import Neighbour, percent_slower, search
from benchmarks.gpu.ways import Timed
from benchmarks.gpu.workloads import Size, Training

SIZE = Size(8, 1536, 8, 512, is_fused=True)
WINDOW, WINDOWS = 10, 5
"""Steps that are scored together; how many times."""
MOVED, QUIET = 0.95, 0.97
WANTED = (7.0, 30.0)
"""Percent that kernels are to be slower: 10 if the neighbour can be chosen so finely."""


def measure(notebook: Notebook) -> None:
    """In one process: a quiet GPU is the peer, the same GPU with a neighbour the slow rank."""
    with arms_of(__name__, ("m1",), {"size": asdict(SIZE)}) as arms:
        reported = arms.round(0, 45, {"m1": {}}).get("m1")
        notebook.failures(arms.failures)
    if reported is None:
        return
    notebook.fact("found", reported)
    notebook.figure("lowest score while quiet", min(reported["quiet_scores"]))
    notebook.figure("slowdown of kernels", reported["slowdown_percent"])
    notebook.figure("score while slow", reported["slow_scores"][-1])
    moved = [at for at, score in enumerate(reported["slow_scores"]) if score < MOVED]
    if moved:
        notebook.figure("steps until the score has moved", (moved[0] + 1) * WINDOW)
    else:
        notebook.figure("steps until the score has moved", float(10**6))
        notebook.note("The score did not move; 10^6 stands for never.")


class Arm:
    """A model in training, and a kernel that takes multiprocessors from it."""

    def __init__(self, name: str, options: Mapping[str, Any]) -> None:
        del name
        self._cuda = cuda()
        self._cuda.begin()
        self._way = Timed(self._cuda)
        self._training = Training(self._cuda, Size(**options["size"]), self._way)
        self._probe = self._cuda.probe()
        self._probe.open_launcher(self._cuda.driver)
        self._stream = self._cuda.pointer(self._cuda.stream())
        self._way.start()

    def turn(self) -> dict[str, Any]:
        """Scores of windows while quiet and while slowed, and by how much kernels were slower."""
        self._way.begin_turn()
        self._window(20)
        peer = self._window(5 * WINDOW)
        quiet = [score_beside(self._window(), peer) for _ in range(WINDOWS)]
        load, tried = search(
            partial(Neighbour, self._probe, self._stream),
            lambda: percent_slower(self._window(6), peer),
            lambda: self._window(2),
            self._cuda.synchronize,
            WANTED,
        )
        with Neighbour(self._probe, self._stream, load):
            self._window(3)
            slow = [self._window() for _ in range(WINDOWS)]
        self._way.end_turn()
        return {
            "quiet_scores": quiet,
            "slow_scores": [score_beside(one, peer) for one in slow],
            "slowdown_percent": percent_slower(slow[-1], peer),
            "load": asdict(load),
            "tried": tried,
        }

    def _window(self, steps: int = WINDOW) -> Kernels:
        for _ in range(steps):
            self._training.step()
        self._way.hand_over()
        return kernels_of(self._way.kernels(), leave_out="probe_spin")

    def finish(self) -> dict[str, Any]:
        self._way.stop()
        return self._way.facts()


make_arm = Arm
EXPERIMENT = Experiment(
    key="E11",
    question="Whether a GPU that is 10 % slower shows in its score within 50 steps",
    expected=(
        Expected(figure="lowest score while quiet", minimum=QUIET, is_requirement=True),
        Expected(figure="slowdown of kernels", unit="%", minimum=7, maximum=30),
        Expected(figure="score while slow", maximum=MOVED, is_requirement=True),
        Expected(figure="steps until the score has moved", maximum=50, is_requirement=True),
    ),
    limit_s=75,
    budget_s=30,
    measure=measure,
)

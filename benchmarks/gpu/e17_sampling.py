"""E17: what it costs to time kernels in one step of N over CUDA events in every step, and whether
the records of such a step are all there."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import pairwise
from typing import Any

from benchmarks.gpu import native
from benchmarks.gpu.arms import arms_of
from benchmarks.gpu.cuda import cuda
from benchmarks.gpu.experiment import Expected, Experiment, Notebook
from benchmarks.gpu.figures import percent_over, spread
from benchmarks.gpu.named_ways import way_of
from benchmarks.gpu.variants import Sampled
from benchmarks.gpu.workloads import SMALL, WARM, Size, Training

EVERY = (1, 10, 50)
ARMS = ("off", "off_again", "events", *(f"1 in {every}" for every in EVERY))
STEPS = 50
"""Of a turn: one of them is sampled where one in 50 is."""
QUEUED, SPIN_TICKS = 200, 90_000
"""Kernels of 50 µs that the GPU has not begun when records are switched, and their length."""


def measure(notebook: Notebook) -> None:
    """All arms in turns, with the model whose launches hold it up: the worst case."""
    with arms_of(__name__, ARMS, {"size": asdict(SMALL)}) as arms:
        orders = {name: {"steps": STEPS} for name in ARMS}
        rounds: list[dict[str, dict[str, Any]]] = []
        queued = arms.round(0, 15, {"1 in 10": {"steps": 0}}).get("1 in 10", {})
        notebook.failures(arms.failures)
        for what in ("sampled", "other"):
            if what in queued:
                notebook.figure(f"records of queued {what} kernels", queued[what])
        for at in notebook.rounds(2 if notebook.is_quick else 12):
            rounds.append(arms.round(at, 30, orders))
            notebook.failures(arms.failures)
            _write(notebook, rounds)
        notebook.fact("seen", arms.round(0, 15, {name: {"finish": True} for name in ARMS}))


def _write(notebook: Notebook, rounds: Sequence[Mapping[str, Mapping[str, Any]]]) -> None:
    walls = [{name: reported["wall_ms"] for name, reported in one.items()} for one in rounds]
    for name in ARMS[1:]:
        across = percent_over(walls, name, "off")
        if name in ("off_again", "events", "1 in 1"):
            notebook.figure(f"small {name.replace('_', ' ')}", across)
        else:
            notebook.fact(f"{name} over off, across processes", across)
    for every in EVERY[1:]:
        steps = [one[f"1 in {every}"] for one in rounds if f"1 in {every}" in one]
        more = [sampled_percent(one["sampled_ms"], one["other_ms"]) for one in steps]
        if more:
            notebook.figure(f"a sampled step, 1 in {every}", spread(more))
            notebook.figure(f"small 1 in {every}", spread([percent / every for percent in more]))
    kernels = [one["1 in 10"]["kernels"] for one in rounds if "1 in 10" in one]
    whole = [one["1 in 1"]["kernels"] for one in rounds if "1 in 1" in one]
    if kernels and whole:
        seen = 100 * statistics.median(kernels) / (statistics.median(whole) or 1.0)
        notebook.figure("kernels of a sampled step", round(seen, 2))


def sampled_percent(sampled_ms: Sequence[float], other_ms: Sequence[float]) -> float:
    """What a sampled step takes more than the others of its process, by medians.

    >>> sampled_percent([11.0, 11.0], [10.0, 10.0, 99.0])
    10.0
    """
    return round(100 * (statistics.median(sampled_ms) / statistics.median(other_ms) - 1), 4)


class Arm:
    """A model in training, timed in one way, with the length of every step."""

    def __init__(self, name: str, options: Mapping[str, Any]) -> None:
        self._cuda = cuda()
        self._cuda.begin()
        self._way = way_of(self._cuda, name)
        self._training = Training(self._cuda, Size(**options["size"]), self._way)
        self._way.start()

    def turn(self, steps: int) -> dict[str, Any]:
        """``wall_ms`` per step; ms of ``sampled`` and of ``other`` steps on the GPU; ``kernels``
        with a record, per sampled step. No steps: what becomes of kernels in the queue."""
        if not steps:
            return self._queued()
        self._way.begin_turn()
        for _ in range(WARM):
            self._training.step()
        self._cuda.synchronize()
        before = self._kernels()
        ends = [self._cuda.event()]
        ends[0].record()
        sampled = []
        began_s = time.perf_counter()
        for at in range(steps):
            sampled.append(self._step(at))
            ends.append(self._cuda.event())
            ends[-1].record()
        self._cuda.synchronize()
        wall_ms = 1e3 * (time.perf_counter() - began_s) / steps
        self._way.end_turn()
        taken = [a.elapsed_time(b) for a, b in pairwise(ends)]
        return {
            "wall_ms": wall_ms,
            "sampled_ms": [ms for ms, one in zip(taken, sampled, strict=True) if one],
            "other_ms": [ms for ms, one in zip(taken, sampled, strict=True) if not one],
            "kernels": (self._kernels() - before) / max(1, sum(sampled)),
        }

    def _step(self, at: int) -> bool:
        """One; whether it was sampled."""
        if not isinstance(self._way, Sampled):
            self._training.step()
            return False
        self._way.begin_step(at)
        is_sampled = self._way.is_sampled
        self._training.step()
        self._way.end_step()
        return is_sampled

    def _kernels(self) -> int:
        return int(self._way.probe.counts()["kernels"]) if isinstance(self._way, Sampled) else 0

    def _queued(self) -> dict[str, float]:
        """Percent of kernels with a record: of those launched while records were on, and off again
        before the GPU began them; and of those launched while records were off."""
        assert isinstance(self._way, Sampled)
        probe = self._way.probe
        probe.open_launcher(self._cuda.driver)
        counted = []
        for is_on in (True, False):
            probe.flush(0)
            before = self._kernels()
            self._way.switch(is_on=is_on)
            probe.launch(QUEUED, SPIN_TICKS, None)
            self._way.switch(is_on=not is_on)
            self._cuda.synchronize()
            probe.flush(0)
            counted.append(100 * (self._kernels() - before) / QUEUED)
        self._way.switch(is_on=False)
        probe.take()
        return {"sampled": counted[0], "other": counted[1]}

    def finish(self) -> dict[str, Any]:
        """What the way has seen; of a sampled one, also how many of its marks came back."""
        self._way.stop()
        facts = dict(self._way.facts())
        if isinstance(self._way, Sampled):
            kinds = self._way.probe.take()["kind"]
            facts["marks_back"] = int((kinds == native.EXTERNAL).sum())
            facts["marks_made"] = self._way.marks
        return facts


make_arm = Arm
EXPERIMENT = Experiment(
    key="E17",
    question="What kernel records cost in one step of N, over CUDA events in every step",
    expected=(
        Expected(figure="small off again", unit="%", minimum=-1, maximum=1),
        Expected(figure="small events", unit="%", maximum=1),
        Expected(figure="small 1 in 1", unit="%", minimum=5, maximum=40),
        Expected(figure="a sampled step, 1 in 10", unit="%", minimum=5, maximum=40),
        Expected(figure="a sampled step, 1 in 50", unit="%", minimum=5, maximum=40),
        Expected(figure="small 1 in 10", unit="%", maximum=4),
        Expected(figure="small 1 in 50", unit="%", maximum=0.5, is_requirement=True),
        Expected(
            figure="kernels of a sampled step",
            unit="%",
            minimum=99.9,
            maximum=100.1,
            is_requirement=True,
        ),
        Expected(figure="records of queued sampled kernels", unit="%", minimum=100, maximum=100),
        Expected(figure="records of queued other kernels", unit="%", maximum=0),
    ),
    limit_s=90,
    budget_s=40,
    measure=measure,
)

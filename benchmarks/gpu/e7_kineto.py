"""E7: torch.profiler and we, one after the other and at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from benchmarks.gpu.arms import arms_of
from benchmarks.gpu.cuda import cuda
from benchmarks.gpu.experiment import Expected, Experiment, Notebook
from benchmarks.gpu.named_ways import way_of
from benchmarks.gpu.ways import CUPTI_WAYS, Timed

LAUNCHES = 300
CLEAN = ("ours_then_profiler", "profiler_then_ours", "yield")
"""Where nothing may be lost. While both trace at once, libcupti before 13.3 serves one only."""
SCENARIOS = (*CLEAN, "during")
BY_WAY = {way: tuple(f"{s} {way}" for s in SCENARIOS) for way in CUPTI_WAYS}
"""What may hang comes last, and the way that decides comes first."""


def measure(notebook: Notebook) -> None:
    """A process per scenario: work three times, and who saw how much of it."""
    result: dict[str, Any] = {}
    asked: set[str] = set()
    for at in notebook.rounds(len(CUPTI_WAYS)):
        names = (*(("plain",) if at == 0 else ()), *BY_WAY[CUPTI_WAYS[at]])
        with arms_of(__name__, names, {}) as arms:
            for name in names:
                result |= arms.round(0, 20, {name: {}})
                notebook.failures(arms.failures)
                asked.add(name)
                _write(notebook, result, asked)


def _write(notebook: Notebook, result: Mapping[str, Any], asked: set[str]) -> None:
    notebook.fact("found", result)
    for way in CUPTI_WAYS:
        of_way = {s: result[f"{s} {way}"] for s in SCENARIOS if f"{s} {way}" in result}
        if of_way and asked >= {f"{s} {way}" for s in CLEAN}:
            # A scenario that fails has lost everything; its words are below the table.
            losses = [lost(of_way[s]) if s in of_way else LAUNCHES for s in CLEAN]
            notebook.figure(f"lost {way}", sum(losses))
        if "during" in of_way:
            notebook.figure(f"lost at once {way}", lost(of_way["during"]))
        for scenario in ("profiler_then_ours", "yield"):
            ratio = of_way.get(scenario, {}).get("kernel_time_of_events")
            notebook.figure(f"clock after {scenario} {way}", ratio)
    if "plain" in result:
        notebook.figure("profiler alone", result["plain"]["profiler"])


def lost(reported: Mapping[str, Any]) -> int:
    """Kernels that a profiler should have seen and did not, or saw twice."""
    ours = sum(abs(seen - LAUNCHES) for seen in reported["ours"])
    return int(ours + abs(reported["profiler"] - LAUNCHES))


class Arm:
    """One scenario."""

    def __init__(self, name: str, options: Mapping[str, Any]) -> None:
        del options
        self._scenario, _, way = name.partition(" ")
        self._cuda = cuda()
        self._cuda.begin()
        made = way_of(self._cuda, way or "off")
        self._way = made if isinstance(made, Timed) else None
        width = 16 if self._cuda.is_fake else 4096  # 30 µs a kernel: the GPU is never idle
        self._x = self._cuda.torch.ones(width, width, device=self._cuda.device)
        self._ours: list[int] = []
        self._profiler_saw = 0
        self._ratio: float | None = None
        self._work()
        self._cuda.synchronize()

    def turn(self) -> dict[str, Any]:
        """``ours``: kernels that we saw of each work that was ours; ``profiler``: what it saw;
        ``kernel_time_of_events``: our kernel time over the time between events, last time."""
        steps: dict[str, tuple[Callable[[], None], ...]] = {
            "plain": (self._profiled,),
            "ours_then_profiler": (self._start, self._timed, self._stop, self._profiled),
            "profiler_then_ours": (self._profiled, self._start, self._timed, self._stop),
            "during": (self._start, self._timed, self._both, self._timed, self._stop),
            "yield": (
                *(self._start, self._timed, self._stop, self._profiled),
                *(self._start, self._timed, self._stop),
            ),
        }
        for step in steps[self._scenario]:
            step()
        state = self._way.timer.state() if self._way is not None else {}
        return {
            "ours": self._ours,
            "profiler": self._profiler_saw,
            "kernel_time_of_events": self._ratio,
            "state": state,
        }

    def _start(self) -> None:
        assert self._way is not None
        self._way.start()

    def _stop(self) -> None:
        assert self._way is not None
        self._way.stop()

    def _timed(self) -> None:
        assert self._way is not None
        self._way.kernels()
        begun, ended = self._cuda.event(), self._cuda.event()
        self._way.begin(1)
        begun.record()
        self._work()
        ended.record()
        self._way.end()
        kernels = self._way.kernels()
        self._ours.append(sum(k[3] for k in kernels))
        self._ratio = sum(k[4] for k in kernels) / 1e6 / begun.elapsed_time(ended)

    def _profiled(self) -> None:
        self._profiler_saw = self._in_session(self._work)

    def _both(self) -> None:
        self._profiler_saw = self._in_session(self._timed)

    def _in_session(self, work: Callable[[], None]) -> int:
        session = self._cuda.session()
        session.start()
        work()
        self._cuda.synchronize()
        session.stop()
        seen: int = session.kernels()
        return seen

    def _work(self) -> None:
        with self._cuda.launches():
            for _ in range(LAUNCHES):
                self._x.mul_(1)

    def finish(self) -> dict[str, Any]:
        return {}


make_arm = Arm
EXPERIMENT = Experiment(
    key="E7",
    question="Whether torch.profiler gets all its events, and GPU timing works after it",
    expected=(
        Expected(figure="profiler alone", minimum=LAUNCHES, maximum=LAUNCHES),
        Expected(figure="lost m1", maximum=0, is_requirement=True),
        Expected(figure="lost m2", maximum=0),
        Expected(figure="lost at once m1", minimum=1),
        Expected(figure="lost at once m2", minimum=1),
        Expected(figure="clock after profiler_then_ours m1", minimum=0.8, maximum=1.05),
        Expected(figure="clock after profiler_then_ours m2", minimum=0.8, maximum=1.05),
        Expected(figure="clock after yield m1", minimum=0.8, maximum=1.05),
        Expected(figure="clock after yield m2", minimum=0.8, maximum=1.05),
    ),
    limit_s=110,
    budget_s=35,
    measure=measure,
)

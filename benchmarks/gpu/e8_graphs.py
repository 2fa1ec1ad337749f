"""E8: CUDA graphs: which records there are, and what a replay costs more."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from benchmarks.gpu.arms import arms_of
from benchmarks.gpu.cuda import cuda
from benchmarks.gpu.experiment import Expected, Experiment, Notebook
from benchmarks.gpu.figures import percent_over
from benchmarks.gpu.ways import Off, Timed
from benchmarks.gpu.workloads import Turns

KERNELS = 200
ARMS = ("off", "nodes_before", "nodes_after", "graph_before", "graph_after")
"""Kernel records or one record a graph; switched on before or after the capture."""
COMPILE_S = 40.0
"""What torch.compile takes at least, the first time on a machine."""


def measure(notebook: Notebook) -> None:
    """Replays in turns, then a compiled function in a process of its own."""
    rounds = 2 if notebook.is_quick else 10
    with arms_of(__name__, ARMS, {}) as arms:
        orders = {name: {"steps": notebook.steps(100)} for name in ARMS}
        result = [arms.round(at, 30, orders) for at in notebook.rounds(rounds, spare_s=15)]
        facts = arms.round(0, 30, {name: {"finish": True} for name in ARMS})
        notebook.failures(arms.failures)
    notebook.fact("seen", facts)
    walls = [{name: reported["wall_ms"] for name, reported in one.items()} for one in result]
    for name in ARMS[1:]:
        notebook.figure(f"replay {name}", percent_over(walls, name, "off"))
        if name in facts:
            notebook.figure(f"records {name}", facts[name]["records_per_replay"])
    if not notebook.is_quick and notebook.left_s() > COMPILE_S:
        _compiled(notebook)


def _compiled(notebook: Notebook) -> None:
    with arms_of(__name__, ("compiled",), {}, ready_s=60) as arms:
        answer = arms.round(0, 30, {"compiled": {"steps": 20}})
        facts = arms.round(0, 30, {"compiled": {"finish": True}})
        notebook.fact("compiled", [answer, facts, arms.failures])
    if "compiled" in facts:
        notebook.figure("records compiled", facts["compiled"]["records_per_replay"])


def make_arm(name: str, options: Mapping[str, Any]) -> _Replays:
    """A graph that is replayed."""
    del options
    gpu = cuda()
    gpu.begin()
    way: Off = Off(gpu) if name == "off" else Timed(gpu, times_whole_graphs="graph" in name)
    if "after" not in name:
        way.start()
    replay = compiled_replay(gpu) if name == "compiled" else captured_replay(gpu)
    if "after" in name:
        way.start()
    return _Replays(gpu, way, replay)


class _Replays:
    """As ``Turns``; counts the records of a replay at the end."""

    def __init__(self, gpu: Any, way: Off, replay: Callable[[], Any]) -> None:
        self._gpu, self._way, self._replay = gpu, way, replay
        self._turns = Turns(gpu, way, self._step)

    def turn(self, steps: int) -> dict[str, Any]:
        return self._turns.turn(steps)

    def finish(self) -> dict[str, Any]:
        """``records_per_replay`` counts kernels, or graphs."""
        if not isinstance(self._way, Timed):
            return {"records_per_replay": 0}
        self._way.kernels()
        for _ in range(10):
            self._step()
        kernels = self._way.kernels()
        self._way.stop()
        return {"records_per_replay": sum(k[3] for k in kernels) / 10, **self._way.facts()}

    def _step(self) -> None:
        self._way.begin(1)
        self._replay()
        self._way.end()


def captured_replay(gpu: Any) -> Callable[[], Any]:
    """A graph of ``KERNELS`` kernels, captured here; its replay."""
    torch = gpu.torch
    x = torch.ones(256, 256, device=gpu.device)

    def work() -> None:
        with gpu.launches():
            for _ in range(KERNELS):
                x.mul_(1)

    work()
    gpu.synchronize()
    if gpu.is_fake:
        return work
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    replay: Callable[[], Any] = graph.replay
    return replay


def compiled_replay(gpu: Any) -> Callable[[], Any]:
    """``torch.compile`` in the mode that captures graphs by itself."""
    torch = gpu.torch
    x = torch.ones(256, 256, device=gpu.device)
    function = torch.compile(lambda y: torch.relu(y @ y).sum(), mode="reduce-overhead")

    def replay() -> None:
        torch.compiler.cudagraph_mark_step_begin()
        function(x)

    if gpu.is_fake:
        return lambda: x @ x
    for _ in range(4):
        replay()
    gpu.synchronize()
    return replay


EXPERIMENT = Experiment(
    key="E8",
    question="Records of CUDA graphs, and overhead of a replay",
    expected=(
        Expected(figure="records nodes_before", minimum=KERNELS, maximum=KERNELS),
        Expected(figure="records nodes_after", maximum=0),
        Expected(figure="records graph_before", minimum=1, maximum=1),
        Expected(figure="records graph_after", minimum=1, maximum=1),
        Expected(figure="replay nodes_before", unit="%", minimum=2, maximum=10),
        Expected(figure="replay nodes_after", unit="%"),
        Expected(figure="replay graph_before", unit="%", maximum=0.5),
        Expected(figure="replay graph_after", unit="%", maximum=0.5),
        Expected(figure="records compiled", minimum=1),
    ),
    limit_s=120,
    budget_s=20,
    measure=measure,
)

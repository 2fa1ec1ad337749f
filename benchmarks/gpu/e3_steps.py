"""E3: what a training step costs more, of a model that the CPU holds up and of a large one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from importlib.util import find_spec
from typing import Any

from benchmarks.gpu.arms import arms_of
from benchmarks.gpu.cuda import cuda
from benchmarks.gpu.experiment import Expected, Experiment, Notebook
from benchmarks.gpu.figures import percent_over, spread
from benchmarks.gpu.ways import way_of
from benchmarks.gpu.workloads import LARGE, SMALL, Size, Training, Turns, bytes_of_layer

ARMS = ("off", "events", "m1", "m2", "m3", "nvrx", "profiler_cuda", "profiler_cpu_cuda")
SLOW = frozenset({"profiler_cuda", "profiler_cpu_cuda"})
"""Their sessions take seconds to end: they take part in two rounds of each set of processes."""
SPARE_BYTES = 3 << 29


def measure(notebook: Notebook) -> None:
    """Two sets of fresh processes per model, with five rounds each: ten turns per arm."""
    sets, rounds = (1, 2) if notebook.is_quick else (2, 5)
    large = _fitting(LARGE)
    notebook.fact("large", asdict(large))
    if find_spec("nvrx_cupti_module") is None:
        notebook.note("nvrx is emulated: kernel records on and off at each section, and its parser")
    names = list(ARMS)
    models = {
        "large": (large, notebook.steps(20)),  # whose figures are needed first
        "small": (SMALL, notebook.steps(40)),
    }
    result: dict[str, list[dict[str, Any]]] = {label: [] for label in models}
    for number in notebook.rounds(sets):
        for label, (size, steps) in models.items():
            with arms_of(__name__, names, {"size": asdict(size)}) as arms:
                for at in notebook.rounds(rounds):
                    result[label].append(arms.round(at, 20, _orders(at, steps)))
                    _write(notebook, label, result[label])
                notebook.failures(arms.failures)
                seen = arms.round(0, 30, {name: {"finish": True} for name in ARMS})
                notebook.fact(f"{label} seen {number}", seen)
                names = arms.names()  # what has failed once would only cost time again


def _orders(at: int, steps: int) -> dict[str, dict[str, int]]:
    slow_steps = max(1, steps // 4)
    return {
        name: {"steps": slow_steps if name in SLOW else steps}
        for name in ARMS
        if name not in SLOW or at < 2
    }


def _write(notebook: Notebook, label: str, result: list[dict[str, Any]]) -> None:
    walls = [{name: reported["wall_ms"] for name, reported in one.items()} for one in result]
    for name in ARMS[1:]:
        notebook.figure(f"{label} {name}", percent_over(walls, name, "off"))
    for name in ARMS:
        reported = [one[name] for one in result if name in one]
        for what in ("wall_ms", "step_ms", "host_ms"):
            if reported:
                notebook.fact(f"{label} {name} {what}", spread([one[what] for one in reported]))


def _fitting(size: Size) -> Size:
    """With as many layers as all arms together find memory for."""
    gpu = cuda()
    gpu.begin()
    each = int(gpu.memory_free() * 0.85) // len(ARMS) - SPARE_BYTES
    return replace(size, layers=max(2, min(size.layers, each // bytes_of_layer(size))))


def make_arm(name: str, options: Mapping[str, Any]) -> Turns:
    """A model in training."""
    gpu = cuda()
    gpu.begin()
    training = Training(gpu, Size(**options["size"]), way_of(gpu, name))
    training.way.start()
    return Turns(gpu, training.way, training.step)


EXPERIMENT = Experiment(
    key="E3",
    question="Overhead of a training step",
    expected=(
        Expected(figure="large events", unit="%", maximum=0.1),
        Expected(figure="large m1", unit="%", maximum=0.5, is_requirement=True),
        Expected(figure="large m2", unit="%", maximum=0.5, is_requirement=True),
        Expected(figure="large m3", unit="%", maximum=0.5),
        Expected(figure="large nvrx", unit="%", minimum=1, maximum=2),
        Expected(figure="large profiler_cuda", unit="%", minimum=2, maximum=10),
        Expected(figure="large profiler_cpu_cuda", unit="%", minimum=2, maximum=10),
        Expected(figure="small events", unit="%", maximum=1),
        Expected(figure="small m1", unit="%", maximum=1, is_requirement=True),
        Expected(figure="small m2", unit="%", maximum=1, is_requirement=True),
        Expected(figure="small m3", unit="%", minimum=2, maximum=5),
        Expected(figure="small nvrx", unit="%"),
        Expected(figure="small profiler_cuda", unit="%", minimum=20, maximum=100),
        Expected(figure="small profiler_cpu_cuda", unit="%", minimum=20, maximum=100),
    ),
    limit_s=270,
    measure=measure,
)

"""E3: what a training step costs more, of a model that the CPU holds up and of one that the GPU
does."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib.util import find_spec
from typing import Any

from benchmarks.gpu.arms import arms_of
from benchmarks.gpu.cuda import cuda
from benchmarks.gpu.experiment import Expected, Experiment, Notebook
from benchmarks.gpu.figures import percent_over, spread
from benchmarks.gpu.named_ways import way_of
from benchmarks.gpu.workloads import LARGE, SMALL, Size, Training, Turns, fitting, flops_of_step

ARMS = ("off", "off_again", "events", "m1", "m2", "nvrx")
OTHERS = ("off", "m3", "profiler_cuda", "profiler_cpu_cuda")
"""Where time is left: these decide nothing, and a profiler's session takes seconds to end."""
OTHERS_S = 25.0
"""What they take at least, for both models."""
FIRST_SHARE = 0.6
"""Of the time, for the large model."""
BOUND_BY_GPU, BOUND_BY_LAUNCHES = 60.0, 80.0
"""Percent of a step that launching it takes: below the one, the GPU is what a step waits for; above
the other, the CPU is."""


def measure(notebook: Notebook) -> None:
    """A set of fresh processes per model, in turns; then the ways that decide nothing."""
    gpu = cuda()
    gpu.begin()
    large = fitting(gpu, LARGE, len(ARMS))
    notebook.fact("large", asdict(large))
    if find_spec("nvrx_cupti_module") is None:
        notebook.note("nvrx is emulated: kernel records on and off at each section, and its parser")
    models = {
        "large": (large, notebook.steps(10)),  # whose figures are needed first
        "small": (SMALL, notebook.steps(40)),
    }
    rounds = 2 if notebook.is_quick else 10
    for label, (size, steps) in models.items():
        share = FIRST_SHARE if label == "large" else 1.0
        result = _turns(notebook, label, size, ARMS, steps, rounds, share * notebook.left_s() - 6)
        _write_bound(notebook, label, size, result)
    if notebook.is_quick or notebook.left_s() > OTHERS_S:
        for label, (size, steps) in models.items():
            within_s = notebook.left_s() / 2
            _turns(notebook, label, size, OTHERS, max(2, steps // 4), 2, within_s)


def _turns(
    notebook: Notebook,
    label: str,
    size: Size,
    names: Sequence[str],
    steps: int,
    rounds: int,
    within_s: float,
) -> list[dict[str, Any]]:
    result: list[dict[str, Any]] = []
    with arms_of(__name__, names, {"size": asdict(size)}) as arms:
        for at in notebook.rounds(rounds, within_s=within_s):
            result.append(arms.round(at, 20, {name: {"steps": steps} for name in names}))
            _write(notebook, label, names, result)
        notebook.failures(arms.failures)
        seen = arms.round(0, 20, {name: {"finish": True} for name in names})
        notebook.fact(f"{label} seen by {', '.join(names[1:])}", seen)
    return result


def _write(
    notebook: Notebook, label: str, names: Sequence[str], result: list[dict[str, Any]]
) -> None:
    walls = [{name: reported["wall_ms"] for name, reported in one.items()} for one in result]
    for name in names[1:]:
        figure = f"{label} {name.replace('_again', ' again')}"
        notebook.figure(figure, percent_over(walls, name, "off"))
    for name in names:
        reported = [one[name] for one in result if name in one]
        for what in ("wall_ms", "step_ms", "host_ms", "launch_ms"):
            if reported:
                notebook.fact(f"{label} {name} {what}", spread([one[what] for one in reported]))


def _write_bound(
    notebook: Notebook, label: str, size: Size, result: Sequence[Mapping[str, Any]]
) -> None:
    """What a step of this model waits for, as measured."""
    offs = [one["off"] for one in result if "off" in one]
    if not offs:
        return
    step_ms = statistics.median(one["wall_ms"] for one in offs)
    launch_ms = statistics.median(one["launch_ms"] for one in offs)
    share = 100 * launch_ms / step_ms
    notebook.figure(f"{label} launching", round(share, 1))
    teraflops = flops_of_step(size) / 1e12
    notebook.note(
        f"The {label} model is bound by {bound_by(share)}: a step of {step_ms:.3g} ms, of which "
        f"launching takes {launch_ms:.3g} ms; {teraflops:.3g} TFLOP a step, "
        f"{teraflops / step_ms * 1e3:.3g} TFLOP/s."
    )


def bound_by(launching_percent: float) -> str:
    """What holds a step up.

    >>> bound_by(15.0), bound_by(99.0), bound_by(70.0)
    ('the GPU', 'launches', 'both, the GPU and launches')
    """
    if launching_percent <= BOUND_BY_GPU:
        return "the GPU"
    return "launches" if launching_percent >= BOUND_BY_LAUNCHES else "both, the GPU and launches"


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
        Expected(figure="large launching", unit="%", maximum=BOUND_BY_GPU, is_requirement=True),
        Expected(figure="large off again", unit="%", minimum=-0.5, maximum=0.5),
        Expected(figure="large events", unit="%", maximum=0.5, is_requirement=True),
        Expected(figure="large m1", unit="%", maximum=0.5, is_requirement=True),
        Expected(figure="large m2", unit="%", maximum=0.5),
        Expected(figure="large nvrx", unit="%", minimum=1, maximum=10),
        Expected(figure="large m3", unit="%"),
        Expected(figure="large profiler_cuda", unit="%", minimum=2, maximum=50),
        Expected(figure="large profiler_cpu_cuda", unit="%", minimum=2, maximum=80),
        Expected(figure="small launching", unit="%", minimum=BOUND_BY_LAUNCHES),
        Expected(figure="small off again", unit="%", minimum=-1, maximum=1),
        Expected(figure="small events", unit="%", maximum=1),
        Expected(figure="small m1", unit="%", minimum=5, maximum=40),
        Expected(figure="small m2", unit="%", minimum=5, maximum=60),
        Expected(figure="small nvrx", unit="%"),
        Expected(figure="small m3", unit="%"),
        Expected(figure="small profiler_cuda", unit="%", minimum=20, maximum=100),
        Expected(figure="small profiler_cpu_cuda", unit="%", minimum=20, maximum=150),
    ),
    limit_s=270,
    budget_s=75,
    measure=measure,
)

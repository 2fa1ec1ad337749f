"""E14: the package as a user has it, on a GPU that is never waited for."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import asdict
from importlib.util import find_spec
from typing import Any

from benchmarks.gpu.arms import arms_of
from benchmarks.gpu.cuda import cuda
from benchmarks.gpu.experiment import Expected, Experiment, Notebook
from benchmarks.gpu.presence import FAKE
from benchmarks.gpu.ways import Off
from benchmarks.gpu.workloads import SMALL, Size, Training

TIERS = ("events", "cupti")
"""The one that decides comes first."""
NAMES = {1: "forward", 2: "backward", 3: "optimizer"}
REACHED_S = 15.0
"""In which a tier that was asked for is there: it is looked at once a second."""
PROFILED_STEPS = 3


def measure(notebook: Notebook) -> None:
    """Each tier in a process: training, a session of torch.profiler, and training again."""
    if find_spec("opentelemetry") is None:
        notebook.note("The packages of OpenTelemetry that this package needs are missing here.")
        return
    seconds = notebook.steps(20) / 10
    tiers = TIERS[1:] if os.environ.get(FAKE) else TIERS  # the fake has no events
    with arms_of(__name__, tiers, {"size": asdict(SMALL)}) as arms:
        for tier in tiers:
            order = {"tier": tier, "seconds": seconds}
            reported = arms.round(0, 2 * (seconds + REACHED_S), {tier: order}).get(tier)
            notebook.failures(arms.failures)
            notebook.fact(tier, reported)
            if reported is not None:
                _write(notebook, tier, reported)


def _write(notebook: Notebook, tier: str, reported: Mapping[str, Any]) -> None:
    first, second = reported["before"], reported["after"]
    notebook.figure(f"{tier} taken", int(first["tier"] == tier))
    notebook.figure(f"{tier} taken again", int(second["tier"] == tier))
    notebook.figure(f"{tier} spans with GPU times", reported["spans_with_gpu_times"])


class Arm:
    """A program that trains, instrumented as the documentation says."""

    def __init__(self, name: str, options: Mapping[str, Any]) -> None:
        del name
        self._cuda = cuda()
        self._cuda.begin()
        if self._cuda.is_fake:
            pretend(self._cuda)
        self._training = Training(self._cuda, Size(**options["size"]), ProductSections(self._cuda))
        self._steps = 0

    def turn(self, tier: str, seconds: float) -> dict[str, Any]:
        """``before`` and ``after`` the profiler: what ``gpu_timing()`` said; what was sent."""
        from otel_straggler import configure, shutdown
        from otel_straggler.testing import TRACES_PATH, CapturedRequests

        with CapturedRequests() as sink:
            # Without the governor: it may rightly leave a tier that works.
            configure(
                endpoint=sink.url, run_id="gpu-check", rank=0, gpu_timing=tier, gpu_overhead=0
            )
            try:
                before = self._train(tier, seconds)
                seen = self._profiled()
                after = self._train(tier, seconds)
            finally:
                shutdown()
            bodies = [request.body for request in sink.requests if request.path == TRACES_PATH]
        return {
            "before": before,
            "after": after,
            "profiler_saw": seen,
            "steps": self._steps,
            "bytes_sent": sum(map(len, bodies)),
            "spans_with_gpu_times": sum(body.count(b"straggler.gpu.busy_time") for body in bodies),
        }

    def _train(self, tier: str, seconds: float) -> dict[str, Any]:
        """Until the tier is there, and so long."""
        from otel_straggler import gpu_timing

        until_s = time.monotonic() + REACHED_S
        while gpu_timing().tier != tier and time.monotonic() < until_s:
            self._step()
        until_s = time.monotonic() + seconds
        while time.monotonic() < until_s:
            self._step()
        return asdict(gpu_timing())

    def _profiled(self) -> int:
        session = self._cuda.session()
        session.start()
        for _ in range(PROFILED_STEPS):
            self._step()
        self._cuda.synchronize()
        session.stop()
        seen: int = session.kernels()
        return seen

    def _step(self) -> None:
        from otel_straggler import step

        step(self._steps)
        self._steps += 1
        self._training.step()

    def finish(self) -> dict[str, Any]:
        return {}


class ProductSections(Off):
    """Sections of our package."""

    def __init__(self, gpu: Any) -> None:
        super().__init__(gpu)
        self._open: list[Any] = []

    def begin(self, section: int) -> None:
        from otel_straggler import section as named

        self._open.append(named(NAMES[section]))
        self._open[-1].__enter__()

    def end(self) -> None:
        self._open.pop().__exit__(None, None, None)


def pretend(gpu: Any) -> None:
    """The fake is in use as a GPU is."""
    from otel_straggler.client.gpu.surroundings import Surroundings

    os.environ["OTEL_STRAGGLER_CUPTI"] = gpu.driver
    text = {"why_not_yet": None, "driver_path": gpu.driver, "device": 0, "synchronize": None}
    for name, answer in text.items():
        setattr(Surroundings, name, lambda *_, answer=answer: answer)


def _expected(tier: str) -> tuple[Expected, ...]:
    return (
        Expected(figure=f"{tier} taken", minimum=1, is_requirement=True),
        Expected(figure=f"{tier} taken again", minimum=1, is_requirement=True),
        Expected(figure=f"{tier} spans with GPU times", minimum=1, is_requirement=True),
    )


make_arm = Arm
EXPERIMENT = Experiment(
    key="E14",
    question="Whether the package, as installed, times a GPU, also after torch.profiler",
    expected=tuple(e for tier in TIERS for e in _expected(tier)),
    limit_s=90,
    budget_s=28,
    measure=measure,
)

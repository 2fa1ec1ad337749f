"""E20: replays of CUDA graphs and compiled functions in sections of our package, as installed: each
has its GPU time, or is counted as one that lacks it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from importlib.util import find_spec
from typing import Any

from benchmarks.gpu.arms import arms_of
from benchmarks.gpu.cuda import cuda
from benchmarks.gpu.e8_graphs import KERNELS, captured_replay, compiled_replay
from benchmarks.gpu.e14_product import REACHED_S, pretend
from benchmarks.gpu.experiment import Expected, Experiment, Notebook
from benchmarks.gpu.presence import FAKE

ARMS = ("graph events", "graph cupti", "traced graph cupti", "compiled cupti")
"""What is replayed, and the tier. A traced graph is captured while kernels are recorded."""
REPLAYS = 200
PAUSE_S = 0.004
"""After each: spans stay few, and none is folded."""
COMPILE_S = 30.0
"""What torch.compile may take the first time on a machine, with an arm's start."""
SECTION = "replay"


def measure(notebook: Notebook) -> None:
    """Each arm in a process of its own, one after the other; compiled functions while there is
    time."""
    if find_spec("opentelemetry") is None:
        notebook.note("The packages of OpenTelemetry that this package needs are missing here.")
        return
    # The fake has no events.
    arms_here = [name for name in ARMS if "cupti" in name or not os.environ.get(FAKE)]
    for name in arms_here:
        if name.startswith("compiled") and notebook.left_s() < COMPILE_S:
            notebook.note(f"No time was left for {name}.")
            continue
        with arms_of(__name__, (name,), {}) as arms:
            reported = arms.round(0, REACHED_S + COMPILE_S, {name: {}}).get(name)
            notebook.failures(arms.failures)
        notebook.fact(name, reported)
        if reported is not None:
            _write(notebook, name, reported)


def _write(notebook: Notebook, name: str, reported: Mapping[str, Any]) -> None:
    replays, timed, missing = (reported[key] for key in ("replays", "timed", "missing"))
    notebook.figure(f"timed {name}", round(100 * timed / replays, 2))
    notebook.figure(f"neither timed nor missing {name}", max(0, replays - timed - missing))
    if name.endswith("cupti"):
        notebook.figure(f"with kernels {name}", round(100 * reported["with_kernels"] / replays, 2))


class Arm:
    """A program that replays in sections."""

    def __init__(self, name: str, options: Mapping[str, Any]) -> None:
        del options
        self._what, _, self._tier = name.rpartition(" ")
        self._cuda = cuda()
        self._cuda.begin()
        if self._cuda.is_fake:
            pretend(self._cuda)
        self._is_traced = self._what.startswith("traced")
        self._replay = None if self._is_traced else self._made()

    def _made(self) -> Callable[[], Any]:
        if self._what == "compiled":
            return compiled_replay(self._cuda)
        return captured_replay(self._cuda)

    def turn(self) -> dict[str, Any]:
        """``replays`` in sections, of which so many were ``timed``, had ``with_kernels``, or were
        counted as ``missing``; what ``gpu_timing()`` said."""
        from otel_straggler import configure, gpu_timing, section, shutdown, step
        from otel_straggler.semconv import GPU_BUSY_TIME, GPU_KERNEL_COUNT
        from otel_straggler.testing import CapturedRequests

        with CapturedRequests() as sink:
            configure(
                endpoint=sink.url,
                run_id="gpu-check",
                rank=0,
                gpu_timing=self._tier,
                gpu_overhead=0,
                span_budget=10**6,
            )
            try:
                self._wait_for_tier()
                replay = self._replay or self._made()
                before = gpu_timing().counts.get("missing_runs", 0)
                for number in range(REPLAYS):
                    step(number)
                    with section(SECTION):
                        replay()
                    time.sleep(PAUSE_S)
                self._cuda.synchronize()
                time.sleep(1.0)
                state = asdict(gpu_timing())
            finally:
                shutdown()
            spans = [span.attributes for span in sink.spans() if span.name == SECTION]
        return {
            "replays": REPLAYS,
            "spans": len(spans),
            "timed": sum(GPU_BUSY_TIME in span for span in spans),
            "with_kernels": sum(span.get(GPU_KERNEL_COUNT, 0) > 0 for span in spans),
            "missing": state["counts"].get("missing_runs", 0) - before,
            "state": state,
        }

    def _wait_for_tier(self) -> None:
        from otel_straggler import gpu_timing

        x = self._cuda.torch.ones(16, device=self._cuda.device)
        until_s = time.monotonic() + REACHED_S
        while gpu_timing().tier != self._tier and time.monotonic() < until_s:
            with self._cuda.launches():
                x.add_(1)
            time.sleep(0.02)

    def finish(self) -> dict[str, Any]:
        return {}


def _expected(name: str) -> tuple[Expected, ...]:
    result = (
        Expected(figure=f"timed {name}", unit="%", minimum=99, is_requirement=True),
        Expected(figure=f"neither timed nor missing {name}", maximum=0, is_requirement=True),
    )
    if name.endswith("cupti"):
        return (*result, Expected(figure=f"with kernels {name}", unit="%"))
    return result


make_arm = Arm
EXPERIMENT = Experiment(
    key="E20",
    question=f"Whether replays of graphs ({KERNELS} kernels) and compiled functions have GPU times",
    expected=tuple(e for name in ARMS for e in _expected(name)),
    limit_s=120,
    budget_s=55,
    measure=measure,
)

"""Sections of the public face, told to the timer of the GPU, on a fake libcupti."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from otel_straggler import phase, section, step
from otel_straggler.client.recording import RECORDER
from otel_straggler.native import NATIVE

from .fake_cupti import FakeGpu, build
from .test_kernel_timer import RECORD, TIMED

pytestmark = pytest.mark.skipif(
    NATIVE is None,
    reason="the extension was not built: it would show that sections get their kernels' time",
)


@pytest.fixture(scope="module")
def gpu(tmp_path_factory: pytest.TempPathFactory) -> FakeGpu:
    return FakeGpu(build(tmp_path_factory.mktemp("cupti")))


@pytest.fixture(params=["marks", "launches"])
def timer(gpu: FakeGpu, request: pytest.FixtureRequest) -> Iterator[Any]:
    """Kernels are timed, and everything is recorded."""
    assert NATIVE is not None
    timer = NATIVE.KernelTimer(gpu.path, "", gpu.path, request.param == "launches", False, False)
    NATIVE.set_gpu_timer(timer)
    assert timer.start() == ""
    RECORDER.enable()
    yield timer
    RECORDER.disable()
    RECORDER.drain()
    timer.stop(time.monotonic_ns())
    NATIVE.set_gpu_timer(None)


def runs_of(timer: Any) -> dict[str, Any]:
    """What was timed of each section, by name; a section that ran twice has its last run."""
    RECORDER.end_step()
    timer.flush()
    timer.flush()
    timer.add(RECORDER.drain().block)
    names = RECORDER.sections
    return {
        names[int(run["section"])][0]: run for run in np.frombuffer(timer.take_all(True), RECORD)
    }


def kernel_time_ns(timer: Any) -> dict[str, int]:
    runs = runs_of(timer)
    assert all(run["state"] == TIMED for run in runs.values())
    return {name: int(run["kernel_time_ns"]) for name, run in runs.items()}


def test_sections_and_the_step_around_them_have_their_kernels(timer: Any, gpu: FakeGpu) -> None:
    """As a training loop is written: nested sections, a phase, what lies between sections."""
    step(1)
    gpu.launch("zero_grad", 1)
    with section("forward"):
        gpu.launch("gemm", 10)
        with phase("train"), section("attention"):
            gpu.launch("softmax", 100)
        gpu.launch("gemm", 1_000)
    with section("backward"):
        thread = threading.Thread(target=gpu.launch, args=("gemm_grad", 10_000))
        thread.start()  # as autograd does it
        thread.join()
    assert kernel_time_ns(timer) == {
        "attention": 100,
        "train": 100,
        "forward": 1_110,
        "backward": 10_000,
        "step": 11_111,
    }


def test_a_step_inside_a_section_has_its_own_kernels(timer: Any, gpu: FakeGpu) -> None:
    """``with section("fit"):`` around the whole loop takes nothing from the steps."""
    with section("fit"):
        gpu.launch("load", 1)
        step(1)
        gpu.launch("zero_grad", 10)
        with section("forward"):
            gpu.launch("gemm", 100)
        gpu.launch("update", 1_000)
        RECORDER.end_step()
        gpu.launch("save", 10_000)
    assert kernel_time_ns(timer) == {"forward": 100, "step": 1_110, "fit": 10_001}


def test_whoever_counts_steps_speaks_for_the_process(timer: Any, gpu: FakeGpu) -> None:
    """A trainer's thread: what it had before its first step is forgotten with that step."""

    def train() -> None:
        with section("setup"):
            step(1)
            gpu.launch("zero_grad", 1)
            with section("forward"):
                gpu.launch("gemm", 10)
        gpu.launch("update", 100)
        RECORDER.end_step()

    thread = threading.Thread(target=train)
    thread.start()
    thread.join()
    runs = runs_of(timer)
    assert {name: runs[name]["kernel_time_ns"] for name in ("forward", "step")} == {
        "forward": 10,
        "step": 111,
    }


def test_more_open_sections_than_are_told_to_others_are_timed(timer: Any, gpu: FakeGpu) -> None:
    """Recursion: each level has the kernels of all below."""
    sections = [section(f"level {n}") for n in range(40)]

    def descend(depth: int) -> None:
        with sections[depth]:
            gpu.launch("gemm", 1)
            if depth + 1 < len(sections):
                descend(depth + 1)
            gpu.launch("gemm", 100)

    step(1)
    descend(0)
    taken = kernel_time_ns(timer)
    assert [taken[f"level {n}"] for n in range(40)] == list(range(4_040, 0, -101))


def test_sections_may_end_in_another_order(timer: Any, gpu: FakeGpu) -> None:
    """As generators and callbacks do it; the innermost open one has the kernels."""
    step(1)
    first, second = section("first"), section("second")
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    gpu.launch("gemm", 10)
    second.__exit__(None, None, None)
    assert kernel_time_ns(timer) == {"first": 0, "second": 10, "step": 10}


def test_timing_may_begin_and_end_at_any_moment(timer: Any, gpu: FakeGpu) -> None:
    """By another thread, while sections run: no section notices."""
    assert NATIVE is not None
    is_running = True

    def change() -> None:
        while is_running:
            NATIVE.set_gpu_timer(None)
            NATIVE.set_gpu_timer(timer)

    thread = threading.Thread(target=change)
    thread.start()
    forward = section("forward")
    for n in range(20_000):
        step(n)
        with forward:
            pass
        if n % 5_000 == 0:
            RECORDER.drain()
    is_running = False
    thread.join()
    assert RECORDER.dropped == 0


@pytest.mark.parametrize("wrong", [1, "cupti", object()])
def test_what_is_no_timer_is_refused(wrong: Any) -> None:
    """Nothing is set then."""
    assert NATIVE is not None
    with pytest.raises(
        TypeError, match="a timer of the GPU is a KernelTimer, an EventTimer, or None"
    ):
        NATIVE.set_gpu_timer(wrong)


def test_a_timer_that_cannot_time_is_refused_with_its_reason() -> None:
    """There is no driver."""
    assert NATIVE is not None
    timer = NATIVE.KernelTimer("", "", "libno_such_driver.so", False, False, False)
    with pytest.raises(RuntimeError, match="no CUDA driver is loaded"):
        NATIVE.set_gpu_timer(timer)

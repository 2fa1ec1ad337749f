"""Kernels in one step of N over CUDA events in every step, through the public API, on the fakes of
both libraries."""

from __future__ import annotations

import sys
from collections import Counter
from typing import Any

import pytest

from otel_straggler import configure, gpu_timing, section, semconv, set_gpu_timing, shutdown, step
from otel_straggler.client.gpu import current_timer, sampling, tiers
from otel_straggler.client.gpu.surroundings import Surroundings
from otel_straggler.detector import Detector, Statistic
from otel_straggler.native import NATIVE
from otel_straggler.testing import CapturedRequests

from .scripted import torch_with_cuda

KERNEL_NS = 1_000
ON_STREAM_NS = 5_000


class WholeGpu:
    """A GPU whose driver and libcupti see the same launches."""

    def __init__(self, cuda: Any, cupti: Any) -> None:
        self.cuda, self.cupti = cuda, cupti

    def launch(self, name: str = "gemm", duration_ns: int = KERNEL_NS) -> None:
        """The stream is held longer than the kernel runs, so that a time tells who measured it."""
        self.cupti.launch(name, duration_ns)
        self.cuda.launch(ON_STREAM_NS)


@pytest.fixture
def whole_gpu(fake_cuda: Any, fake_library: Any, monkeypatch: pytest.MonkeyPatch) -> WholeGpu:
    if NATIVE is None:
        pytest.skip("the extension was not built: it would show that kernels are sampled")
    fake_cuda.begin()
    fake_library.reset()
    fake_cuda.traced_by(fake_library)
    fake_cuda.set("busy", 1)  # what is launched is done at once
    torch = torch_with_cuda()
    torch._C = type("_C", (), {"_cuda_getCurrentRawStream": staticmethod(fake_cuda.current_stream)})
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setattr(Surroundings, "driver_path", lambda self: fake_cuda.path)
    monkeypatch.setenv("OTEL_STRAGGLER_CUPTI", fake_library.path)
    monkeypatch.setattr(tiers, "_TIMERS", {})
    return WholeGpu(fake_cuda, fake_library)


def prove(gpu: WholeGpu) -> None:
    """The self-test, in steps of its own."""
    for n in range(4):
        with step(n), section("forward"):
            gpu.launch()
    current_timer().flush()
    assert (gpu_timing().tier, gpu_timing().reason) == ("cupti", "")


def train(gpu: WholeGpu, first: int, count: int) -> None:
    for n in range(first, first + count):
        with step(n):
            with section("forward"):
                gpu.launch()
            with section("backward"):
                gpu.launch("gemm_bwd")
                gpu.launch("gemm_bwd")
        if n % 10 == 0:
            current_timer().flush()  # the worker does so twice a second; steps are longer than here


@pytest.mark.parametrize("every", [1, 10, 50])
def test_sampled_steps_have_kernels_and_all_others_events(
    every: int, whole_gpu: WholeGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No run is without a time of the GPU, no kernel unattributed."""
    monkeypatch.setattr(sampling, "INTERVALS", (every,))
    with CapturedRequests() as sink:
        session = configure(
            endpoint=sink.url, run_id="r", rank=0, strict=True, gpu_timing="cupti",
            gpu_overhead=0.0 if every == 1 else 0.5, flush_s=0.05,
        )  # fmt: skip
        set_gpu_timing("cupti")
        session._gpu._overhead.sampling.value = every  # type: ignore[union-attr]
        prove(whole_gpu)
        session._gpu._apply_rate()  # type: ignore[union-attr]
        assert gpu_timing().interval == every
        before = gpu_timing().counts["attributed"]
        train(whole_gpu, 100, 200)
        current_timer().flush()
        state = gpu_timing()
        shutdown()
    spans = [s for s in sink.spans() if s.name in {"forward", "backward"}]
    spans = [s for s in spans if s.attributes[semconv.STEP] >= 100]
    assert len(spans) == 400
    for span in spans:
        kernels = 1 + (span.name == "backward")
        busy_ns = span.attributes[semconv.GPU_BUSY_TIME]
        if span.attributes[semconv.STEP] % every == 0:
            assert span.attributes[semconv.TIME_BASIS] == semconv.CUPTI_BASIS
            assert span.attributes[semconv.GPU_KERNEL_COUNT] == kernels
            assert busy_ns == kernels * KERNEL_NS
        else:
            assert span.attributes[semconv.TIME_BASIS] == semconv.EVENTS_BASIS
            assert busy_ns == kernels * ON_STREAM_NS
    assert state.counts["lost"] == state.counts["missing_runs"] == 0
    assert state.counts["attributed"] - before == 3 * 200 // every


def test_kernels_that_cannot_be_told_apart_leave_events(whole_gpu: WholeGpu) -> None:
    """Kernels come back, marks do not, in neither way: a reason of its own, where the user looks,
    within seconds; sections have their events all the time."""
    with CapturedRequests() as sink:
        configure(
            endpoint=sink.url, run_id="r", rank=0, strict=True, gpu_timing="cupti",
            gpu_overhead=0.0, flush_s=0.05, heartbeat_s=0.05,
        )  # fmt: skip
        assert set_gpu_timing("cupti").reason == "unproven"
        whole_gpu.cuda.traced_by_nobody()  # no call of the driver is seen
        number = iter(range(100_000))

        def reported(s: CapturedRequests) -> bool:
            with step(next(number)), section("forward"):
                whole_gpu.launch()
            points = s.points(semconv.RANK_INFO)
            last = points[-1].attributes if points else {}
            return last.get(semconv.GPU_TIMING_REASON) == "no_marks"

        sink.wait_for(reported)
        state = gpu_timing()
        assert (state.tier, state.reason) == ("events", "no_marks")
        assert "0 could be attributed" in state.detail
        shutdown()
    basis = Counter(s.attributes[semconv.TIME_BASIS] for s in sink.spans() if s.name == "forward")
    assert set(basis) <= {semconv.EVENTS_BASIS, semconv.HOST_BASIS}
    assert basis[semconv.HOST_BASIS] <= 2  # at the change of the tier


@pytest.mark.parametrize("overhead", ["0.005", "0"])
@pytest.mark.parametrize("every", [1, 3])
def test_the_detector_samples_kernels_with_its_sections(
    every: int, overhead: str, whole_gpu: WholeGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As NVRx's profiling_interval: one of so many runs of a section, and its kernels with it; also
    where the overhead has no limit."""
    monkeypatch.setenv("OTEL_STRAGGLER_GPU_OVERHEAD", overhead)
    Detector.initialize(profiling_interval=every)
    try:
        for n in range(60):
            for name in ("fwd", "bwd"):
                with Detector.detection_section(name):
                    whole_gpu.launch(name, KERNEL_NS if n < 30 else 2 * KERNEL_NS)
            if n == 29:
                first = Detector.generate_report()
        counted = gpu_timing().counts
        second = Detector.generate_report()
    finally:
        Detector.shutdown()
    assert first is not None
    assert second is not None
    assert (counted["windows"] > 1) == (every > 1)  # records are off between the runs
    counts = {name: each[Statistic.NUM] for name, each in second.local_kernel_summaries.items()}
    assert counts == {"fwd": 30 // every, "bwd": 30 // every}
    assert second.gpu_individual_perf_scores == {0: pytest.approx(0.5, abs=0.01)}

"""GPU scores of ``Detector`` from the import change alone, on the fake GPU."""

from __future__ import annotations

import math
import sys
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from otel_straggler import configure, gpu_timing, section, set_gpu_timing, shutdown
from otel_straggler.client.gpu.owner import THREAD_NAME
from otel_straggler.detector import CallableId, Detector, Report, Statistic
from otel_straggler.native import NATIVE
from otel_straggler.testing import CapturedRequests

pytestmark = pytest.mark.skipif(
    NATIVE is None, reason="the extension was not built: it would show that kernels are scored"
)


@pytest.fixture(autouse=True)
def _no_detector() -> Iterator[None]:
    yield
    Detector.shutdown()


def train(
    gpu: Any, name: str = "fwd", times: int = 5, length_ns: int = 1_000, **options: Any
) -> None:
    for _ in range(times):
        with Detector.detection_section(name, **options):
            gpu.launch("gemm", length_ns)


def report() -> Report:
    result = Detector.generate_report()
    assert result is not None
    return result


def kernels_of(result: Report) -> dict[str, float]:
    return {name: each[Statistic.NUM] for name, each in result.local_kernel_summaries.items()}


def tier_threads() -> list[str]:
    return [t.name for t in threading.enumerate() if t.name == THREAD_NAME]


def test_without_an_endpoint_kernels_in_sections_are_scored(gpu: Any) -> None:
    """As soon as a section wants it. Twice as long is half as fast; outside of sections nothing
    counts; after shutdown() nothing is timed."""
    Detector.initialize()
    assert gpu_timing().reason == "not_configured"
    train(gpu)
    gpu.launch("randn", 5_000)
    assert gpu_timing().uses_cupti
    assert Detector.cupti_manager is not None
    assert Detector.cupti_manager.is_initialized
    assert Detector.cupti_manager.get_results()["gemm"].num_calls == 5
    first = report()
    train(gpu, length_ns=2_000)
    second = report()
    assert kernels_of(first) == kernels_of(second) == {"gemm": 5}
    assert first.local_kernel_summaries["gemm"][Statistic.MED] == pytest.approx(1.0, rel=0.01)
    assert first.gpu_relative_perf_scores == second.gpu_relative_perf_scores == {0: 1.0}
    assert first.gpu_individual_perf_scores == {0: 1.0}
    assert second.gpu_individual_perf_scores == {0: pytest.approx(0.5, rel=0.01)}
    Detector.shutdown()
    assert gpu_timing().reason == "not_configured"
    assert tier_threads() == []


def test_a_window_without_a_sampled_step_has_the_kernels_of_the_one_before(gpu: Any) -> None:
    """With their age; GPU scores do not vanish between samples."""
    Detector.initialize()
    train(gpu, times=3)
    first = report()
    with Detector.detection_section("fwd", profile_cuda=True):
        pass
    second = report()
    assert kernels_of(first) == kernels_of(second) == {"gemm": 3}
    assert second.gpu_relative_perf_scores == {0: 1.0}
    assert first.kernels_age_s == 0.0
    assert second.kernels_age_s > 0.0


def test_sections_without_profile_cuda_have_no_kernels(gpu: Any) -> None:
    """Nor does anything begin for them. Of a wrapped callable likewise; of a name that is used in
    both ways they count."""

    class Model:
        def forward(self) -> None:
            gpu.launch("softmax", 1_000)

    Detector.initialize()
    train(gpu, "data", profile_cuda=False)
    assert gpu_timing().reason == "not_configured"
    assert kernels_of(report()) == {}
    Detector.wrap_callables([CallableId(Model, "forward")], profile_cuda=False)
    train(gpu, "data", profile_cuda=False)
    train(gpu, "fwd", times=3)
    Model().forward()
    assert kernels_of(report()) == {"gemm": 3}
    train(gpu, "data", times=2)
    train(gpu, "data", times=2, profile_cuda=False)
    assert kernels_of(report()) == {"gemm": 4}


def test_kernels_of_executions_that_are_not_timed_do_not_count(gpu: Any) -> None:
    """Two of four, as in NVRx."""
    Detector.initialize(profiling_interval=2)
    train(gpu, times=4)
    result = report()
    assert kernels_of(result) == {"gemm": 2}
    assert result.local_section_summaries["fwd"][Statistic.NUM] == 2


def test_a_wrapped_callable_is_enough_and_plain_sections_count_too(gpu: Any) -> None:
    """Wrapped before or after initialize()."""

    class Model:
        def forward(self) -> None:
            gpu.launch("gemm", 1_000)

    Detector.wrap_callables([CallableId(Model, "forward")])
    Detector.initialize()
    assert gpu_timing().uses_cupti
    Model().forward()
    with section("backward"):
        gpu.launch("gemm_bwd", 2_000)
    assert kernels_of(report()) == {"gemm": 1, "gemm_bwd": 1}


@pytest.mark.parametrize("wanted", ["off", "events"])
def test_a_tier_that_was_asked_for_is_respected(
    gpu: Any, monkeypatch: pytest.MonkeyPatch, wanted: str
) -> None:
    """The variable decides, as for configure()."""
    monkeypatch.setenv("OTEL_STRAGGLER_GPU_TIMING", wanted)
    Detector.initialize()
    train(gpu)
    assert gpu_timing().tier != "cupti"
    assert kernels_of(report()) == {}


def test_it_may_be_switched_while_the_detector_runs(gpu: Any) -> None:
    """By the same call as with configure()."""
    Detector.initialize()
    train(gpu)
    assert kernels_of(report()) == {"gemm": 5}
    assert set_gpu_timing("off").tier == "off"
    assert kernels_of(report()) == {}
    assert set_gpu_timing("cupti").uses_cupti
    train(gpu)
    assert kernels_of(report()) == {"gemm": 5}


@pytest.mark.parametrize("is_first", [True, False], ids=["configured before", "configured later"])
def test_with_a_session_the_session_times_kernels(gpu: Any, is_first: bool) -> None:
    """One timer in a process. The tier that configure() would choose by itself comes back."""
    with CapturedRequests() as sink:
        if is_first:
            configure(endpoint=sink.url, run_id="r", rank=0)
        Detector.initialize()
        train(gpu)
        if not is_first:
            report()
            configure(endpoint=sink.url, run_id="r", rank=0)
            train(gpu)
        assert gpu_timing().uses_cupti
        assert len(tier_threads()) == 1
        assert kernels_of(report()) == {"gemm": 5}
        Detector.shutdown()
        assert gpu_timing().tier == "off"
        shutdown()


@pytest.mark.parametrize("torch", [None, SimpleNamespace(version=SimpleNamespace(cuda=None))])
def test_without_a_torch_for_cuda_no_thread_is_started(
    gpu: Any, monkeypatch: pytest.MonkeyPatch, torch: Any
) -> None:
    """Nothing is to be timed yet; it begins with a report after torch has come."""
    cuda = sys.modules["torch"]
    monkeypatch.setitem(sys.modules, "torch", torch)
    Detector.initialize()
    train(gpu)
    assert math.isnan(report().gpu_relative_perf_scores[0])
    assert tier_threads() == []
    monkeypatch.setitem(sys.modules, "torch", cuda)
    report()
    train(gpu)
    assert kernels_of(report()) == {"gemm": 5}

"""The tier below kernels: CUDA events around sections, on a fake driver."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from otel_straggler import configure, gpu_timing, section, semconv, set_gpu_timing, shutdown, step
from otel_straggler.client.gpu import current_timer, tiers
from otel_straggler.client.gpu.surroundings import Surroundings
from otel_straggler.native import NATIVE
from otel_straggler.testing import CapturedRequests

from .scripted import torch_with_cuda


@pytest.fixture
def cuda(fake_cuda: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A GPU in use in this process, whose driver is the fake."""
    if NATIVE is None:
        pytest.skip("the extension was not built: it would show that events time sections")
    fake_cuda.begin()
    fake_cuda.set("busy", 1)  # what is launched is done at once
    torch = torch_with_cuda()
    torch._C = type("_C", (), {"_cuda_getCurrentRawStream": staticmethod(fake_cuda.current_stream)})
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setattr(Surroundings, "driver_path", lambda self: fake_cuda.path)
    monkeypatch.setattr(tiers, "_TIMERS", {})
    return fake_cuda


def train(cuda: Any, first: int) -> None:
    for n in range(first, first + 5):
        with step(n), section("forward"):
            cuda.launch(1_000)


def test_sections_are_timed_by_events(cuda: Any) -> None:
    """Their spans say so; of kernels nothing is known."""
    with CapturedRequests() as sink:
        configure(endpoint=sink.url, run_id="r", rank=0, strict=True, gpu_timing="events")
        assert set_gpu_timing("events").tier == "events"
        assert gpu_timing().reason == "asked"
        assert current_timer() is None
        train(cuda, 0)
        shutdown()
    forward = [span.attributes for span in sink.spans() if span.name == "forward"]
    assert [a[semconv.TIME_BASIS] for a in forward] == [semconv.EVENTS_BASIS] * 5
    assert [a[semconv.GPU_BUSY_TIME] for a in forward] == [1_000] * 5
    assert not any(semconv.GPU_KERNEL_COUNT in a for a in forward)


def test_kernels_that_cannot_be_timed_leave_events(
    cuda: Any, fake_library: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CUPTI refuses: the reason is its own, and sections still have times of the GPU."""
    monkeypatch.setenv("OTEL_STRAGGLER_CUPTI", fake_library.path)
    fake_library.fail("cuptiActivityEnable", 43)
    try:
        with CapturedRequests() as sink:
            configure(endpoint=sink.url, run_id="r", rank=0, strict=True)
            state = set_gpu_timing("cupti")
            assert (state.tier, state.reason) == ("events", "not_supported")
            train(cuda, 0)
            shutdown()
    finally:
        fake_library.fail("cuptiActivityEnable", 0)
    basis = [s.attributes[semconv.TIME_BASIS] for s in sink.spans() if s.name == "forward"]
    assert basis == [semconv.EVENTS_BASIS] * 5


def test_a_driver_that_breaks_ends_it(cuda: Any) -> None:
    """An illegal access in the program's own kernel: every later call of the driver fails."""
    with CapturedRequests() as sink:
        configure(endpoint=sink.url, run_id="r", rank=0, strict=True, flush_s=0.05)
        assert set_gpu_timing("events").tier == "events"
        cuda.break_down(700)
        train(cuda, 0)
        sink.wait_for(lambda s: gpu_timing().tier == "off")
        assert gpu_timing().reason == "events_failed"
        assert "700" in gpu_timing().detail
        shutdown()
    assert [s.name for s in sink.spans()].count("forward") == 5

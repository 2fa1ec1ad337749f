"""What `doctor` tries on a GPU: some kernels, in each way to attribute them."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from otel_straggler.doctor import versions
from otel_straggler.doctor.versions import NOT_TRIED, WORKS, try_attribution
from otel_straggler.native import NATIVE


class Numbers:
    """A tensor on the fake GPU."""

    def __init__(self, gpu: Any) -> None:
        self._gpu = gpu

    def add_(self, number: int) -> None:
        self._gpu.launch("elementwise", 1_000)


def torch_on(gpu: Any, *, is_available: bool = True, is_full: bool = False) -> Any:
    def ones(size: int, device: str) -> Numbers:
        if is_full:
            raise RuntimeError("CUDA out of memory")
        return Numbers(gpu)

    cuda = SimpleNamespace(is_available=lambda: is_available, synchronize=lambda: None)
    return SimpleNamespace(ones=ones, cuda=cuda)


@pytest.fixture
def started(gpu: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A timer that was started, as the process of the probe has it."""
    monkeypatch.setattr(versions, "cuda_of_torch", lambda: "13.0")
    monkeypatch.setitem(sys.modules, "torch", torch_on(gpu))
    assert NATIVE is not None
    timer = NATIVE.KernelTimer(gpu.path, "", gpu.path, False, False, True)
    assert timer.start() == ""
    yield timer
    timer.stop(0)


def test_kernels_that_come_back_in_their_section_are_proof(started: Any) -> None:
    """By marks, the first way."""
    assert try_attribution(started) == WORKS
    assert started.state()["by_callbacks"] == 0


def test_the_next_way_is_tried(gpu: Any, started: Any) -> None:
    """Marks that never come, although every call was allowed."""
    gpu.disable(4)
    assert try_attribution(started) == WORKS
    assert started.state()["by_callbacks"] == 1


def test_kernels_without_sections_are_no_marks(gpu: Any, started: Any) -> None:
    """In no way; the reason is the one that a training would give."""
    gpu.disable(4)
    gpu.fail("cuptiSubscribe", 39)
    try:
        assert try_attribution(started) == "no_marks"
    finally:
        gpu.fail("cuptiSubscribe", 0)


@pytest.mark.parametrize("torch", [{"is_available": False}, {"is_full": True}])
def test_without_a_gpu_or_its_memory_nothing_is_tried(
    torch: dict[str, bool], gpu: Any, started: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor is torch imported where it is built for the CPU."""
    monkeypatch.setitem(sys.modules, "torch", torch_on(gpu, **torch))
    assert try_attribution(started) == NOT_TRIED
    monkeypatch.setattr(versions, "cuda_of_torch", lambda: "")
    monkeypatch.setitem(sys.modules, "torch", None)  # an import would raise
    assert try_attribution(started) == NOT_TRIED

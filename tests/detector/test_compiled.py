"""The detector under ``torch.compile(fullgraph=True)``: nothing at all, and no graph more."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn, ones
from torch._dynamo.utils import counters
from torch.utils.checkpoint import checkpoint

from otel_straggler.detector import CallableId, Detector, Statistic


@pytest.fixture(autouse=True)
def _fresh_compiler() -> None:
    torch._dynamo.reset()
    counters.clear()


def compiled(function: Any) -> Any:
    return torch.compile(function, fullgraph=True, backend="eager")


@pytest.mark.parametrize("interval", [1, 2])
def test_sections_inside_a_compiled_function_are_transparent(interval: int) -> None:
    """Named, unnamed, decorating: one graph, the same result, before and after shutdown()."""
    Detector.initialize(profiling_interval=interval)

    def forward(x: Any) -> Any:
        with Detector.detection_section("inner", profile_cuda=True):
            y = x * 2
        with Detector.detection_section():
            return y + 1

    fast = compiled(forward)
    for _ in range(3):
        assert torch.equal(fast(ones(2)), forward(ones(2)))
    Detector.shutdown()
    assert torch.equal(fast(ones(2)), ones(2) * 3)
    assert counters["stats"]["unique_graphs"] == 1
    assert not counters["graph_break"]


@pytest.mark.parametrize("interval", [1, 2])
def test_a_wrapped_module_compiles_whole(interval: int) -> None:
    """Compiled itself, or called from something compiled."""
    layer = nn.Linear(2, 2)
    expected = layer(ones(1, 2)) + 1
    Detector.initialize(profiling_interval=interval)
    Detector.wrap_callables([CallableId(layer, "forward")])

    def outer(x: Any) -> Any:
        return layer(x) + 1

    assert torch.allclose(compiled(outer)(ones(1, 2)), expected)
    assert torch.allclose(compiled(layer)(ones(1, 2)) + 1, expected)
    assert not counters["graph_break"]


def test_a_section_around_a_compiled_function_is_timed() -> None:
    """Every call once."""
    Detector.initialize()
    fast = compiled(lambda x: x + 1)
    for _ in range(3):
        with Detector.detection_section("around"):
            fast(ones(2))
    report = Detector.generate_report()
    assert report is not None
    [stats] = report.local_section_summaries.values()
    assert {str(key): value for key, value in stats.items()}["NUM"] == 3


def test_a_forward_that_is_recomputed_counts_twice() -> None:
    """Activation checkpointing leaves the second pass by an exception of its own: no failure."""
    layer = nn.Linear(2, 2)
    Detector.initialize()

    def block(x: Any) -> Any:
        with Detector.detection_section("block"):
            return torch.tanh(layer(x))

    checkpoint(block, ones(1, 2, requires_grad=True), use_reentrant=False).sum().backward()
    report = Detector.generate_report()
    assert report is not None
    assert report.local_section_summaries["block"][Statistic.NUM] == 2

"""Under torch.compile sections are transparent: no error under fullgraph, no further graph."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from otel_straggler import phase, section, step
from otel_straggler.record.active import RECORDER

torch = pytest.importorskip("torch")

OUTSIDE = section("outside")
EVALUATION = phase("eval")


@section("decorated")
def decorated(x: Any) -> Any:
    return x * 2


def existing(x: Any) -> Any:
    with OUTSIDE as entered, entered:
        return x + 1


def named_inside(x: Any) -> Any:
    with section("inside", kind="wait"):
        return x + 1


def sized(x: Any) -> Any:
    with OUTSIDE.run(microbatch=1), section("inside").run(tokens=2):
        return x + 1


def steps_and_phases(x: Any) -> Any:
    with step(3), phase("checkpoint"), EVALUATION:
        return x + 1


def calls_decorated(x: Any) -> Any:
    return decorated(x) + decorated(x)


def branches(x: Any) -> Any:
    for _ in range(2):
        with OUTSIDE:
            x = x + 1
        with OUTSIDE:
            x = x * 2
    return x


@pytest.mark.parametrize(
    "function", [existing, named_inside, sized, steps_and_phases, calls_decorated, branches]
)
@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")
def test_a_compiled_function_has_one_graph_and_the_same_result(
    function: Callable[[Any], Any],
) -> None:
    """Recording is on; the compiled region records nothing and breaks nothing."""
    graphs: list[Any] = []

    def backend(graph: Any, _: Any) -> Any:
        graphs.append(graph)
        return graph.forward

    RECORDER.enable()
    x = torch.ones(3)
    expected = function(x)
    RECORDER.disable()
    RECORDER.enable()
    torch._dynamo.reset()
    compiled = torch.compile(function, backend=backend, fullgraph=True)
    assert torch.equal(compiled(x), expected)
    assert torch.equal(compiled(x), expected)
    assert len(graphs) == 1
    assert RECORDER.drain() == []


def test_a_region_around_the_compiled_function_is_timed() -> None:
    """Only what is traced is transparent."""
    RECORDER.enable()
    torch._dynamo.reset()
    compiled = torch.compile(existing, backend="eager", fullgraph=True)
    with section("around"):
        compiled(torch.ones(3))
    assert [r[0][0].name for r in RECORDER.drain()] == ["around"]


TORCH_LATER = """
from otel_straggler import section
forward = section("forward")
import torch
def f(x):
    with forward:
        return x + 1
assert torch.compile(f, backend="eager", fullgraph=True)(torch.zeros(1)).item() == 1.0
"""


def test_torch_may_be_imported_after_us() -> None:
    """Nothing has to be called between the import of torch and the first compilation."""
    done = subprocess.run(
        [sys.executable, "-c", TORCH_LATER],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr

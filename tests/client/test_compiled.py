"""Under torch.compile sections are transparent: no error under fullgraph, no further graph."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from otel_straggler import phase, section, step
from otel_straggler.client.recording import RECORDER

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


def opened_by_hand(x: Any) -> Any:
    OUTSIDE.__enter__()
    x = x + 1
    OUTSIDE.__exit__(None, None, None)
    return x


def decorates(x: Any) -> Any:
    @section("made inside")
    def add(y: Any) -> Any:
        return y + 1

    return add(x)


def returns_from_inside(x: Any) -> Any:
    for at in range(3):
        with OUTSIDE, section("inside"):
            if at == 1:
                return x
            x = x + 1
    return x


def fails_inside(x: Any) -> Any:
    try:
        with OUTSIDE:
            raise ValueError
    except ValueError:
        return x + 1


def branches(x: Any) -> Any:
    for _ in range(2):
        with OUTSIDE:
            x = x + 1
        with OUTSIDE:
            x = x * 2
    return x


@pytest.mark.parametrize(
    "function",
    [
        existing,
        named_inside,
        sized,
        steps_and_phases,
        calls_decorated,
        opened_by_hand,
        decorates,
        returns_from_inside,
        fails_inside,
        branches,
    ],
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
    assert not RECORDER.drain()


def test_a_region_around_the_compiled_function_is_timed() -> None:
    """Only what is traced is transparent."""
    RECORDER.enable()
    torch._dynamo.reset()
    compiled = torch.compile(existing, backend="eager", fullgraph=True)
    with section("around"):
        compiled(torch.ones(3))
    assert [r[0][0].name for r in RECORDER.drain()] == ["around"]


def plain_break(x: Any) -> Any:
    x = x + 1
    torch._dynamo.graph_break()
    return x * 2


def breaks_inside(x: Any) -> Any:
    with OUTSIDE, section("inside").run(microbatch=1):
        x = x + 1
        torch._dynamo.graph_break()
        return x * 2


def breaks_under_phase_and_step(x: Any) -> Any:
    with step(3), EVALUATION:
        x = x + 1
        torch._dynamo.graph_break()
        return x * 2


def breaks_with_a_section_in_a_variable(x: Any) -> Any:
    timer = section("inside")
    x = x + 1
    torch._dynamo.graph_break()
    with timer.run(microbatch=1):
        return x * 2


@section("decorated")
def breaks_decorated(x: Any) -> Any:
    return plain_break(x)


@pytest.mark.parametrize(
    "function",
    [
        breaks_inside,
        breaks_under_phase_and_step,
        breaks_with_a_section_in_a_variable,
        breaks_decorated,
    ],
)
def test_a_graph_break_inside_a_section_costs_no_graph(function: Callable[[Any], Any]) -> None:
    """What stands before and after the break is compiled as it would be without sections."""
    plain, _ = graphs_and_result(plain_break)
    ours, result = graphs_and_result(function)
    assert ours == plain == 2
    assert torch.equal(result, plain_break(torch.ones(3)))


def graphs_and_result(function: Callable[[Any], Any]) -> tuple[int, Any]:
    """How many graphs three calls make, recompilation included."""
    graphs: list[Any] = []

    def backend(graph: Any, _: Any) -> Any:
        graphs.append(graph)
        return graph.forward

    torch._dynamo.reset()
    compiled = torch.compile(function, backend=backend)
    results = [compiled(torch.ones(3)) for _ in range(3)]
    return len(graphs), results[-1]


def test_another_section_step_or_microbatch_compiles_nothing_anew() -> None:
    """Nothing of ours is guarded but its type."""

    def forward(x: Any, timer: Any, n: int) -> Any:
        with step(n), timer, section("inside").run(microbatch=n):
            return x + 1

    graphs: list[Any] = []

    def backend(graph: Any, _: Any) -> Any:
        graphs.append(graph)
        return graph.forward

    torch._dynamo.reset()
    compiled = torch.compile(forward, backend=backend, fullgraph=True)
    for n in range(4):
        compiled(torch.ones(3), section(f"layer-{n}"), n)
    assert len(graphs) == 1


UNKNOWN_TORCH = """
import sys, torch, torch._dynamo.variables.ctx_manager as ctx_manager
{before}
from otel_straggler import section
from otel_straggler.client.recording import RECORDER
forward = section("forward")
def f(x):
    with forward:
        x = x + 1
        with section("inside").run(microbatch=1):
            x = x * 2
    return x * 3
{after}
RECORDER.enable()
compiled = torch.compile(f, backend="eager")
for _ in range(2):
    assert compiled(torch.ones(1)).item() == 12.0
print(sorted({{record[0][0].name for record in RECORDER.drain()}}))
"""
READ_ONLY = """
from types import MappingProxyType
from torch._dynamo.variables.builder import VariableBuilder
table = VariableBuilder._type_dispatch()
VariableBuilder._type_dispatch = lambda self=None: MappingProxyType(table)
"""
BROKEN = """
def broken(self, *_, **__): raise TypeError("another signature")
ctx_manager.NullContextVariable.__init__ = broken
"""


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("del ctx_manager.NullContextVariable", ""),
        (READ_ONLY, ""),
        ("", BROKEN),
    ],
    ids=["a name is gone", "the table is read-only", "a signature is another"],
)
def test_a_torch_that_we_do_not_know_breaks_graphs_and_nothing_else(
    before: str, after: str
) -> None:
    """One line says so; what is not compiled for it is timed."""
    program = UNKNOWN_TORCH.format(before=before, after=after)
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stderr
    reported = [line for line in done.stderr.splitlines() if "torch.compile break graphs" in line]
    assert len(reported) == 1
    assert "['forward', 'inside']" in done.stdout


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

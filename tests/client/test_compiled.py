"""Under torch.compile sections are transparent: no error under fullgraph, no further graph."""

from __future__ import annotations

import json
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


FORKED = """
import json, os, sys, torch, torch._dynamo.variables.ctx_manager
told = []
for program in json.load(sys.stdin):
    ends = os.memfd_create("out"), os.memfd_create("err")
    child = os.fork()
    if child == 0:
        os.dup2(ends[0], 1), os.dup2(ends[1], 2)
        exec(program, {"__name__": "__main__"})
        sys.stdout.flush()
        os._exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    told.append((code, *(os.pread(end, 1 << 20, 0).decode() for end in ends)))
print(json.dumps(told))
"""
"""Runs programs in processes that have torch, which takes longer to import than all they do."""
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


WAYS_TO_BE_UNKNOWN = {
    "a name is gone": ("del ctx_manager.NullContextVariable", ""),
    "the table is read-only": (READ_ONLY, ""),
    "a signature is another": ("", BROKEN),
}


@pytest.fixture(scope="module")
def unknown() -> dict[str, tuple[int, str, str]]:
    """How each way to be unknown ended, and what it printed."""
    programs = [
        UNKNOWN_TORCH.format(before=before, after=after)
        for before, after in WAYS_TO_BE_UNKNOWN.values()
    ]
    done = subprocess.run(
        [sys.executable, "-c", FORKED],
        input=json.dumps(programs),
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return dict(zip(WAYS_TO_BE_UNKNOWN, json.loads(done.stdout), strict=True))


@pytest.mark.parametrize("way", WAYS_TO_BE_UNKNOWN)
def test_a_torch_that_we_do_not_know_breaks_graphs_and_nothing_else(
    way: str, unknown: dict[str, tuple[int, str, str]]
) -> None:
    """One line says so; what is not compiled for it is timed."""
    code, out, err = unknown[way]
    assert code == 0, err
    reported = [line for line in err.splitlines() if "torch.compile break graphs" in line]
    assert len(reported) == 1
    assert "['forward', 'inside']" in out


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

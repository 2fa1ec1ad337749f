"""Private parts of torch that are used to measure waiting: each may be another one tomorrow.

Here each part is missing once, while it is looked up; then a training runs. Which torch has which
part is in ``otel_straggler/torch_parts.py``.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import otel_straggler.client.collectives as package
from otel_straggler import section, step
from otel_straggler.client.collectives import ddp_logger
from otel_straggler.client.collectives.calls import FUNCTIONAL
from otel_straggler.client.collectives.session import SOURCES, TIMERS, CollectiveWaits
from otel_straggler.client.guard import GUARD
from otel_straggler.client.recording import FORM, RECORDER

torch = pytest.importorskip("torch")
dist = pytest.importorskip("torch.distributed")
pytest.importorskip(FUNCTIONAL)
DDP = "torch.nn.parallel.DistributedDataParallel"
BACKWARD, CALLS, BUFFERS, TIMED, DTENSOR = (
    "at the end of backward", "in collectives called", "for buffers", "for gradients of models",
    "in functional collectives",
)  # fmt: skip
PARTS = [
    ("torch.autograd.Variable", "_execution_engine", BACKWARD),
    ("torch.autograd", "backward", BACKWARD),
    ("torch._C", "DisableTorchFunction", BACKWARD),
    ("torch.distributed", "is_initialized", BACKWARD),
    ("torch._C", "_distributed_c10d", CALLS),
    ("torch._C._distributed_c10d", "Work", CALLS),
    ("torch._C._distributed_c10d.Work", "wait", CALLS),
    ("torch.distributed", "_broadcast_coalesced", BUFFERS),
    (DDP, "_pre_forward", TIMED),
    (DDP, "_set_ddp_runtime_logging_sample_rate", TIMED),
    ("torch.nn.parallel", "DistributedDataParallel", TIMED),
    ("torch", "is_grad_enabled", TIMED),
    ("torch.cuda", "is_current_stream_capturing", TIMED),
    (FUNCTIONAL, "wait_tensor", DTENSOR),
]
"""Where, name, and what is not measured without it."""
OPTIONAL = {
    "_builtins": "TorchScript then compiles a call of backward as it may",
    "_builtin_ops": "the same",
    "_builtin_table": "the same",
    "_get_ddp_logging_data": "of a module's logger; see test_ddp_numbers.py",
}
"""Parts that are looked up where they are used, or may be missing."""


@pytest.fixture(autouse=True)
def _world_of_one(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(ddp_logger, "_DEVICES", ("cpu",))
    RECORDER.enable()
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def owner_of(path: str) -> Any:
    if path in sys.modules:
        return sys.modules[path]
    owner: Any = sys.modules["torch"]
    for part in path.split(".")[1:]:
        owner = getattr(owner, part)
    return owner


def trained() -> list[float]:
    """Weights after some steps of DDP, with collectives of all kinds."""
    torch.manual_seed(0)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
    functional = sys.modules[FUNCTIONAL]
    for n in range(4):
        with step(n):
            with section("forward"):
                loss = model(torch.ones(2, 4)).sum()
            with section("backward"):
                loss.backward()
            with section("calls"):
                dist.all_reduce(torch.ones(1))
            with section("functional"):
                reduced = functional.all_reduce(torch.ones(1), "sum", dist.group.WORLD)
                assert functional.wait_tensor(reduced).tolist() == [1.0]
            with section("buffers"):
                dist._broadcast_coalesced(dist.group.WORLD, [torch.ones(3)], 1 << 20, 0)
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter.sub_(0.1 * parameter.grad)
                    parameter.grad = None
    return [value for parameter in model.parameters() for value in parameter.flatten().tolist()]


def measured() -> set[str]:
    """What was measured of it, as it is called in ``PARTS``."""
    waits: dict[str, int] = {}
    for record in RECORDER.drain():
        waits[record[0][0].name] = max(record[4], waits.get(record[0][0].name, 0))
    by_section = {"backward": BACKWARD, "calls": CALLS, "functional": DTENSOR, "buffers": BUFFERS}
    result = {name for section_, name in by_section.items() if waits[section_] > 0}
    return result | ({TIMED} if "backward/ddp_backward" in waits else set())


EVERYTHING = {BACKWARD, CALLS, BUFFERS, DTENSOR} | ({TIMED} if FORM == "native" else set())


def test_with_all_of_it_everything_is_measured(caplog: pytest.LogCaptureFixture) -> None:
    """And nothing is said."""
    waits = CollectiveWaits()
    waits.start()
    trained()
    waits.close()
    assert measured() == EVERYTHING
    assert not caplog.messages


@pytest.mark.parametrize(("path", "name", "what"), PARTS, ids=[part[1] for part in PARTS])
def test_a_part_that_is_missing_costs_one_line_and_what_it_measures(
    path: str, name: str, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The training gives what it gives without us, and the other waits are measured."""
    expected = trained()
    RECORDER.enable()
    waits = CollectiveWaits()
    with pytest.MonkeyPatch.context() as patch:
        patch.delattr(owner_of(path), name)
        waits.start()
    assert trained() == expected
    waits.close()
    [line] = caplog.messages
    assert line.startswith(f"waiting {what}")
    assert "is not measured with this torch" in line
    # Where DDP's timers would be: in the section of a backward that is measured.
    lost = {what, TIMED} if what == BACKWARD else {what}
    assert measured() == EVERYTHING - lost
    assert GUARD.counts() == {}


@pytest.mark.parametrize(("path", "name", "what"), PARTS, ids=[part[1] for part in PARTS])
def test_a_part_that_is_no_longer_what_it_was_is_survived(
    path: str, name: str, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It cannot be called."""
    waits = CollectiveWaits()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner_of(path), name, 3)
        waits.start()
    trained()
    waits.close()
    [line] = caplog.messages
    assert line.startswith(f"waiting {what}")


def private_parts_in(tree: ast.Module) -> set[str]:
    """Private names that a module uses and does not define."""
    used, own = set(), set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            is_own = isinstance(node.value, ast.Name) and node.value.id == "self"
            (own if is_own else used).add(node.attr)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            used.add(node.value)
        elif isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            own.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            own.add(node.id)
    return {n for n in used - own if n[:1] == "_" and n[:2] != "__" and n.isidentifier()}


def test_every_private_part_that_is_used_is_tested_here() -> None:
    """A new one has to be listed."""
    files = [*Path(package.__path__[0]).glob("*.py")]
    used = set().union(*(private_parts_in(ast.parse(file.read_text())) for file in files))
    known = {name for _, name, _ in PARTS} | set(OPTIONAL)
    known |= {part for path, _, _ in PARTS for part in path.split(".")}
    assert used <= known
    assert used >= {"_execution_engine", "_distributed_c10d", "_get_ddp_logging_data"}
    assert len(SOURCES) + len(TIMERS) == len({what for *_, what in PARTS})

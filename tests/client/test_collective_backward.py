"""The wait at the end of backward: what is measured, and that backward stays what it was."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from otel_straggler import section
from otel_straggler.client.collectives import backward as measured_backward
from otel_straggler.client.collectives.session import CollectiveWaits
from otel_straggler.client.collectives.waits import Waits
from otel_straggler.client.guard import GUARD
from otel_straggler.client.recording import RECORDER

torch = pytest.importorskip("torch")
dist = pytest.importorskip("torch.distributed")
ENGINE = torch.autograd.Variable._execution_engine


@pytest.fixture(autouse=True)
def _recording() -> None:
    RECORDER.enable()


@pytest.fixture(scope="module", autouse=True)
def _group() -> Iterator[None]:
    """A world of one: without a world nothing is measured."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.fixture
def measuring() -> Iterator[None]:
    """Backward is measured, as ``configure()`` would have it."""
    waits = CollectiveWaits()
    waits.start()
    yield
    waits.close()


class CollectedWaits(Waits):
    """Keeps what would be added, with its thread."""

    def __init__(self) -> None:
        super().__init__()
        self.added: list[tuple[int, int]] = []

    def add(self, waited_ns: int) -> None:
        self.added.append((threading.get_ident(), waited_ns))


class Clock:
    """Moves only where a test has something wait."""

    def __init__(self) -> None:
        self.now_ns = 1_000

    def __call__(self) -> int:
        return self.now_ns


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(measured_backward, "perf_counter_ns", clock)
    return clock


@pytest.fixture
def collected() -> Iterator[CollectedWaits]:
    """What the end of backward would add."""
    waits = CollectedWaits()
    replaced = measured_backward.replace_backward(waits)
    yield waits
    replaced.restore()


def loss_with(at_end: Callable[[], None]) -> Any:
    """A loss whose backward queues a callback for its end, as DDP does with its last bucket."""
    weight = torch.ones(3, requires_grad=True)
    weight.register_hook(lambda _: ENGINE.queue_callback(at_end))
    with torch.enable_grad():  # also inside of another backward
        return (weight * 2).sum()


def test_what_callbacks_take_once_all_gradients_are_there_is_waited(
    collected: CollectedWaits, clock: Clock
) -> None:
    """Not what backward took before."""

    def wait() -> None:
        clock.now_ns += 70

    weight = torch.ones(3, requires_grad=True)
    weight.register_hook(lambda _: ENGINE.queue_callback(wait))
    product = weight * 2
    product.register_hook(lambda _: wait())
    (product.sum() + loss_with(wait)).backward()
    assert collected.added == [(threading.get_ident(), 140)]


def test_a_wait_in_such_a_callback_does_not_count_twice(
    collected: CollectedWaits, clock: Clock
) -> None:
    """As of FSDP, which waits for its collectives there."""
    found = []

    def wait() -> None:
        found.append(collected.may_begin())
        clock.now_ns += 70

    loss_with(wait).backward()
    assert found == [False]
    assert collected.may_begin()
    assert [waited_ns for _, waited_ns in collected.added] == [70]


def test_a_backward_that_fails_at_its_end_fails_as_before(collected: CollectedWaits) -> None:
    """Nothing is added, and the next wait of the thread counts."""
    error = ValueError("Expected to have finished reduction in the prior iteration")

    def fail() -> None:
        raise error

    with pytest.raises(ValueError, match="finished reduction") as caught:
        loss_with(fail).backward()
    assert caught.value is error
    assert not collected.added
    assert collected.may_begin()
    loss_with(lambda: None).backward()
    assert len(collected.added) == 1


def test_each_thread_waits_at_the_end_of_its_own_backward(
    collected: CollectedWaits, clock: Clock
) -> None:
    """Backward in several threads at once."""
    gate = threading.Barrier(4)

    def work() -> None:
        def wait() -> None:
            gate.wait(10)

        loss_with(wait).backward()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {ident for ident, _ in collected.added} == {thread.ident for thread in threads}
    assert len(collected.added) == 4
    assert clock.now_ns == 1_000


def test_callbacks_in_a_thread_of_the_engine_are_a_wait_of_who_has_called(
    monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    """As with GPUs, whose gradients are computed by threads of their own."""
    queue: list[Callable[[], None]] = []
    engine = SimpleNamespace(queue_callback=queue.append)
    monkeypatch.setattr(torch.autograd.Variable, "_execution_engine", engine)
    waits = CollectedWaits()
    replaced = measured_backward.replace_backward(waits)
    monkeypatch.undo()
    monkeypatch.setattr(measured_backward, "perf_counter_ns", clock)

    def run_queue() -> None:
        while queue:
            queue.pop(0)()
            clock.now_ns += 70

    def compute(_: object) -> None:
        thread = threading.Thread(target=run_queue)
        thread.start()
        thread.join()

    weight = torch.ones(3, requires_grad=True)
    weight.register_hook(compute)
    (weight * 2).sum().backward()
    replaced.restore()
    assert waits.added == [(threading.get_ident(), 70)]


def test_a_backward_inside_of_backward_is_measured_once_each(
    collected: CollectedWaits, clock: Clock
) -> None:
    """As reentrant activation checkpointing does it; DDP may finish in the inner one."""

    def wait() -> None:
        clock.now_ns += 70

    weight = torch.ones(3, requires_grad=True)
    weight.register_hook(lambda _: loss_with(wait).backward())
    (weight * 2).sum().backward()
    assert [waited_ns for _, waited_ns in collected.added] == [70, 0]


def test_a_backward_in_a_callback_adds_nothing_of_its_own(
    collected: CollectedWaits, clock: Clock
) -> None:
    """It lies inside the wait of the outer one."""

    def wait() -> None:
        clock.now_ns += 70

    loss_with(lambda: loss_with(wait).backward()).backward()
    assert [waited_ns for _, waited_ns in collected.added] == [70]


def gradients_of(backward: Callable[[Any], Any]) -> Any:
    """Gradients of a weight, or what was raised."""
    weight = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    try:
        result = backward(weight)
    except Exception as error:  # noqa: BLE001
        return type(error), str(error)
    return result, str(weight.grad)


def of_double_backward(w: Any) -> Any:
    (w**3).sum().backward(create_graph=True)
    first, w.grad = w.grad, None
    first.sum().backward()


def of_retained(w: Any) -> Any:
    loss = (w**2).sum()
    loss.backward(retain_graph=True)
    loss.backward()
    return loss._backward_hooks or {}


def of_failing(w: Any) -> Any:
    loss = (w**2).sum()
    loss.backward()
    loss.backward()


def of_transform(w: Any) -> Any:
    def inner(x: Any) -> Any:
        (x * w).sum().backward()
        return x.sum()

    return torch.func.grad(inner)(torch.ones(3))


CALLS: dict[str, Callable[[Any], Any]] = {
    "one root": lambda w: (w**2).sum().backward(),
    "a gradient": lambda w: torch.autograd.backward(w * 2, torch.ones(3)),
    "by name": lambda w: torch.autograd.backward(tensors=w * 2, grad_tensors=torch.ones(3)),
    "several roots": lambda w: torch.autograd.backward([torch.ones(1), w.sum(), (w**2).sum()]),
    "a leaf": lambda w: torch.autograd.backward(w, torch.ones(3)),
    "inputs": lambda w: (w**2).sum().backward(inputs=[w]),
    "a gradient edge": lambda w: torch.autograd.backward(
        torch.autograd.graph.get_gradient_edge((w**2).sum()), torch.tensor(1.0)
    ),
    "double": of_double_backward,
    "retained": of_retained,
    "a graph that was freed": of_failing,
    "no gradient": lambda _: torch.ones(1).backward(),
    "no scalar": lambda w: (w * 2).backward(),
    "no root": lambda _: torch.autograd.backward(()),
    "no tensor": lambda _: torch.autograd.backward(3),
    "no argument": lambda _: torch.autograd.backward(),
    "a transform": of_transform,
}


@pytest.mark.filterwarnings("ignore:Using backward")
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS.keys())
def test_gradients_and_errors_are_those_of_torch(call: Callable[[Any], Any]) -> None:
    """However backward is called."""
    expected = gradients_of(call)
    waits = CollectedWaits()
    replaced = measured_backward.replace_backward(waits)
    try:
        result = gradients_of(call)
    finally:
        replaced.restore()
    assert result == expected
    assert GUARD.counts() == {}
    is_run = not isinstance(expected[0], type) or call is of_failing
    assert bool(waits.added) == (is_run and call is not CALLS["no root"])


def test_an_iterator_of_roots_is_left_to_torch(collected: CollectedWaits) -> None:
    """It can be read only once."""
    weight = torch.ones(3, requires_grad=True)
    torch.autograd.backward(iter([weight.sum(), (weight**2).sum()]))
    assert weight.grad.tolist() == [3.0] * 3
    assert not collected.added


def test_hooks_leave_nothing_behind() -> None:
    """On a root that is used again and again."""
    replaced = measured_backward.replace_backward(Waits())
    try:
        weight = torch.ones(1, requires_grad=True)
        loss = (weight**2).sum()
        for _ in range(10_000):
            loss.backward(retain_graph=True)
    finally:
        replaced.restore()
    assert len(loss._backward_hooks) == 0


def test_a_subclass_or_a_mode_sees_no_hook_of_ours(collected: CollectedWaits) -> None:
    """What torch functions a training intercepts stay those that it calls."""
    seen = []

    class Mode(torch.overrides.TorchFunctionMode):  # type: ignore[misc]
        def __torch_function__(
            self, function: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            seen.append(function.__name__)
            return function(*args, **(kwargs or {}))

    loss = loss_with(lambda: None)
    with Mode():
        torch.autograd.backward(loss)
    assert "register_hook" not in seen
    assert len(collected.added) == 1


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
@pytest.mark.usefixtures("measuring")
def test_a_script_that_calls_backward_is_compiled_as_before() -> None:
    """TorchScript knows torch's function by its identity."""

    def train(x: torch.Tensor) -> torch.Tensor:
        torch.autograd.backward([x.sum()])
        return x

    weight = torch.ones(2, requires_grad=True)
    torch.jit.script(train)(weight)
    assert weight.grad.tolist() == [1.0, 1.0]


def test_without_a_world_backward_is_torchs_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """A training of one process waits for no one."""
    monkeypatch.setattr(dist, "is_initialized", lambda: False)
    waits = CollectedWaits()
    replaced = measured_backward.replace_backward(waits)
    loss = loss_with(lambda: None)
    loss.backward()
    replaced.restore()
    assert not waits.added
    assert loss._backward_hooks is None


def test_an_engine_that_refuses_is_survived_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Backward goes on, and its wait counts as work."""

    def refuse(_: object) -> None:
        raise RuntimeError("not here")

    monkeypatch.setattr(
        torch.autograd.Variable, "_execution_engine", SimpleNamespace(queue_callback=refuse)
    )
    waits = CollectedWaits()
    replaced = measured_backward.replace_backward(waits)
    monkeypatch.undo()
    weight = torch.ones(1, requires_grad=True)
    (weight * 2).sum().backward()
    replaced.restore()
    assert weight.grad.item() == 2
    assert GUARD.counts() == {"collective_wait": 1}
    assert not waits.added


@pytest.mark.usefixtures("measuring")
def test_backward_between_graphs_is_measured() -> None:
    """Called by a compiled function, which Dynamo leaves for it."""
    weight = torch.ones(3, requires_grad=True)

    def train(x: Any) -> Any:
        loss = (weight * x).sum()
        loss.backward()
        return x + 1

    torch._dynamo.reset()
    compiled = torch.compile(train, backend="eager")
    for _ in range(3):
        with section("backward"):
            compiled(torch.ones(3))
    waits = [record[4] for record in RECORDER.drain()]
    assert len(waits) == 3
    assert all(waited_ns > 0 for waited_ns in waits)
    assert weight.grad.tolist() == [3.0] * 3


def test_compiled_autograd_compiles_no_hook_of_ours() -> None:
    """It would compile it again with every step."""
    plain = compiled_backwards()
    waits = CollectedWaits()
    replaced = measured_backward.replace_backward(waits)
    measured = compiled_backwards()
    replaced.restore()
    assert measured == plain
    assert not waits.added


def compiled_backwards() -> list[str]:
    """The graphs that compiled autograd compiles in three steps."""
    from torch._dynamo import compiled_autograd

    graphs: list[str] = []

    def compiler(graph: Any) -> Any:
        graphs.append(graph.code)
        return torch.compile(graph, backend="eager")

    weight = torch.ones(3, requires_grad=True)
    torch._dynamo.reset()
    with compiled_autograd._enable(compiler):
        for _ in range(3):
            (weight * 2).sum().backward()
    assert weight.grad.tolist() == [6.0] * 3
    return graphs

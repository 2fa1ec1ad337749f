"""Waits that are one call of torch: what is measured, and that the call stays what it was."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from otel_straggler import section
from otel_straggler.client.collectives.calls import FUNCTIONAL, timed, timed_method
from otel_straggler.client.collectives.session import CollectiveWaits
from otel_straggler.client.collectives.waits import Waits
from otel_straggler.client.guard import GUARD
from otel_straggler.client.recording import RECORDER

torch = pytest.importorskip("torch")
dist = pytest.importorskip("torch.distributed")


class CollectedWaits(Waits):
    """Keeps each wait that would be added, with its thread."""

    def __init__(self) -> None:
        super().__init__()
        self.added: list[int] = []

    def add(self, waited_ns: int) -> None:
        assert waited_ns >= 0
        self.added.append(threading.get_ident())


@pytest.fixture(autouse=True)
def _recording() -> None:
    RECORDER.enable()


@pytest.fixture(scope="module")
def group() -> Iterator[Any]:
    """A world of one."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield dist.group.WORLD
    dist.destroy_process_group()


@pytest.fixture
def measuring() -> Iterator[None]:
    """Waits of torch go into the recorder, as ``configure()`` would have it."""
    waits = CollectiveWaits()
    waits.start()
    yield
    waits.close()


def waits_of(name: str) -> list[int]:
    return [record[4] for record in RECORDER.drain() if record[0][0].name == name]


def test_arguments_and_result_of_a_call_pass_unchanged() -> None:
    """By place and by name."""
    result = object()

    def function(*args: Any, **kwargs: Any) -> Any:
        return args, kwargs, result

    waits = CollectedWaits()
    assert timed(function, waits)(1, self=2, work=3) == ((1,), {"self": 2, "work": 3}, result)
    assert timed_method(function, waits)(1, 2, timeout=3) == ((1, 2), {"timeout": 3}, result)
    assert timed(function, waits).__name__ == "function"
    assert len(waits.added) == 2


@pytest.mark.parametrize("wrap", [timed, timed_method])
def test_an_exception_of_the_call_passes_and_its_time_counts(wrap: Any) -> None:
    """The same object, raised where it was raised; a wait that timed out was a wait, too."""
    error = RuntimeError("Timed out waiting 5000ms for recv operation to complete")

    def function(_: object) -> None:
        raise error

    waits = CollectedWaits()
    with pytest.raises(RuntimeError) as caught:
        wrap(function, waits)(1)
    assert caught.value is error
    assert caught.traceback[-1].name == "function"
    assert len(waits.added) == 1
    assert waits.may_begin()


def test_of_waits_inside_one_another_the_outermost_counts() -> None:
    """Once it is over the next one counts."""
    waits = CollectedWaits()
    inner = timed(lambda: None, waits)
    outer = timed(lambda: (inner(), inner()), waits)
    outer()
    assert len(waits.added) == 1
    inner()
    assert len(waits.added) == 2


def test_threads_wait_each_for_itself() -> None:
    """A wait in one hides none in another."""
    waits = CollectedWaits()

    def in_another() -> None:
        thread = threading.Thread(target=timed(lambda: None, waits))
        thread.start()
        thread.join()

    timed(in_another, waits)()
    assert len(set(waits.added)) == 2


def test_where_nothing_is_recorded_nothing_is_measured() -> None:
    """Before configure(), after shutdown(), in a forked child."""
    waits = CollectedWaits()
    call = timed(lambda: 1, waits)
    RECORDER.disable()
    assert call() == 1
    RECORDER.enable()
    waits.is_on = False
    assert call() == 1
    assert not waits.added


def test_a_short_wait_next_to_an_accelerator_is_a_call_that_put_work_on_a_stream(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A long one is a wait all the same."""
    added: list[int] = []
    monkeypatch.setattr(RECORDER, "add_wait", lambda ns: added.append(ns) or True)
    Waits().add(999_999)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    waits = Waits()
    waits.add(999_999)
    waits.add(1_000_000)
    assert added == [999_999, 1_000_000]


def test_a_time_that_cannot_be_is_counted_and_left_out() -> None:
    """A clock that jumped back."""
    with section("a"):
        Waits().add(-1)
    assert GUARD.counts() == {"collective_wait": 1}
    assert waits_of("a") == [0]


@pytest.mark.usefixtures("group", "measuring")
def test_a_collective_called_from_python_is_a_wait() -> None:
    """Blocking, by its handle, and a barrier; each in the section around it."""
    for call in (
        lambda: dist.all_reduce(torch.ones(1)),
        lambda: dist.all_reduce(torch.ones(1), async_op=True).wait(),
        dist.barrier,
    ):
        with section("waits"):
            call()
    with section("does not wait"):
        work = dist.all_reduce(torch.ones(1), async_op=True)
    work.wait()
    records = {record[0][0].name: record[4] for record in RECORDER.drain()}
    assert records["waits"] > 0
    assert records["does not wait"] == 0


@pytest.mark.usefixtures("measuring")
def test_a_broadcast_of_buffers_is_a_wait(group: Any) -> None:
    """DDP does it inside forward."""
    buffer = torch.ones(3)
    with section("forward"):
        dist._broadcast_coalesced(group, [buffer], 1 << 20, 0)
    assert waits_of("forward")[0] > 0


@pytest.mark.usefixtures("measuring")
def test_a_functional_collective_is_a_wait(group: Any) -> None:
    """Where its result is used."""
    functional = pytest.importorskip(FUNCTIONAL)
    with section("starts"):
        reduced = functional.all_reduce(torch.ones(2), "sum", group)
    with section("uses"):
        assert (reduced + 1).tolist() == [2.0, 2.0]
    records = {record[0][0].name: record[4] for record in RECORDER.drain()}
    assert records["starts"] == 0
    assert records["uses"] > 0


@pytest.mark.usefixtures("measuring")
def test_a_handle_that_is_a_class_of_python_waits_as_before() -> None:
    """C++ calls its methods, and finds ours where it has none of its own."""

    class Handle(dist.distributed_c10d.Work):  # type: ignore[misc]
        pass

    class Waiting(Handle):
        def wait(self, timeout: Any = None) -> Any:
            return "waited", timeout

    with section("waits"), pytest.raises(RuntimeError, match="timed out"):
        Handle().wait(timedelta(milliseconds=1))
    assert Waiting().wait(timeout=3) == ("waited", 3)
    assert waits_of("waits")[0] > 0


@pytest.mark.usefixtures("measuring")
def test_a_compiled_collective_breaks_no_graph(group: Any) -> None:
    """Where Dynamo traces a wait there is none of ours."""
    functional = pytest.importorskip(FUNCTIONAL)

    def reduce(x: Any) -> Any:
        y = functional.wait_tensor(functional.all_reduce(x * 2, "sum", group))
        z = x + 1
        dist.all_reduce(z)
        return y + z

    torch._dynamo.reset()
    compiled = torch.compile(reduce, fullgraph=True, backend="aot_eager")
    assert compiled(torch.ones(2)).tolist() == reduce(torch.ones(2)).tolist() == [4.0, 4.0]
    explained = torch._dynamo.explain(reduce)(torch.ones(2))
    assert (explained.graph_count, explained.graph_break_count) == (1, 0)


@pytest.mark.usefixtures("group", "measuring")
def test_a_wait_between_graphs_is_measured() -> None:
    """Dynamo leaves it as it is, however often it comes by."""
    works = [dist.all_reduce(torch.ones(1), async_op=True) for _ in range(3)]

    def between(x: Any) -> Any:
        x = x * 2
        works.pop().wait()
        return x + 1

    torch._dynamo.reset()
    compiled = torch.compile(between, backend="eager")
    for _ in range(3):
        with section("compiled"):
            compiled(torch.ones(2))
    assert all(waited_ns > 0 for waited_ns in waits_of("compiled"))

"""What ``watch()`` leaves behind: nothing, in whatever order things end."""

from __future__ import annotations

import copy
import gc
import io
import pickle
from collections.abc import Iterator
from typing import Any

import pytest

import otel_straggler as ots
from otel_straggler import configure, shutdown
from otel_straggler.client.collectives.replacing import replace
from otel_straggler.client.recording import RECORDER
from otel_straggler.errors import UsageError

from .watched_loops import STEP, Model, data, loader, of_step, recorded, sgd, torch, train_on

pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")
GradScaler = torch.amp.GradScaler
NOWHERE = "http://127.0.0.1:1"


class OwnLoader:
    """Anything that a loop can iterate."""

    def __iter__(self) -> Iterator[Any]:
        return iter([(torch.ones(2),)])


class OwnIterator:
    """A loader that is its own iterator."""

    def __iter__(self) -> OwnIterator:
        return self

    def __next__(self) -> Any:
        return (torch.ones(2),)


def patchable() -> list[Any]:
    """What is replaced while something is watched."""
    return [
        torch.autograd.backward,
        vars(GradScaler)["step"],
        vars(data.DataLoader)["__iter__"],
        vars(OwnLoader)["__iter__"],
        vars(OwnIterator)["__next__"],
    ]


ORIGINAL = patchable()


def hooks(model: Any, optimizer: Any) -> list[Any]:
    return [
        *model._forward_hooks.values(),
        *model._forward_pre_hooks.values(),
        *model._forward_hooks_always_called,
        *optimizer._optimizer_step_pre_hooks.values(),
        *optimizer._optimizer_step_post_hooks.values(),
    ]


@pytest.fixture(autouse=True)
def _all_as_before() -> Iterator[None]:
    RECORDER.enable()
    yield
    assert all(now is before for now, before in zip(patchable(), ORIGINAL, strict=True))


def test_closing_leaves_the_very_objects_that_were_there() -> None:
    """Classes, functions and tables of hooks, and no attribute of ours."""
    model, optimizer, batches = Model(), None, loader(1)
    optimizer = sgd(model)
    before = [set(vars(thing)) for thing in (model, optimizer, batches)]
    handle = ots.watch(model, optimizer, [batches, OwnLoader(), OwnIterator()])
    assert len(hooks(model, optimizer)) == 5
    assert sum(now is was for now, was in zip(patchable(), ORIGINAL, strict=True)) == 2
    handle.close()
    handle.close()
    assert hooks(model, optimizer) == []
    assert [set(vars(thing)) for thing in (model, optimizer, batches)] == before
    train_on(batches, model, optimizer)
    assert recorded() == []


def test_what_is_watched_twice_is_recorded_once_until_both_are_closed() -> None:
    """Nested, or by a library and by its user."""
    model, batches = Model(), loader(1)
    optimizer = sgd(model)
    outer = ots.watch(model, optimizer, batches)
    with ots.watch(model, optimizer, batches):
        train_on(batches, model, optimizer)
    one = [("data_loading", None)] * 2 + of_step(0, *STEP[1:])
    assert recorded() == one
    train_on(batches, model, optimizer)
    assert [name for name, _ in recorded()][-5:] == STEP
    outer.close()
    assert hooks(model, optimizer) == []


def test_a_refused_argument_leaves_the_others_alone() -> None:
    """All or nothing."""
    model = Model()
    optimizer = sgd(model)
    with pytest.raises(UsageError):
        ots.watch(model, optimizer, range(3))
    assert hooks(model, optimizer) == []


def test_an_iterator_in_use_goes_on_after_closing() -> None:
    """And is what its loader's iterator is."""
    batches = loader(3)
    handle = ots.watch(Model(), None, batches)
    fetched = iter(batches)
    next(fetched)
    handle.close()
    RECORDER.drain()
    assert len(list(fetched)) == 2
    assert len(fetched) == 3
    assert fetched._dataset is batches.dataset
    assert recorded() == []


def test_other_loaders_of_the_class_are_not_watched() -> None:
    """The class is replaced, the loader is what counts."""
    with ots.watch(Model(), None, loader(2)):
        list(loader(2))
    assert recorded() == []


@pytest.mark.parametrize("batches", [OwnLoader(), OwnIterator()])
def test_any_object_that_python_iterates_can_be_the_loader(batches: Any) -> None:
    """Its class has ``__iter__`` or ``__next__`` in Python."""
    with ots.watch(Model(), None, batches):
        next(iter(batches))
    assert ("data_loading", None) in recorded()


def test_a_copy_of_a_watched_model_is_not_watched() -> None:
    """Averaged weights, a checkpoint of the whole module: nothing of ours is in them."""
    model = Model()
    with ots.watch(model):
        copied = copy.deepcopy(model)
        loaded = pickle.loads(pickle.dumps(model))
        copied(torch.ones(2))
        loaded(torch.ones(2))
    assert recorded() == []
    written = io.BytesIO()
    with ots.watch(model):
        torch.save(model, written)
    assert b"otel_straggler" not in written.getvalue()


def test_what_is_garbage_is_watched_no_more() -> None:
    """A notebook builds its model again without closing; nothing keeps the old one alive."""
    model = Model()
    ots.watch(model, sgd(model), loader(1))
    del model
    gc.collect()


@pytest.mark.parametrize("is_watch_first", [True, False])
def test_watching_and_waiting_end_in_any_order(is_watch_first: bool) -> None:
    """Both replace backward; the section is always around the wait."""
    model = Model()
    configure(endpoint=NOWHERE)
    handle = ots.watch(model)
    if is_watch_first:
        handle.close()
    shutdown()
    handle.close()


def test_what_is_replaced_twice_is_restored_in_any_order() -> None:
    """The one below goes once what is above it has gone."""

    class Owner:
        def call(self) -> str:
            return ""

    before = vars(Owner)["call"]
    below, above = (
        replace(Owner, "call", lambda inner, name=name: lambda self: inner(self) + name)
        for name in "ab"
    )
    below.restore()
    assert Owner().call() == "ab"
    above.restore()
    assert vars(Owner)["call"] is before


@pytest.mark.parametrize("is_compiled_first", [True, False])
@pytest.mark.parametrize("in_place", [True, False])
def test_a_compiled_model_is_watched_without_a_graph_break(
    is_compiled_first: bool, in_place: bool
) -> None:
    """Whether it is watched before or after; ``fullgraph`` would raise."""
    torch._dynamo.reset()
    model, called = Model(), None

    def compiled() -> Any:
        if not in_place:
            return torch.compile(model, fullgraph=True, backend="eager")
        model.compile(fullgraph=True, backend="eager")
        return model

    called = compiled() if is_compiled_first else model
    optimizer = sgd(model)
    with ots.watch(called, optimizer):
        called = called if is_compiled_first else compiled()
        train_on([(torch.ones(2),)] * 2, called, optimizer)
    assert recorded() == [*of_step(0, *STEP[1:]), *of_step(1, *STEP[1:])]


def test_a_scripted_model_is_refused_and_a_traced_one_is_as_without() -> None:
    """TorchScript takes no hooks of Python."""
    model = Model()
    with pytest.raises(UsageError, match="takes hooks"):
        ots.watch(torch.jit.script(torch.nn.Linear(2, 2)))
    with ots.watch(model):
        traced = torch.jit.trace(model, torch.ones(2))
    assert "otel_straggler" not in str(traced.code)

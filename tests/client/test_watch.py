"""``watch()``: which sections and steps a bare loop has."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import pytest

import otel_straggler as ots
from otel_straggler.client import steps
from otel_straggler.client.guard import GUARD
from otel_straggler.client.recording import RECORDER
from otel_straggler.client.steps import Unrecorded
from otel_straggler.client.watch import loop as watch_loop
from otel_straggler.client.watch.handle import WATCHING
from otel_straggler.errors import UsageError

from .watched_loops import (
    STEP,
    Model,
    data,
    inside,
    loader,
    of_step,
    recorded,
    sgd,
    torch,
    train_on,
)

NEXT_FETCH = [("data_loading", None)] * 2
"""Of the first step: the loop may count itself, which shows only after these."""


@pytest.fixture(autouse=True)
def _recording() -> Iterator[None]:
    RECORDER.enable()
    GUARD.begin(is_strict=True)
    yield
    GUARD.begin(is_strict=False)


@pytest.fixture
def model() -> Any:
    return Model()


def test_a_step_is_from_one_fetch_to_the_next_and_has_four_sections(model: Any) -> None:
    """Without a mark in the loop."""
    optimizer, batches = sgd(model), loader(3)
    with ots.watch(model, optimizer, batches):
        train_on(batches, model, optimizer)
    assert recorded() == [*NEXT_FETCH, *of_step(0, *STEP[1:]), *of_step(1), *of_step(2)]


def test_nothing_happens_without_configure(model: Any) -> None:
    """A library may watch its loop and leave it to the program to switch telemetry on."""
    RECORDER.disable()
    optimizer, batches = sgd(model), loader(2)
    with ots.watch(model, optimizer, batches):
        train_on(batches, model, optimizer)
    assert recorded() == []


@pytest.mark.parametrize("how", ["all", "no optimizer", "four backwards a step", "step() as well"])
def test_a_forgotten_configure_is_one_warning_within_twenty_steps(
    model: Any, how: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``watch()`` alone is as silent as ``step()`` was; the steps of a loop that does both count
    once."""
    monkeypatch.setattr(watch_loop, "UNRECORDED", Unrecorded())
    monkeypatch.setattr(steps, "UNRECORDED", watch_loop.UNRECORDED)
    monkeypatch.setattr("otel_straggler.client.process.was_configured", lambda: False)
    RECORDER.disable()
    optimizer, batches = sgd(model), loader(200)
    seen: list[int] = []
    with ots.watch(model, None if how == "no optimizer" else optimizer, batches):
        for n, (x,) in enumerate(batches):
            if how == "step() as well":
                ots.step(n)
            model(x).sum().backward()
            if how != "four backwards a step" or n % 4 == 3:
                optimizer.step()
            seen.append(sum("configure() was not called" in text for text in caplog.messages))
    forwards = 80 if how == "four backwards a step" else 20
    assert seen == [0] * (forwards - 1) + [1] * (200 - forwards + 1)


def test_without_a_loader_a_step_is_from_one_forward_to_the_next(model: Any) -> None:
    """The data is there already, or comes from somewhere else."""
    optimizer = sgd(model)
    with ots.watch(model, optimizer):
        train_on([(torch.ones(2),)] * 2, model, optimizer)
    assert recorded() == [*of_step(0, *STEP[1:]), *of_step(1, *STEP[1:])]


def test_without_an_optimizer_a_fetch_after_a_backward_begins_the_next_step(model: Any) -> None:
    """Such as one without hooks."""
    batches = loader(2)
    with ots.watch(model, dataloader=batches):
        train_on(batches, model, sgd(model))
    names = ["forward", "backward", "step"]
    assert recorded() == [*NEXT_FETCH, *of_step(0, *names), *of_step(1, "data_loading", *names)]


def test_microbatches_are_of_one_step_until_the_optimizer_has_stepped(model: Any) -> None:
    """Gradient accumulation."""
    optimizer, batches = sgd(model), loader(4)
    with ots.watch(model, optimizer, batches):
        for at, (x,) in enumerate(batches):
            model(x).sum().backward()
            if at % 2:
                optimizer.step()
    two = ["data_loading", "forward", "backward"] * 2
    assert recorded()[2:] == [
        *of_step(0, *two[1:], "optimizer", "step"),
        *of_step(1, *two, "optimizer", "step"),
    ]


def test_a_marked_loop_counts_itself_and_its_sections_are_around_ours(model: Any) -> None:
    """No step is recorded twice, wherever the loop calls ``step()``."""
    optimizer, batches = sgd(model), loader(3)
    with ots.watch(model, optimizer, batches):
        for n, (x,) in enumerate(batches, start=100):
            ots.step(n)
            with ots.section("forward"):
                loss = model(x).sum()
            loss.backward()
            optimizer.step()
    assert [step for name, step in recorded() if name == "step"] == [100, 101]
    assert WATCHING.loop.step is None


def test_a_marked_section_is_the_parent(model: Any) -> None:
    """As of sections that are nested by hand."""
    with ots.watch(model), ots.step(0), ots.section("mine"):
        model(torch.ones(2))
    assert inside()[:2] == [("forward", "mine"), ("mine", "")]


@pytest.mark.parametrize("is_in_eval_mode", [True, False])
def test_an_evaluation_is_a_phase_and_no_part_of_a_step(model: Any, is_in_eval_mode: bool) -> None:
    """Without gradients, or in eval mode with them."""
    optimizer, batches = sgd(model), loader(1)
    with ots.watch(model, optimizer, batches):
        for _ in range(2):
            train_on(batches, model, optimizer)
            model.train(not is_in_eval_mode)
            with contextlib.nullcontext() if is_in_eval_mode else torch.no_grad():
                for (x,) in loader(2):
                    model(x)
            model.train()
    one = [("data_loading", 1), ("data_loading", 1), *of_step(1, *STEP[1:])]
    assert recorded()[2:] == [*of_step(0, *STEP[1:]), ("eval", None), *one, ("eval", None)]


def test_a_call_without_gradients_within_a_step_is_a_part_of_it(model: Any) -> None:
    """A teacher, or the policy before an update."""
    optimizer = sgd(model)
    with ots.watch(model, optimizer):
        for _ in range(2):
            loss = model(torch.ones(2)).sum()
            with torch.no_grad():
                model(torch.ones(2))
            loss.backward()
            optimizer.step()
    assert recorded() == [*of_step(0, *STEP[1:]), *of_step(1, *STEP[1:])]


def test_a_model_that_trains_in_eval_mode_is_not_evaluated(model: Any) -> None:
    """Fine-tuning with frozen statistics; its first backward shows it."""
    model.eval()
    optimizer = sgd(model)
    with ots.watch(model, optimizer):
        train_on([(torch.ones(2),)] * 3, model, optimizer)
    assert recorded()[-4:] == of_step(2, *STEP[1:])


def test_of_models_inside_one_another_the_outermost_counts(model: Any) -> None:
    """Such as DDP and what it wraps."""
    outer = torch.nn.Sequential(model, Model())
    with ots.watch([outer, model]):
        outer(torch.ones(2))
        model(torch.ones(2))
    assert recorded() == [("forward", 0), ("forward", 0), ("step", 0)]


def test_two_networks_that_train_each_other_are_in_one_step() -> None:
    """Two optimizers; the next step begins when both have stepped."""
    generator, critic = Model(), Model()
    optimizers = sgd(generator), sgd(critic)
    with ots.watch([generator, critic], optimizers):
        for _ in range(3):
            for model, optimizer in zip((generator, critic), optimizers, strict=True):
                model(torch.ones(2)).sum().backward()
                optimizer.step()
    steps = [step for name, step in recorded() if name == "optimizer"]
    assert steps == [0, 0, 1, 1, 2, 2]


def test_a_fetch_begins_the_step_of_two_networks() -> None:
    """However many optimizers step in it."""
    generator, critic, batches = Model(), Model(), loader(3)
    optimizers = sgd(generator), sgd(critic)
    with ots.watch([generator, critic], optimizers, batches):
        for (x,) in batches:
            for model, optimizer in zip((generator, critic), optimizers, strict=True):
                model(x).sum().backward()
                optimizer.step()
    assert [step for name, step in recorded() if name == "optimizer"] == [0, 0, 1, 1, 2, 2]


def test_an_optimizer_that_calls_forward_and_backward_has_them_inside(model: Any) -> None:
    """L-BFGS; each of its steps is a step."""
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=1)

    def closure() -> Any:
        optimizer.zero_grad()
        loss = model(torch.ones(2)).square().sum()
        loss.backward()
        return loss

    with ots.watch(model, optimizer):
        for _ in range(2):
            optimizer.step(closure)
    assert inside()[-4:] == [
        ("forward", "optimizer"),
        ("backward", "optimizer"),
        ("optimizer", ""),
        ("step", ""),
    ]
    assert WATCHING.loop.step == 1


def test_a_step_that_the_gradient_scaler_leaves_out_is_a_step(model: Any) -> None:
    """Its gradients overflowed: the optimizer itself is not called."""
    optimizer, batches = sgd(model), loader(2)
    scaler = torch.amp.GradScaler("cpu")
    with ots.watch(model, optimizer, batches):
        for (x,) in batches:
            scaler.scale(model(x * float("inf")).sum()).backward()
            scaler.step(optimizer)
            scaler.update()
    assert [step for name, step in recorded() if name == "optimizer"] == [0, 1]


def test_a_loader_of_unknown_length_ends_no_step_but_an_empty_one(model: Any) -> None:
    """The fetch that finds the end is in a step of its own."""

    class Endless(data.IterableDataset):  # type: ignore[misc,name-defined]
        def __iter__(self) -> Iterator[Any]:
            return iter([(torch.ones(2),)] * 2)

    optimizer, batches = sgd(model), data.DataLoader(Endless(), batch_size=None)
    with ots.watch(model, optimizer, batches):
        train_on(batches, model, optimizer)
    assert recorded()[2:] == [
        *of_step(0, *STEP[1:]),
        *of_step(1),
        *of_step(2, "data_loading", "step"),
    ]


def test_a_loader_that_is_fetched_from_ahead_does_not_move_steps(model: Any) -> None:
    """As Accelerate does: the next batch is fetched before this one is worked on."""
    optimizer, batches = sgd(model), loader(4)
    with ots.watch(model, optimizer, batches):
        fetched = iter(batches)
        (x,) = next(fetched)
        for _ in range(3):
            loss = model(x).sum()
            (x,) = next(fetched)
            loss.backward()
            optimizer.step()
    steps = [step for name, step in recorded() if name == "optimizer"]
    assert steps == [0, 1, 2]


def test_data_that_is_loaded_once_does_not_make_one_step_of_all(
    model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After so many optimizer steps without a fetch, forward begins steps."""
    monkeypatch.setattr(watch_loop, "MAX_OPTIMIZER_STEPS", 2)
    optimizer, batches = sgd(model), loader(1)
    with ots.watch(model, optimizer, batches):
        (x,) = next(iter(batches))
        train_on([(x,)] * 4, model, optimizer)
    assert [step for name, step in recorded() if name == "optimizer"] == [0, 0, 1, 2]


def test_an_optimizer_out_of_sight_does_not_make_one_step_of_all(
    model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as a compiled one: after so many backwards, they count."""
    monkeypatch.setattr(watch_loop, "MAX_BACKWARDS", 2)
    watched = sgd(model)
    with ots.watch(model, watched):
        train_on([(torch.ones(2),)] * 5, model, sgd(model))
    assert [step for name, step in recorded() if name == "backward"] == [0, 0, 0, 1, 2]


def test_a_forward_that_raises_ends(model: Any) -> None:
    """And its exception is the user's."""
    with ots.watch(model), contextlib.suppress(RuntimeError):
        model(torch.ones(3))
    assert recorded() == [("forward", 0), ("step", 0)]


def test_what_an_interrupt_leaves_open_ends_with_the_next_fetch(model: Any) -> None:
    """An exception that is no Exception passes by the hooks of modules."""
    optimizer, batches = sgd(model), loader(2)
    interrupt = model.linear.register_forward_hook(lambda *_: exec("raise KeyboardInterrupt"))
    with ots.watch(model, optimizer, batches):
        with contextlib.suppress(KeyboardInterrupt):
            train_on(batches, model, optimizer)
        interrupt.remove()
        train_on(batches, model, optimizer)
    assert [step for name, step in recorded() if name == "optimizer"] == [0, 1]


def test_another_thread_is_no_part_of_the_loop(model: Any) -> None:
    """Inference next to training, or a thread that fetches ahead."""
    optimizer = sgd(model)
    with ots.watch(model, optimizer):
        train_on([(torch.ones(2),)], model, optimizer)
        thread = threading.Thread(target=lambda: model(torch.ones(2)))
        thread.start()
        thread.join()
    assert recorded() == of_step(0, *STEP[1:])


def test_a_model_that_the_loop_does_not_call_is_one_line_in_the_log(
    model: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """As long as the model lives: what is garbage is not expected."""
    optimizer = sgd(model)
    with ots.watch(Model(), optimizer):
        train_on([(torch.ones(2),)] * 40, model, optimizer)
    assert sum("was not called" in message for message in caplog.messages) == 0
    unused = Model()
    with ots.watch(unused, optimizer):
        train_on([(torch.ones(2),)] * 40, model, optimizer)
    assert sum("was not called" in message for message in caplog.messages) == 1


def test_a_failure_of_ours_does_not_reach_training(
    model: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is logged once and counted."""
    GUARD.begin(is_strict=False)
    optimizer, batches = sgd(model), loader(3)
    with ots.watch(model, optimizer, batches):
        monkeypatch.setattr(RECORDER, "begin_step", lambda _: exec("raise OSError('planted')"))
        train_on(batches, model, optimizer)
    assert GUARD.counts()["watch"] >= 2
    assert sum("planted" in message for message in caplog.messages) == 1


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (({},), "watch(model=...): got 'dict'; expected a torch.nn.Module"),
        ((Model(), "adam"), "watch(optimizer=...): got 'str'; expected a torch.optim.Optimizer"),
        ((Model(), None, range(3)), "watch(dataloader=...): got 'range'; expected an object of a"),
        ((Model(), None, torch.ones(3)), "watch(dataloader=...): got 'Tensor'"),
    ],
)
def test_what_cannot_be_watched_is_refused(given: tuple[Any, ...], expected: str) -> None:
    """And nothing is watched."""
    with pytest.raises(UsageError, match="expected") as refused:
        ots.watch(*given)
    assert expected in str(refused.value)
    assert not given[0] if given[0] == {} else not given[0]._forward_hooks

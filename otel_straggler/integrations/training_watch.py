"""What the integrations of Transformers, Accelerate and DeepSpeed share: the parts of a training
that a trainer has prepared, watched as by ``otel_straggler.watch``."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

from otel_straggler.client.callables import CallableId, WrappedCallables
from otel_straggler.client.watch.attaching import Undo, attach_loaders, attach_model
from otel_straggler.client.watch.handle import WATCHING, Watch, watch
from otel_straggler.client.watch.loop import Loop
from otel_straggler.errors import UsageError

MAX_WRAPPERS = 4
"""Around an optimizer: Accelerate's around DeepSpeed's around torch's."""


class TrainingWatch:
    """Models, optimizers and loaders of one training, watched until ``close()``; a ``with`` block
    closes it, too."""

    def __init__(self) -> None:
        self._handles: list[Watch] = []

    def __enter__(self) -> TrainingWatch:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Leave all as it was. Safe to call twice."""
        while self._handles:
            self._handles.pop().close()

    def add(self, thing: Any) -> None:
        """Watch what a trainer has prepared; of what is none of the three, nothing.

        Raises:
            UsageError: it is one of them, but cannot be watched.
        """
        torch = sys.modules["torch"]
        if is_engine(thing):
            self._handles.append(_watched(thing, attach_engine))
        elif isinstance(thing, torch.nn.Module):
            self._handles.append(watch(thing))
        elif isinstance(thing, torch.utils.data.DataLoader) or hasattr(thing, "base_dataloader"):
            self.add_loader(thing)
        elif isinstance(thing, torch.optim.Optimizer) or hasattr(thing, "param_groups"):
            self._handles.append(watch_wrapped_optimizer(thing))

    def add_loader(self, loader: Any) -> None:
        """Watch any object that can be iterated.

        Raises:
            UsageError: it cannot be.
        """
        self._handles.append(watch([], dataloader=loader))

    def add_loaders_like(self, loader: Any) -> None:
        """Watch all loaders of the class of ``loader``: a trainer that goes on from a checkpoint
        makes another one."""
        self._handles.append(_watched(type(loader), _attach_class))


def watch_wrapped_optimizer(optimizer: Any) -> Watch:
    """Watch the innermost optimizer that takes hooks.

    Raises:
        UsageError: there is none.
    """
    for _ in range(MAX_WRAPPERS):
        try:
            return watch([], optimizer)
        except UsageError:
            if not hasattr(optimizer, "optimizer"):
                raise
            optimizer = optimizer.optimizer
    return watch([], optimizer)


def is_engine(thing: Any) -> bool:
    """Whether it is DeepSpeed's: a module that has its own backward and step."""
    return all(
        callable(getattr(thing, name, None))
        for name in ("backward", "step", "is_gradient_accumulation_boundary")
    )


def attach_engine(loop: Loop, engine: Any) -> Undo:
    """Have an engine of DeepSpeed report its forward, backward and step. Its backward averages
    gradients after torch's is over; its step is one of the optimizer only where
    ``global_steps`` grows, though gradients that overflow may leave that out.

    Raises:
        AttributeError, TypeError: it is none.
    """
    wrapped = WrappedCallables()
    undo_model = attach_model(loop, engine)
    try:
        wrapped.wrap(CallableId(engine, "backward"), functools.partial(_as_backward, loop))
        wrapped.wrap(CallableId(engine, "step"), functools.partial(_as_step, loop, engine))
        loop.optimizers.add(engine)
    except UsageError as error:
        wrapped.restore()
        undo_model()
        raise TypeError(str(error)) from error

    def undo() -> None:
        wrapped.restore()
        loop.optimizers.discard(engine)
        undo_model()

    return undo


def _as_backward(loop: Loop, original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def backward(*args: Any, **kwargs: Any) -> Any:
        was_begun = loop.begin_backward()
        try:
            return original(*args, **kwargs)
        finally:
            if was_begun:
                loop.end_backward()

    return backward


def _as_step(loop: Loop, engine: Any, original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def step(*args: Any, **kwargs: Any) -> Any:
        steps_before = engine.global_steps
        loop.begin_optimizer(engine)
        try:
            return original(*args, **kwargs)
        finally:
            loop.end_optimizer(engine, engine.global_steps != steps_before)

    return step


def _watched(thing: Any, attach: Callable[[Loop, Any], Undo]) -> Watch:
    try:
        return Watch([WATCHING.attach(thing, attach)])
    except (AttributeError, TypeError) as error:
        name = getattr(thing, "__name__", type(thing).__name__)
        raise UsageError.of(
            "watching a training",
            f"{name}: {error}",
            "an engine of DeepSpeed, or a class of loaders",
            "Mark the loop with section() and step() instead.",
        ) from error


def _attach_class(loop: Loop, owner: type) -> Undo:
    definer = next(each for each in owner.__mro__ if "__iter__" in vars(each))
    return attach_loaders(loop, definer, lambda each: isinstance(each, owner)).restore

"""Which models a training loop calls, found by what its optimizer trains."""

from __future__ import annotations

import contextlib
import gc
import sys
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from otel_straggler.client.watch.loop import Loop

Detach = Callable[[], None]
MAX_DEPTH: Final = 3
"""Of modules below those that contain all others: a trainer may be a module that is never called."""
STEPS_OF_A_LEVEL: Final = 2


class ModelSearch:
    """Looks for the outermost modules that are called, one level after the other.

    Cost: one walk over all objects of the process, some tenths of a second, once; then hooks on few
    modules. No global hook of modules: it would slow every submodule, and compiled code down.

    Args:
        optimizer: whose parameters the models have; None: whatever has any to train.
        attach: has a module report its calls; gives what undoes it.
    """

    def __init__(self, loop: Loop, optimizer: Any, attach: Callable[[Any], Detach]) -> None:
        self._loop = loop
        self._attach = attach
        self._depth = 0
        self._steps = 0
        self._attached: list[tuple[weakref.ref[Any], Detach]] = []
        self.is_over = False
        self._put_hooks(find_roots(optimizer))

    def observe_step(self) -> None:
        """Once a step is over: keep what was called, or go a level deeper."""
        self._steps += 1
        if self.is_over or self._steps < STEPS_OF_A_LEVEL:
            return
        models = [(alive(), detach) for alive, detach in self._attached]
        called = [model for model, _ in models if model is not None and model in self._loop.called]
        if called:
            self._keep(called)
            return
        self.close()
        if self._depth < MAX_DEPTH:
            self._depth += 1
            self.is_over = False
            self._put_hooks(_trained_children(model for model, _ in models if model is not None))

    def close(self) -> None:
        """Leave no hook behind."""
        self.is_over = True
        while self._attached:
            self._attached.pop()[1]()

    def _keep(self, called: list[Any]) -> None:
        self.is_over = True
        is_kept = [alive() in called for alive, _ in self._attached]
        for (_, detach), keep in zip(self._attached, is_kept, strict=True):
            if not keep:
                detach()
        self._attached = [a for a, keep in zip(self._attached, is_kept, strict=True) if keep]

    def _put_hooks(self, models: Iterable[Any]) -> None:
        self._steps = 0
        for model in models:
            with contextlib.suppress(AttributeError, TypeError, RuntimeError):  # scripted ones
                self._attached.append((weakref.ref(model), self._attach(model)))


def find_roots(optimizer: Any) -> list[Any]:
    """Modules that are in no other, and have parameters that ``optimizer`` trains; if it has others
    (sharded copies), those that are trained at all."""
    modules = _modules()
    inner = {id(child) for module in modules for child in module.children()}
    roots = [module for module in modules if id(module) not in inner]
    groups = [] if optimizer is None else optimizer.param_groups
    trained = {id(parameter) for group in groups for parameter in group["params"]}
    own = [m for m in roots if any(id(parameter) in trained for parameter in m.parameters())]
    return own or [module for module in roots if _is_trained(module)]


def _modules() -> list[Any]:
    """All that are alive and were made to their end."""
    base = sys.modules["torch"].nn.Module
    return [
        thing
        for thing in gc.get_objects()
        if issubclass(type(thing), base) and "_modules" in vars(thing)
    ]


def _trained_children(models: Iterable[Any]) -> Iterator[Any]:
    return (child for model in models for child in model.children() if _is_trained(child))


def _is_trained(module: Any) -> bool:
    return module.training and any(p.requires_grad for p in module.parameters())

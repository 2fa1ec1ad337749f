"""How torch reports to a :class:`Loop` what happens, and how each of these ways is undone.

Models and optimizers have hooks for it. Data is fetched by ``__iter__`` and ``__next__``, which
Python looks up in the class: they are replaced there, for the loaders that are watched.
"""

from __future__ import annotations

import functools
import sys
import weakref
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any, Final, Protocol

from otel_straggler.client.collectives.backward_calls import BACKWARD_CALLS, Proceed
from otel_straggler.client.collectives.replacing import Restorable, replace
from otel_straggler.client.compiled import never_compile
from otel_straggler.client.watch.loop import Loop

Undo = Callable[[], None]
_SCALERS: Final = ("torch.amp.grad_scaler", "torch.cuda.amp.grad_scaler")
"""Where ``GradScaler.step`` is defined; the second in torch before 2.3."""


class _Removable(Protocol):
    def remove(self) -> None: ...


# --- models --------------------------------------------------------------------------------------


class _Hook:
    """A hook of a module. A copy of the module, by ``deepcopy`` or ``pickle``, has one that does
    nothing and is no part of this package."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop

    def __reduce__(self) -> tuple[Any, ...]:
        return getattr, (nullcontext(), "__exit__")


class _BeginForward(_Hook):
    @never_compile
    def __call__(self, model: Any, *_: Any) -> None:
        self._loop.begin_forward(model)


class _EndForward(_Hook):
    @never_compile
    def __call__(self, *_: Any) -> None:
        self._loop.end_forward()


def attach_model(loop: Loop, model: Any) -> Undo:
    """Have ``model`` report its calls.

    Raises:
        AttributeError, TypeError: it takes no hooks.
    """
    handles: list[_Removable] = [
        model.register_forward_pre_hook(_BeginForward(loop), prepend=True),
        model.register_forward_hook(_EndForward(loop), always_call=True),
    ]
    return _joined(loop.models, model, handles)


# --- optimizers ----------------------------------------------------------------------------------


def attach_optimizer(loop: Loop, optimizer: Any) -> Undo:
    """Have ``optimizer`` report its steps; of one that wraps another, the other.

    Raises:
        AttributeError, TypeError: it takes no hooks.
    """
    before, after = optimizer_hooks(loop)
    handles: list[_Removable] = [
        optimizer.register_step_pre_hook(before),
        optimizer.register_step_post_hook(after),
    ]
    return _joined(loop.optimizers, optimizer, handles)


def optimizer_hooks(loop: Loop) -> tuple[Callable[..., None], Callable[..., None]]:
    """What is called before and after a step."""

    @never_compile
    def before(optimizer: Any, *_: Any) -> None:
        loop.adopt_thread()
        loop.begin_optimizer(optimizer)

    @never_compile
    def after(optimizer: Any, *_: Any) -> None:
        loop.end_optimizer(optimizer)

    return before, after


def attach_scalers(loop: Loop) -> Undo:
    """Have ``GradScaler`` report its steps: it leaves those out in which gradients overflowed."""
    module = next(filter(None, map(sys.modules.get, _SCALERS)), None)
    if module is None:
        return _nothing

    def wrap(original: Any) -> Any:
        @functools.wraps(original)
        def step(self: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
            if not loop.is_watched(optimizer):
                return original(self, optimizer, *args, **kwargs)
            loop.begin_optimizer(optimizer)
            has_stepped = False
            try:
                result = original(self, optimizer, *args, **kwargs)
                has_stepped = True
            finally:
                loop.end_optimizer(optimizer, has_stepped)
            return result

        return step

    return replace(module.GradScaler, "step", wrap).restore


# --- backward ------------------------------------------------------------------------------------


def attach_backward(loop: Loop) -> Undo:
    """Have torch report every backward.

    Raises:
        AttributeError, TypeError: this torch has not what that needs.
    """

    @never_compile
    def around(proceed: Proceed, _: Any) -> Any:
        if not loop.begin_backward():
            return proceed()
        try:
            return proceed()
        finally:
            loop.end_backward()

    return BACKWARD_CALLS.add(around, is_outermost=True).restore


# --- data ----------------------------------------------------------------------------------------


class WatchedIterator:
    """An iterator of a watched loader: reports every fetch, and is its iterator otherwise."""

    def __init__(self, loop: Loop, iterator: Iterator[Any], batches: int | None) -> None:
        self._loop = loop
        self._iterator = iterator
        self._left = batches

    def __iter__(self) -> WatchedIterator:
        return self

    def __next__(self) -> Any:
        if self._left is not None:
            self._left -= 1
        return fetch(self._loop, lambda: next(self._iterator), is_last=self._left == -1)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._iterator, name)


class _SizedIterator(WatchedIterator):
    def __len__(self) -> int:
        return len(self._iterator)  # type: ignore[arg-type]


def fetch(loop: Loop, original: Callable[[], Any], *, is_last: bool = False) -> Any:
    """Call what waits for data; see ``Loop.begin_fetch``."""
    was_begun, is_exhausted = loop.begin_fetch(is_last), False
    try:
        return original()
    except StopIteration:
        is_exhausted = True
        raise
    finally:
        loop.end_fetch(was_begun, is_exhausted)


def attach_loader(loop: Loop, loader: Any) -> Undo:
    """Have ``loader`` report its fetches, also one that is an iterator itself.

    Raises:
        AttributeError, TypeError: it cannot be iterated, or its class is built in.
    """
    if isinstance(loader, sys.modules["torch"].Tensor):
        msg = "a tensor is data"
        raise TypeError(msg)
    watched = _reference(loader)
    is_iterator = hasattr(type(loader), "__next__")
    attach = attach_iterators if is_iterator else attach_loaders
    name = "__next__" if is_iterator else "__iter__"
    return attach(loop, _definer(type(loader), name), lambda each: each is watched()).restore


def attach_loaders(loop: Loop, owner: type, is_watched: Callable[[Any], bool]) -> Restorable:
    """Have loaders of a class report their fetches, by iterators that do."""

    def wrap(original: Any) -> Any:
        @functools.wraps(original)
        def __iter__(self: Any) -> Any:
            if not is_watched(self):
                return original(self)
            iterator = fetch(loop, lambda: original(self))  # begins to load
            is_sized = hasattr(iterator, "__len__")
            return (_SizedIterator if is_sized else WatchedIterator)(loop, iterator, _size(self))

        return __iter__

    return replace(owner, "__iter__", wrap)


def attach_iterators(loop: Loop, owner: type, is_watched: Callable[[Any], bool]) -> Restorable:
    """Have iterators of a class report their fetches."""

    def wrap(original: Any) -> Any:
        @functools.wraps(original)
        def __next__(self: Any) -> Any:
            if not is_watched(self):
                return original(self)
            return fetch(loop, lambda: original(self))

        return __next__

    return replace(owner, "__next__", wrap)


def _definer(owner: type, name: str) -> type:
    """The class that has ``name`` itself."""
    for each in owner.__mro__:
        if name in vars(each):
            return each
    msg = f"{owner.__name__} has no {name}"
    raise TypeError(msg)


def _size(loader: Any) -> int | None:
    """Batches of a loader; None if it does not know."""
    try:
        return len(loader)
    except Exception:  # noqa: BLE001  user code: of an endless one it may be any
        return None


def _reference(thing: Any) -> Callable[[], Any]:
    """Weak where that is possible."""
    try:
        return weakref.ref(thing)
    except TypeError:
        return lambda: thing


def _joined(known: weakref.WeakSet[Any], thing: Any, handles: list[_Removable]) -> Undo:
    """Add ``thing`` to what is known, until the hooks go."""
    known.add(thing)
    alive = weakref.ref(thing)

    def undo() -> None:
        for handle in handles:
            handle.remove()
        if (still := alive()) is not None:
            known.discard(still)

    return undo


def _nothing() -> None:
    """There is nothing to undo."""

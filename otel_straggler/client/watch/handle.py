"""``watch()``: who watches what, so that all of it is undone with the last who does."""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any

from otel_straggler.client.watch.attaching import (
    Undo,
    attach_backward,
    attach_loader,
    attach_model,
    attach_optimizer,
    attach_scalers,
)
from otel_straggler.client.watch.loop import Loop, record_failure
from otel_straggler.errors import UsageError

Attach = Callable[[Loop, Any], Undo]


class Watch:
    """What :func:`watch` watches, until ``close()`` or the end of a ``with`` block."""

    def __init__(self, watched: list[_Watched]) -> None:
        self._watched = watched

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Leave all as it was, but for what somebody else still watches. Safe to call twice."""
        while self._watched:
            WATCHING.detach(self._watched.pop())


def watch(model: Any, optimizer: Any = None, dataloader: Any = None) -> Watch:
    """Record the steps of a training loop, and their sections, without a mark in the loop.

    >>> import otel_straggler as ots
    >>> with ots.watch([]):  # ots.watch(model, optimizer, dataloader)
    ...     pass

    Sections are ``data_loading`` (waiting for ``next()`` of the loader), ``forward``, ``backward``
    (with the time waited in collectives, where gradients are averaged), and ``optimizer``. A step
    lasts from one fetch to the next after an optimizer has stepped; without a loader, from one
    forward to the next. If the loop calls ``otel_straggler.step()``, these are its steps. Nothing
    is recorded before ``configure()``: without it, one warning says so after 20 steps. Microseconds
    per step; no collective, no synchronization.

    Args:
        model: the module that the loop calls: of DDP, FSDP or ``torch.compile`` the wrapper.
        optimizer: without one, a step ends with the first fetch after a backward.
        dataloader: any object of a Python class that the loop iterates. Each of the three may be a
            list or tuple of several.

    Returns:
        A handle that undoes it. What is watched twice is recorded once, until both are closed.

    Raises:
        UsageError: one of these cannot be watched; nothing is watched then.
    """
    wanted: list[tuple[str, Any, Attach]] = [
        *(("model", each, _attach_model) for each in _several(model)),
        *(("optimizer", each, _attach_optimizer) for each in _several(optimizer)),
        *(("dataloader", each, _attach_loader) for each in _several(dataloader)),
    ]
    watched: list[_Watched] = []
    try:
        for _, each, attach in wanted:
            watched.append(WATCHING.attach(each, attach))
    except (AttributeError, TypeError, RuntimeError) as error:
        name, each, _ = wanted[len(watched)]
        Watch(watched).close()
        expected, remedy = _EXPECTED[name]
        raise UsageError.of(f"watch({name}=...)", type(each).__name__, expected, remedy) from error
    return Watch(watched)


_EXPECTED = {
    "model": (
        "a torch.nn.Module that takes hooks",
        "Pass the module that the loop calls.",
    ),
    "optimizer": (
        "a torch.optim.Optimizer, or what has one as its attribute 'optimizer'",
        "Leave it out: a step then ends with the next fetch of data.",
    ),
    "dataloader": (
        "an object of a Python class with __iter__, such as a DataLoader",
        "Leave it out, and mark the wait: with section('data_loading', kind='data').",
    ),
}


def _several(given: Any) -> Sequence[Any]:
    if given is None:
        return ()
    return given if type(given) in {list, tuple} else (given,)


def _attach_model(loop: Loop, model: Any) -> Undo:
    return attach_model(loop, model)


def _attach_optimizer(loop: Loop, optimizer: Any) -> Undo:
    try:
        return attach_optimizer(loop, optimizer)
    except AttributeError:  # Accelerate, DeepSpeed and schedulers wrap it
        return attach_optimizer(loop, optimizer.optimizer)


def _attach_loader(loop: Loop, loader: Any) -> Undo:
    return attach_loader(loop, loader)


class _Watched:
    """One object that is watched.

    Attributes:
        undo: leaves it as it was.
        watchers: how often it is watched.
        life: calls back once it is garbage.
    """

    def __init__(self, thing: Any, undo: Undo, on_end: Callable[[_Watched], None]) -> None:
        self.key = id(thing)
        self.undo = undo
        self.watchers = 1
        self.life: Any = None
        with contextlib.suppress(TypeError):  # some classes allow no weak references
            self.life = weakref.ref(thing, lambda _: on_end(self))


class _Watching:
    """What is watched in this process. What is garbage is not watched any more."""

    def __init__(self) -> None:
        self._loop: Loop | None = None
        self._watched: dict[int, _Watched] = {}
        self._of_torch: list[Undo] = []
        self._lock = threading.RLock()

    @property
    def loop(self) -> Loop:
        """The training loop, for as long as anything is watched."""
        if self._loop is None:
            self._loop = Loop()
        return self._loop

    def attach(self, thing: Any, attach: Attach) -> _Watched:
        """Attach it, unless it is attached already."""
        with self._lock:
            watched = self._watched.get(id(thing))
            if watched is not None:
                watched.watchers += 1
                return watched
            if not self._watched:
                self._begin()
            try:
                watched = _Watched(thing, attach(self.loop, thing), self._forget)
                self._watched[watched.key] = watched
            finally:
                self._end_if_unused()
            return watched

    def detach(self, watched: _Watched) -> None:
        with self._lock:
            watched.watchers -= 1
            if watched.watchers == 0:
                self._forget(watched)

    def _forget(self, watched: _Watched) -> None:
        with self._lock:
            if self._watched.get(watched.key) is not watched:
                return
            del self._watched[watched.key]
            watched.undo()
            self._end_if_unused()

    def _begin(self) -> None:
        self._loop = Loop(None if self._loop is None else self._loop.step)
        for attach in (attach_backward, attach_scalers):
            try:
                self._of_torch.append(attach(self.loop))
            except Exception as error:  # noqa: BLE001  an unknown version of torch
                record_failure(error)

    def _end_if_unused(self) -> None:
        if self._watched:
            return
        while self._of_torch:
            self._of_torch.pop()()
        self.loop.close()


WATCHING = _Watching()

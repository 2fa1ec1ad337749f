"""Watches whatever trains in this process, for programs that do not mention this package.

torch is never imported from here. Telemetry begins when the first optimizer has stepped: rank and
world are known by then, and processes that do not train (a launcher, workers of a loader) send
nothing. A program that configures telemetry itself, before that, is left to it.
"""

from __future__ import annotations

import logging
import sys
import weakref
from collections.abc import Callable
from typing import Any

from otel_straggler.client.collectives.backward_calls import BACKWARD_CALLS, Proceed
from otel_straggler.client.compiled import never_compile
from otel_straggler.client.imports import ImportWatch
from otel_straggler.client.process import configure, current, shutdown
from otel_straggler.client.recording import RECORDER
from otel_straggler.client.watch.attaching import (
    Undo,
    attach_loaders,
    attach_model,
    optimizer_hooks,
)
from otel_straggler.client.watch.handle import WATCHING
from otel_straggler.client.watch.loop import MAX_BACKWARDS, Loop, record_failure
from otel_straggler.client.watch.models import ModelSearch
from otel_straggler.semconv import Outcome

_LOG = logging.getLogger("otel_straggler")
_MAX_SEARCHES = 8
"""Each walks over all objects once; a loop has few optimizers."""


class WatchEverywhere:
    """From ``start()`` to ``stop()``."""

    def __init__(self) -> None:
        self._undo: list[Undo] = []
        self._searches: list[ModelSearch] = []
        self._searched: weakref.WeakSet[Any] = weakref.WeakSet()
        self._generation = -1
        self._has_configured = False
        self._imports = [
            ImportWatch("torch", lambda: self._survive(self._watch_torch)),
            ImportWatch("torch.utils.data.dataloader", lambda: self._survive(self._watch_loaders)),
        ]

    def start(self) -> None:
        """Watch once torch is imported."""
        self._generation = RECORDER.session.generation
        for imported in self._imports:
            imported.start()

    def stop(self, outcome: Outcome | None = "unknown") -> None:
        """Leave torch as it was, and end the telemetry that began here.

        Args:
            outcome: of the run; None: as ``otel_straggler.shutdown()`` finds it.
        """
        for imported in self._imports:
            imported.stop()
        for search in self._searches:
            search.close()
        self._searches.clear()
        while self._undo:
            self._undo.pop()()
        if self._has_configured:
            self._has_configured = False
            shutdown(outcome)

    def _survive(self, act: Callable[[], None]) -> None:
        try:
            act()
        except Exception as error:  # noqa: BLE001  an unknown version of torch
            record_failure(error)

    # --- what torch reports ----------------------------------------------------------------------

    def _watch_torch(self) -> None:
        self._attach(self, _attach_all)
        before, after = optimizer_hooks(WATCHING.loop)

        @never_compile
        def has_stepped(optimizer: Any, *_: Any) -> None:
            after(optimizer)
            self._survive(lambda: self._observe_step(optimizer))

        hooks = sys.modules["torch.optim.optimizer"]
        for register, hook in (
            (hooks.register_optimizer_step_pre_hook, before),
            (hooks.register_optimizer_step_post_hook, has_stepped),
        ):
            self._undo.append(register(hook).remove)
        self._undo.append(self._count_backwards())

    def _watch_loaders(self) -> None:
        owner = sys.modules["torch.utils.data.dataloader"].DataLoader
        self._attach(owner, _attach_every_loader)

    def _attach(self, thing: Any, attach: Callable[[Loop, Any], Undo]) -> None:
        watched = WATCHING.attach(thing, attach)
        self._undo.append(lambda: WATCHING.detach(watched))

    def _count_backwards(self) -> Undo:
        """Steps of compiled optimizers are out of sight: then backward says that this trains."""
        count = 0

        @never_compile
        def around(proceed: Proceed, _: Any) -> Any:
            nonlocal count
            count += 1
            if count == MAX_BACKWARDS:
                self._survive(self._begin_unseen)
            return proceed()

        return BACKWARD_CALLS.add(around).restore

    # --- what follows ----------------------------------------------------------------------------

    def _observe_step(self, optimizer: Any) -> None:
        self._configure_once()
        for search in self._searches:
            search.observe_step()
        if optimizer not in self._searched and len(self._searched) < _MAX_SEARCHES:
            self._searched.add(optimizer)
            self._search(optimizer)

    def _begin_unseen(self) -> None:
        if not self._searched:
            self._configure_once()
            self._search(None)

    def _search(self, optimizer: Any) -> None:
        def attach(model: Any) -> Undo:
            watched = WATCHING.attach(model, attach_model)
            return lambda: WATCHING.detach(watched)

        self._searches.append(ModelSearch(WATCHING.loop, optimizer, attach))

    def _configure_once(self) -> None:
        if self._generation < 0 or current() is not None:
            return
        is_new = RECORDER.session.generation == self._generation
        self._generation = -1
        if not is_new or RECORDER.context is not None:
            return  # the program has ended its telemetry, or has another use for it
        try:
            configure()
            self._has_configured = True
        except Exception as error:  # noqa: BLE001  the training goes on
            _LOG.warning("telemetry of this training does not begin: %s", error)


def _attach_all(loop: Loop, _: Any) -> Undo:
    loop.watches_all = True

    def undo() -> None:
        loop.watches_all = False

    return undo


def _attach_every_loader(loop: Loop, owner: Any) -> Undo:
    return attach_loaders(loop, owner, lambda _: True).restore

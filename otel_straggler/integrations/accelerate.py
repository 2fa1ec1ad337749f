"""Hugging Face Accelerate: the steps of a loop whose parts ``Accelerator.prepare`` has prepared."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from otel_straggler.client.callables import CallableId, WrappedCallables
from otel_straggler.client.steps import phase
from otel_straggler.errors import UsageError
from otel_straggler.integrations.step_sections import (
    CHECKPOINT,
    CHECKPOINT_LOAD,
    PREPARATION,
    in_phase,
)
from otel_straggler.integrations.training_watch import TrainingWatch

__all__ = ["AcceleratorWatch", "watch"]

_PREPARED = ("_models", "_optimizers", "_dataloaders")
_PHASES = {"save_state": CHECKPOINT, "load_state": CHECKPOINT_LOAD}


class AcceleratorWatch(TrainingWatch):
    """What :func:`watch` watches, until ``close()`` or the end of a ``with`` block."""

    def __init__(self, accelerator: Any) -> None:
        super().__init__()
        self._wrapped = WrappedCallables()
        try:
            for name in _PREPARED:
                for thing in getattr(accelerator, name, ()):
                    self.add(thing)
            self._wrapped.wrap(CallableId(accelerator, "prepare"), self._with_results_watched)
            for name, part in _PHASES.items():
                if hasattr(accelerator, name):
                    self._wrapped.wrap(CallableId(accelerator, name), in_phase(part))
        except UsageError:
            self.close()
            raise

    def close(self) -> None:
        self._wrapped.restore()
        super().close()

    def _with_results_watched(self, prepare: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(prepare)
        def call(*args: Any, **kwargs: Any) -> Any:
            with phase(PREPARATION):
                prepared = prepare(*args, **kwargs)
            for thing in prepared if isinstance(prepared, tuple) else (prepared,):
                self.add(thing)
            return prepared

        return call


def watch(accelerator: Any) -> AcceleratorWatch:
    """Record the steps of a loop, with data loading, forward, backward and optimizer as sections.

        accelerator = Accelerator()
        otel_straggler.configure()
        watch(accelerator)
        model, optimizer, loader = accelerator.prepare(model, optimizer, loader)

    What is prepared already is watched, too. A step ends where the optimizer really steps: batches
    whose gradients are accumulated (``accelerator.accumulate``) are one. With DeepSpeed its engine
    is watched. ``prepare``, ``save_state`` and ``load_state`` are phases. Nothing is recorded
    before ``configure()``.

    Args:
        accelerator: an ``accelerate.Accelerator``.

    Returns:
        A handle that undoes it.

    Raises:
        UsageError: it prepares nothing; and in ``prepare``: one of its results cannot be watched.
    """
    return AcceleratorWatch(accelerator)

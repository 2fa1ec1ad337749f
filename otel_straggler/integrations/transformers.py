"""Hugging Face Transformers: callbacks for ``Trainer``."""

from __future__ import annotations

import functools
import logging
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from otel_straggler.client import process
from otel_straggler.client.callables import CallableId, WrappedCallables
from otel_straggler.client.watch.handle import WATCHING
from otel_straggler.errors import UsageError
from otel_straggler.integrations.step_sections import (
    CHECKPOINT,
    CHECKPOINT_LOAD,
    PREPARATION,
    Phases,
    begin_session,
    in_phase,
)
from otel_straggler.integrations.trainer_saves import JsonState, TrainerSaves
from otel_straggler.integrations.training_watch import TrainingWatch

if TYPE_CHECKING:

    class Trainer:
        """Of Transformers."""

    class TrainerCallback:
        """Of Transformers."""
else:
    from transformers import Trainer, TrainerCallback

__all__ = ["CheckpointCallback", "StepTimingCallback"]

_LOG = logging.getLogger("otel_straggler")
_LOAD = "_load_from_checkpoint"


class StepTimingCallback(TrainerCallback):
    """Times the steps of a ``Trainer`` for a collector: what the batches of a step wait for data,
    their forward and backward, and the optimizer are sections inside of it; evaluation and
    checkpoints are phases; in a script that has called ``configure()`` before, preparation and the
    loading of a checkpoint, too.

        trainer = Trainer(..., callbacks=[StepTimingCallback()])

    Args:
        settings: those of ``configure()``, which is called when training begins, and whose session
            ends with it; unless the script has called it.

    Raises:
        ConfigError: when training begins: a setting is wrong.
    """

    def __init__(self, **settings: Any) -> None:
        self._settings = settings
        self._owns_session = False
        self._watching = TrainingWatch()
        self._phases = Phases()
        weakref.finalize(self, _ENDINGS.hold())

    def begin_preparation(self) -> None:
        """From the call of ``Trainer.train()`` to the begin of the training."""
        self._phases.begin(PREPARATION)

    def on_train_begin(self, args: Any, state: Any, control: Any, **parts: Any) -> None:
        self.close()  # of a training whose end was not seen
        self._owns_session = begin_session(self._settings)
        for name in ("model", "optimizer", "train_dataloader"):
            self._watch(name, parts.get(name))
        if state.global_step:
            self._watching.add_loaders_like(parts["train_dataloader"])

    def on_step_begin(self, args: Any, state: Any, control: Any, **parts: Any) -> None:
        self._phases.close()  # another callback may have called the checkpoint off

    def on_step_end(self, args: Any, state: Any, control: Any, **parts: Any) -> None:
        WATCHING.loop.end_step()
        self._begin_checkpoint_if_next(control)

    def on_epoch_end(self, args: Any, state: Any, control: Any, **parts: Any) -> None:
        WATCHING.loop.end_step()
        self._begin_checkpoint_if_next(control)

    def on_evaluate(self, args: Any, state: Any, control: Any, **parts: Any) -> None:
        WATCHING.loop.end_evaluation()
        if control.should_save:
            self._phases.begin(CHECKPOINT)

    def on_save(self, args: Any, state: Any, control: Any, **parts: Any) -> None:
        self._phases.end(CHECKPOINT)

    def on_train_end(self, args: Any, state: Any, control: Any, **parts: Any) -> None:
        self.close()

    def _begin_checkpoint_if_next(self, control: Any) -> None:
        if control.should_save and not control.should_evaluate:
            self._phases.begin(CHECKPOINT)

    def _watch(self, name: str, part: Any) -> None:
        """What cannot be watched is left out: training goes on."""
        try:
            self._watching.add(part)
        except UsageError as error:
            _LOG.warning("the %s of this Trainer is not watched: %s", name, error)

    def close(self) -> None:
        """End the session, if it is the callback's, and leave all as it was before the training,
        as the end of ``Trainer.train()`` does, also by an exception. Safe to call twice."""
        self._phases.close()
        self._watching.close()
        if self._owns_session:
            self._owns_session = False
            process.shutdown()


class CheckpointCallback(TrainerCallback):
    """Saves a training while it goes on, resumes it, and saves before SIGTERM ends it.

        trainer = Trainer(..., callbacks=[CheckpointCallback("checkpoints", every_steps=100)])

    Model, optimizer, scheduler, generators of random numbers, and the step are saved and restored.
    A training that is resumed ends at the same step; its data begin with an epoch. Do not give
    ``resume_from_checkpoint`` as well; ``save_strategy="no"`` saves nothing twice.

    Args:
        folder: for these checkpoints alone.
        options: further arguments of :class:`~otel_straggler.checkpoint.Manager`, such as
            ``every_steps``, ``every_s``, ``interval="optimal"``, and ``keep``.

    Raises:
        ConfigError, InputError, UsageError, UnavailableError: when training begins, as ``Manager``
            raises them.
    """

    def __init__(self, folder: str | Path, **options: Any) -> None:
        self._saves = TrainerSaves(folder, options)
        weakref.finalize(self, _ENDINGS.hold())

    def on_train_begin(self, args: Any, state: Any, control: Any, **parts: Any) -> None:
        from otel_straggler.checkpoint import training_state

        progress = JsonState(
            lambda: {"global_step": state.global_step}, lambda saved: vars(state).update(saved)
        )
        self._saves.begin(
            lambda: training_state(
                parts["model"],
                getattr(parts["optimizer"], "optimizer", parts["optimizer"]),
                scheduler=parts["lr_scheduler"],
                progress=progress,
            ),
            state.global_step,
        )
        control.should_training_stop |= 0 < state.max_steps <= state.global_step

    def on_step_end(self, args: Any, state: Any, control: Any, **parts: Any) -> None:
        if self._saves.end_step(state.global_step):
            control.should_training_stop = True

    def on_train_end(self, args: Any, state: Any, control: Any, **parts: Any) -> None:
        self._saves.close(is_clean=True)

    def close(self) -> None:
        """``Trainer.train()`` has ended, perhaps by an exception. Safe to call twice."""
        self._saves.close(is_clean=False)


class _Endings:
    """Ends of ``Trainer.train()``: a Trainer does not call its callbacks where an exception ends
    it. ``train`` is wrapped as long as there are callbacks."""

    def __init__(self) -> None:
        self._callbacks = 0
        self._wrapped = WrappedCallables()

    def hold(self) -> Callable[[], None]:
        """Wrap it for one more callback; the function that is returned takes that back."""
        self._callbacks += 1
        self._wrapped.wrap(CallableId(Trainer, "train"), _closing_callbacks)
        if hasattr(Trainer, _LOAD):
            self._wrapped.wrap(CallableId(Trainer, _LOAD), in_phase(CHECKPOINT_LOAD))
        return self._release

    def _release(self) -> None:
        self._callbacks -= 1
        if not self._callbacks:
            self._wrapped.restore()


def _closing_callbacks(train: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(train)
    def call(trainer: Any, *args: Any, **kwargs: Any) -> Any:
        its_own = [
            c
            for c in trainer.callback_handler.callbacks
            if isinstance(c, (StepTimingCallback, CheckpointCallback))
        ]
        for callback in its_own:
            if isinstance(callback, StepTimingCallback):
                callback.begin_preparation()
        try:
            return train(trainer, *args, **kwargs)
        finally:
            for callback in its_own:
                callback.close()

    return call


_ENDINGS = _Endings()

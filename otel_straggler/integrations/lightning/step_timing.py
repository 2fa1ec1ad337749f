"""Steps, sections and phases of Lightning's ``Trainer``, marked by its hooks."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import sys
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from otel_straggler.client import process
from otel_straggler.client.callables import CallableId, WrappedCallables
from otel_straggler.integrations.step_sections import (
    BACKWARD,
    CHECKPOINT,
    CHECKPOINT_LOAD,
    DATA,
    EVAL,
    FORWARD,
    OPTIMIZER,
    PREPARATION,
    Phases,
    StepSections,
    begin_session,
    in_phase,
)

_MODULES: Final = ("lightning.pytorch.callbacks", "pytorch_lightning.callbacks")
_AROUND_FETCH: Final = ("_on_before_fetch", "_on_after_fetch")
"""What the trainer's loop of an epoch calls around ``next()`` of its loader; private, so ..."""
_FETCH: Final = "train_dataloader_next"
"""... where there are none, it is found by the name that the trainer's profiler gets: dearer, as
that is called some twenty times a step."""


def _callback_classes() -> tuple[type, ...]:
    """``Callback`` of each distribution that the script has imported; else of one installed."""
    loaded = [sys.modules[name] for name in _MODULES if name in sys.modules]
    installed = (name for name in _MODULES if importlib.util.find_spec(name.split(".")[0]))
    if not loaded:
        first = next(installed, None)
        if first is None:
            message = "neither lightning nor pytorch_lightning is installed: pip install lightning"
            raise ImportError(message)
        loaded = [importlib.import_module(first)]
    return tuple(module.Callback for module in loaded)


if TYPE_CHECKING:

    class Callback:
        """Of either distribution."""
else:
    Callback = type("Callback", _callback_classes(), {})


class TrainerTiming:
    """Marks the steps of one trainer, until ``close()``; restores what it replaced."""

    def __init__(self, trainer: Any, every: int) -> None:
        self.sections = StepSections(first=trainer.global_step, every=every)
        self.phases = Phases()
        self._stepped = trainer.global_step
        self._wrapped = WrappedCallables()
        self._hooks: list[Any] = []
        forward = self.sections.timed(FORWARD)
        self._wrapped.wrap(CallableId(trainer.strategy, "training_step"), forward)
        owner, begins, ends = _fetch_hooks(trainer)
        self._wrapped.wrap(CallableId(owner, begins), self._with_fetch_begun)
        self._wrapped.wrap(CallableId(owner, ends), self._with_fetch_ended)
        self._wrapped.wrap(CallableId(trainer, "save_checkpoint"), self._in_checkpoint_phase)
        loads = CallableId(trainer.strategy, "load_checkpoint")
        self._wrapped.wrap(loads, in_phase(CHECKPOINT_LOAD))
        self.phases.begin(PREPARATION)

    def begin_training(self, trainer: Any) -> None:
        """Where training goes on from a checkpoint, so do the steps."""
        self.phases.end(PREPARATION)
        self._stepped = trainer.global_step
        self.sections.resume_at(trainer.global_step)
        for optimizer in trainer.optimizers:
            register = getattr(optimizer, "register_step_post_hook", None)
            if register is not None:
                self._hooks.append(register(lambda *_: self.sections.end(OPTIMIZER)))

    def end_batch(self, trainer: Any) -> None:
        """A batch ends the step, unless gradients are accumulated over several."""
        self.sections.end(OPTIMIZER)  # a scaler of gradients may have skipped it
        if trainer.global_step != self._stepped:
            self._stepped = trainer.global_step
            self.sections.end_step()

    def close(self) -> None:
        self.sections.close()
        self.phases.close()
        self._wrapped.restore()
        while self._hooks:
            self._hooks.pop().remove()

    def _with_fetch_begun(self, start: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(start)
        def call(*args: str, **kwargs: str) -> Any:
            if _is_fetch(*args, **kwargs):
                self.sections.begin_step()
                self.sections.begin(DATA)
            return start(*args, **kwargs)

        return call

    def _with_fetch_ended(self, stop: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(stop)
        def call(*args: str, **kwargs: str) -> Any:
            if _is_fetch(*args, **kwargs):
                self.sections.end(DATA)
            return stop(*args, **kwargs)

        return call

    def _in_checkpoint_phase(self, save: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(save)
        def call(*args: Any, **kwargs: Any) -> Any:
            self.phases.begin(CHECKPOINT)
            try:
                return save(*args, **kwargs)
            finally:
                self.phases.end(CHECKPOINT)

        return call


def _fetch_hooks(trainer: Any) -> tuple[Any, str, str]:
    """An object, and its two methods that are called around each fetch of training data."""
    epoch_loop = trainer.fit_loop.epoch_loop
    if all(hasattr(epoch_loop, name) for name in _AROUND_FETCH):
        return (epoch_loop, *_AROUND_FETCH)
    return trainer.profiler, "start", "stop"


def _is_fetch(action_name: str = _FETCH) -> bool:
    return action_name.endswith(_FETCH)


_TIMED: weakref.WeakKeyDictionary[Any, TrainerTiming] = weakref.WeakKeyDictionary()
"""By trainer: of several callbacks of ours only the first marks its steps."""


class TimingCallback(Callback):
    """Base of the callbacks here: the first in a trainer marks its steps while it fits."""

    _timing: TrainerTiming | None = None

    def begin_timing(self, trainer: Any, every: int = 1) -> None:
        if trainer not in _TIMED:
            self._timing = _TIMED[trainer] = TrainerTiming(trainer, every)

    def end_timing(self, trainer: Any) -> None:
        if self._timing is not None:
            _TIMED.pop(trainer, None)
            timing, self._timing = self._timing, None
            timing.close()

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        if self._timing is not None:
            self._timing.begin_training(trainer)

    def on_before_backward(self, *_: Any) -> None:
        if self._timing is not None:
            self._timing.sections.begin(BACKWARD)

    def on_after_backward(self, *_: Any) -> None:
        if self._timing is not None:
            self._timing.sections.end(BACKWARD)

    def on_before_optimizer_step(self, *_: Any) -> None:
        if self._timing is not None:
            self._timing.sections.begin(OPTIMIZER)

    def on_train_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if self._timing is not None:
            self._timing.end_batch(trainer)

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        if self._timing is not None:
            self._timing.sections.end_step()

    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        if self._timing is not None:
            self._timing.phases.begin(EVAL)

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        if self._timing is not None:
            self._timing.phases.end(EVAL)


class StepTimingCallback(TimingCallback):
    """Times the steps of a trainer for a collector: the sections data_loading, forward, backward
    and optimizer, and preparation, evaluation, and checkpoints saved and loaded as phases.

        trainer = Trainer(..., callbacks=[StepTimingCallback()])

    Args:
        settings: those of ``configure()``, which is called once the ranks are known and whose
            session ends with the fit; unless the script has called it.

    Raises:
        ConfigError: in ``setup``, where a setting is wrong.
    """

    def __init__(self, **settings: Any) -> None:
        self._settings = settings
        self._owns_session = False

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        if stage == "fit":
            self._owns_session = begin_session(self._settings)
            self.begin_timing(trainer)

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        self._end(trainer)

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        self._end(trainer)

    def _end(self, trainer: Any) -> None:
        self.end_timing(trainer)
        if self._owns_session:
            self._owns_session = False
            process.shutdown()

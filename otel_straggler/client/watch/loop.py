"""Sections and steps of a training loop, made of what happens in it.

A step lasts from a fetch of data to the next: it begins with the first fetch after an optimizer has
stepped. Where no fetches are seen it begins with the first forward or backward after all optimizers
of the loop have stepped. A loop that calls ``otel_straggler.step()`` itself counts itself: its
steps are the only ones. That shows once its first body runs, so the first fetch of all begins none.

What runs without gradients, or with the model in eval mode, once a step is over, is an evaluation:
it ends the step, and is the phase ``eval`` until training goes on. Within a step it is part of it.
"""

from __future__ import annotations

import functools
import logging
import sys
import threading
from collections.abc import Callable
from threading import get_ident
from typing import Any, Final, Literal, TypeVar, cast
from weakref import WeakSet

from otel_straggler.client.compiled import COMPILATION, never_compiled_inside
from otel_straggler.client.guard import GUARD
from otel_straggler.client.recording import RECORDER
from otel_straggler.client.sections import Section
from otel_straggler.client.steps import STEP_LISTENERS, UNRECORDED, Phase
from otel_straggler.errors import UnavailableError

FAILURE: Final = "watch"
"""What failures of our own code in here are counted as."""
MAX_OPTIMIZER_STEPS: Final = 64
"""In which a loop that fetches data must fetch again: one that loads all data first does not."""
MAX_BACKWARDS: Final = 64
"""In which an optimizer must step, or its steps are out of sight, such as compiled ones."""
STEPS_UNTIL_WARNING: Final = 20
_LOG = logging.getLogger("otel_straggler")

_Beginning = Literal["fetch", "forward", "backward", "optimizer"]
_Event = TypeVar("_Event", bound=Callable[..., Any])


def _survived(event: _Event) -> _Event:
    """``event``, in the thread of the loop only and while there is a session; it never raises."""

    @never_compiled_inside
    @functools.wraps(event)
    def call(self: Loop, *args: Any) -> Any:
        if COMPILATION.is_on() or get_ident() != self.thread:
            return None
        if RECORDER.context is None and not self.is_inside:
            if event.__name__ in _ONCE_A_STEP:
                self.count_unrecorded(event.__name__)
            return None
        try:
            return event(self, *args)
        except Exception as error:  # noqa: BLE001  the training goes on
            record_failure(error)
            return None

    return cast("_Event", call)


_ONCE_A_STEP: Final = frozenset({"begin_backward", "end_optimizer"})


def record_failure(error: Exception) -> None:
    """Count a failure of our own; raises it only if telemetry is strict."""
    GUARD.record(
        FAILURE,
        UnavailableError.of(
            "watching the training loop",
            f"{type(error).__name__}: {error}",
            "a loop of PyTorch",
            "Mark the loop with section() and step() instead, and report this.",
        ),
    )


class Loop:
    """What happens in the training loop of this process, from outside of it.

    Attributes:
        thread: the loop runs in; events of others are none of this loop.
        models, optimizers: that are watched.
        watches_all: whether whatever trains in this process is watched.
        called: models that were called in training since somebody emptied it.
        step: the last that it has begun; None: none in this session.
    """

    def __init__(self, step: int | None = None) -> None:
        self.step = step
        self.called: WeakSet[Any] = WeakSet()
        self.thread = threading.get_ident()
        self.models: WeakSet[Any] = WeakSet()
        self.optimizers: WeakSet[Any] = WeakSet()
        self.watches_all = False
        self._data = Section("data_loading", "data")
        self._forward = Section("forward", "compute")
        self._backward = Section("backward", "compute")
        self._optimizer = Section("optimizer", "compute")
        self._open: list[Section] = []
        self._nested = self._nested_optimizers = 0
        self._evaluation: Phase | None = None
        self._stepped: set[int] = set()
        self._cycle: set[int] = set()
        self._is_thread_known = False
        self._trains_in_eval_mode = self._trains_next = False
        self._is_fresh = False
        self._steps_uncalled = 0
        self._forwards = self._backwards = self._backwards_unseen = 0
        self._steps_since_fetch = MAX_OPTIMIZER_STEPS

    @property
    def is_inside(self) -> bool:
        """Whether a section or phase of ours is open."""
        return bool(self._open) or self._evaluation is not None

    def count_unrecorded(self, event: str) -> None:
        """A step of an optimizer without a session; a backward, where no optimizer is watched."""
        has_optimizer = self.watches_all or bool(self.optimizers)
        if has_optimizer == (event == "end_optimizer"):
            UNRECORDED.count("watch")

    def expect_optimizer(self, optimizer: Any) -> None:
        """A step is over once it has stepped, too."""
        self.optimizers.add(optimizer)
        self._cycle.add(id(optimizer))

    def is_watched(self, optimizer: Any) -> bool:
        """Whether its steps are those of this loop."""
        return self.watches_all or optimizer in self.optimizers

    # --- data ------------------------------------------------------------------------------------

    @_survived
    def begin_fetch(self, is_last: bool) -> bool:
        """Whether the wait is a section, which ``end_fetch`` ends.

        Args:
            is_last: there is no more data, as this fetch will show.
        """
        if self._data in self._open:
            return False  # a loader that reads from another
        self._unwind()
        if not self._is_training():
            self._begin_evaluation()
            return False
        self._end_evaluation()
        if is_last:
            return False
        self._begin_step_if_due("fetch")
        self._steps_since_fetch = 0
        self._enter(self._data)
        return True

    @_survived
    def end_fetch(self, was_begun: bool, is_exhausted: bool) -> None:
        """End the wait; at the end of the data also the step: what follows is between epochs."""
        if was_begun:
            self._leave(self._data)
        if not is_exhausted:
            return
        self._end_evaluation()
        if self._is_fresh or self._is_over("fetch"):
            self._end_own_step()

    # --- forward, backward, optimizer ------------------------------------------------------------

    @_survived
    def begin_forward(self, model: Any) -> None:
        """A model is called. Of calls inside one another the outermost counts."""
        if self._forward in self._open:
            self._nested += 1
            return
        self._trains_next = False
        if not self._is_training(model):
            self._begin_evaluation()
            return
        self._end_evaluation()
        self._begin_step_if_due("forward")
        self._forwards += 1
        self.called.add(model)
        self._enter(self._forward)

    @_survived
    def end_forward(self) -> None:
        """The call has returned or raised."""
        if self._nested:
            self._nested -= 1
        else:
            self._leave(self._forward)

    @_survived
    def begin_backward(self) -> bool:
        """Whether it is a section, which ``end_backward`` ends."""
        if self._backward in self._open:
            return False  # activation checkpointing
        self._leave(self._forward)
        self._trains_in_eval_mode |= not self._forwards
        self._end_evaluation()
        self._begin_step_if_due("backward")
        self._enter(self._backward)
        return True

    @_survived
    def end_backward(self) -> None:
        self._leave(self._backward)
        self._backwards += 1
        self._backwards_unseen += 1

    def adopt_thread(self) -> None:
        """The loop runs where its first optimizer steps."""
        if not self._is_thread_known:
            self._is_thread_known = True
            self.thread = threading.get_ident()

    @_survived
    def begin_optimizer(self, optimizer: Any) -> None:
        """An optimizer steps. Of those inside one another the outermost counts."""
        if self._optimizer in self._open:
            self._nested_optimizers += 1
            return
        self._unwind()
        if id(optimizer) in self._stepped:
            self._begin_step_if_due("optimizer")  # its closure runs forward and backward
        self._enter(self._optimizer)

    @_survived
    def end_optimizer(self, optimizer: Any, has_stepped: bool = True) -> None:
        """It has stepped, or its ``GradScaler`` has left the step out.

        Args:
            has_stepped: false if an exception has ended it.
        """
        if self._nested_optimizers:
            self._nested_optimizers -= 1
            return
        self._leave(self._optimizer)
        if not has_stepped:
            return
        if id(optimizer) in self._stepped:
            self._cycle = set(self._stepped)  # those that did not come back are not in this loop
        self._stepped.add(id(optimizer))
        self._cycle.add(id(optimizer))
        self._forwards = self._backwards_unseen = 0
        self._steps_since_fetch += 1
        if not self.called and self.models and not self.watches_all:
            self._warn_uncalled()

    def _warn_uncalled(self) -> None:
        self._steps_uncalled += 1
        if self._steps_uncalled == STEPS_UNTIL_WARNING:
            _LOG.warning(
                "watch(): %d optimizer steps, and the watched model was not called: no forward is "
                "recorded. Pass the module that the loop calls, such as the wrapper of DDP.",
                STEPS_UNTIL_WARNING,
            )

    @_survived
    def end_step(self) -> None:
        """A trainer says that its step is over: what follows, such as a checkpoint, is in none."""
        self._unwind()
        self._end_own_step()

    @_survived
    def end_evaluation(self) -> None:
        """A trainer says that its evaluation is over: the next fetch is of training, although the
        model may be in eval mode until its forward."""
        self._end_evaluation()
        self._trains_next = True

    def close(self) -> None:
        """Nobody watches any more: end what is open, and hear no more of iterators in use."""
        self._unwind()
        self._end_evaluation()
        self._end_own_step()
        self.thread, self._is_thread_known = 0, True

    # --- steps -----------------------------------------------------------------------------------

    def _begin_step_if_due(self, event: _Beginning) -> None:
        context = RECORDER.context
        if context is None or (context.step is not None and not self._is_over(event)):
            return
        last = RECORDER.progress().step
        if last is None:
            self.step = None  # a new session
            if event == "fetch":
                return
        elif last != self.step:
            return  # the loop counts itself
        self.step = 0 if self.step is None else self.step + 1
        RECORDER.begin_step(self.step)
        if STEP_LISTENERS.are_there:
            STEP_LISTENERS.begin_step(self.step)
        self._stepped.clear()
        self._forwards = self._backwards = 0
        self._is_fresh = True

    def _is_over(self, event: _Beginning) -> bool:
        """Whether what begins belongs to the next step."""
        is_fed = self._steps_since_fetch < MAX_OPTIMIZER_STEPS
        if self._backwards_unseen > self._max_backwards_unseen():
            return self._backwards > 0 and (event == "fetch" or (event == "forward" and not is_fed))
        if event == "fetch":
            return bool(self._stepped)
        return not is_fed and bool(self._stepped) and self._stepped >= self._cycle

    def _max_backwards_unseen(self) -> int:
        return MAX_BACKWARDS if self.optimizers or self.watches_all else 0

    def _end_own_step(self) -> None:
        context = RECORDER.context
        if context is None or context.step is None or context.step != self.step:
            return
        if RECORDER.progress().step == self.step:
            RECORDER.end_step()

    def _is_training(self, model: Any = None) -> bool:
        if not sys.modules["torch"].is_grad_enabled():
            return False
        if self._trains_in_eval_mode or self._trains_next:
            return True
        models = self.models if model is None else (model,)
        return any(each.training for each in models) or not models

    def _begin_evaluation(self) -> None:
        context = RECORDER.context
        if self._open or self._evaluation is not None or context is None or context.phase:
            return
        if context.step is not None:
            if not self._is_over("fetch") or context.step != self.step:
                return
            self._end_own_step()
        self._evaluation = Phase("eval")
        self._evaluation.__enter__()

    def _end_evaluation(self) -> None:
        evaluation, self._evaluation = self._evaluation, None
        if evaluation is not None:
            evaluation.__exit__(None, None, None)

    # --- sections --------------------------------------------------------------------------------

    def _enter(self, section: Section) -> None:
        section.__enter__()
        self._open.append(section)
        self._is_fresh &= section is self._data

    def _leave(self, section: Section) -> None:
        """End it and what is open in it; nothing if it is not open."""
        if section in self._open:
            while self._exit_innermost() is not section:
                pass

    def _unwind(self) -> None:
        """End what an exception has left open."""
        self._nested = self._nested_optimizers = 0
        while self._open:
            self._exit_innermost()

    def _exit_innermost(self) -> Section:
        section = self._open.pop()
        section.__exit__(None, None, None)
        return section

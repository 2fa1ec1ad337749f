"""The sections of a training step, begun and ended by the hooks of a trainer."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar, cast

from otel_straggler.client import process
from otel_straggler.client.sections import Section, section
from otel_straggler.client.settings import is_switched_off
from otel_straggler.client.steps import Phase, Step, phase, step

DATA: Final = "data_loading"
FORWARD: Final = "forward"
BACKWARD: Final = "backward"
OPTIMIZER: Final = "optimizer"
EVAL: Final = "eval"
CHECKPOINT: Final = "checkpoint"
CHECKPOINT_LOAD: Final = "checkpoint_load"
PREPARATION: Final = "preparation"

_Function = TypeVar("_Function", bound=Callable[..., Any])


class StepSections:
    """Steps and sections of one training loop; all calls come from its thread.

    Hooks nest in ways that sections must not: an optimizer may run forward and backward inside of
    its step, and manual optimization runs backward inside of what the trainer calls forward. So a
    section that begins suspends the one around it, which goes on when the inner one ends.

    Args:
        first: number of the first step.
        every: sections of one step in so many are timed; steps themselves always.
    """

    def __init__(self, *, first: int = 0, every: int = 1) -> None:
        self._number = first
        self._every = every
        self._step: Step | None = None
        self._is_timed = True
        self._open: list[Section] = []

    def resume_at(self, number: int) -> None:
        """Number the next step, as where training goes on from a checkpoint."""
        self._number = number

    def begin_step(self) -> None:
        """Begin a step, unless one is open."""
        if self._step is None:
            self._is_timed = self._number % self._every == 0
            self._step = step(self._number)

    def end_step(self) -> None:
        """End the open step, if any, and whatever is open in it."""
        self._close_sections()
        if self._step is not None:
            self._step.__exit__(None, None, None)
            self._step = None
            self._number += 1

    def begin(self, name: str) -> None:
        """Begin a section: ``DATA``, ``FORWARD``, ``BACKWARD`` or ``OPTIMIZER``."""
        if not self._is_timed:
            return
        if self._open:
            self._open[-1].__exit__(None, None, None)
        timer = section(name, "data" if name == DATA else "compute")
        self._open.append(timer)
        timer.__enter__()

    def end(self, name: str, error: type[BaseException] | None = None) -> None:
        """End a section and those inside of it; nothing if it is not open."""
        if not any(timer.name == name for timer in self._open):
            return
        self._open[-1].__exit__(error, None, None)
        while self._open.pop().name != name:
            pass
        if self._open:
            self._open[-1].__enter__()

    def timed(self, name: str) -> Callable[[_Function], _Function]:
        """A decorator: every call is an execution of the section."""

        def decorate(function: _Function) -> _Function:
            @functools.wraps(function)
            def call(*args: Any, **kwargs: Any) -> Any:
                self.begin(name)
                try:
                    result = function(*args, **kwargs)
                except BaseException as error:
                    self.end(name, type(error))
                    raise
                self.end(name)
                return result

            return cast("_Function", call)

        return decorate

    def close(self) -> None:
        """End all that is open. Safe to call twice."""
        self.end_step()

    def _close_sections(self) -> None:
        if self._open:
            self._open[-1].__exit__(None, None, None)
            self._open.clear()


class Phases:
    """Phases that the hooks of a trainer begin and end."""

    def __init__(self) -> None:
        self._open: list[tuple[str, Phase]] = []

    def begin(self, name: str) -> None:
        """Declare a phase; inside of itself it changes nothing."""
        if any(name == each for each, _ in self._open):
            return
        self._open.append((name, phase(name)))
        self._open[-1][1].__enter__()

    def end(self, name: str) -> None:
        """End a phase and those inside of it; nothing if it is not declared."""
        while any(name == each for each, _ in self._open):
            self._open.pop()[1].__exit__(None, None, None)

    def close(self) -> None:
        """End all. Safe to call twice."""
        while self._open:
            self._open.pop()[1].__exit__(None, None, None)


def in_phase(name: str) -> Callable[[_Function], _Function]:
    """A decorator: every call is a phase."""

    def decorate(function: _Function) -> _Function:
        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            with phase(name):
                return function(*args, **kwargs)

        return cast("_Function", call)

    return decorate


def begin_session(settings: Mapping[str, Any]) -> bool:
    """``configure(**settings)``, unless the script has done so or telemetry is switched off.

    Returns:
        Whether the session is the caller's, to be ended by its ``shutdown()``.

    Raises:
        ConfigError: a setting is wrong.
    """
    if process.current() is not None or is_switched_off(os.environ):
        return False
    process.configure(**settings)
    return True

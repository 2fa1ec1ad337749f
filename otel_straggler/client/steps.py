"""``step()``: which optimizer step the process is in."""

from __future__ import annotations

import logging
import numbers
import os
from collections import Counter
from collections.abc import Callable
from typing import Any, Literal, cast

from otel_straggler.client.compiled import COMPILATION, make_transparent, transparent
from otel_straggler.client.guard import GUARD
from otel_straggler.client.recording import RECORDER
from otel_straggler.client.sections import MAX_TEXT, Section
from otel_straggler.semconv import OTHER_SECTION, PHASE_KINDS

_MAX_NUMBER = 2**63 - 1
_LOG = logging.getLogger("otel_straggler")


class Step:
    """A step that has begun. ``with`` ends it; without, the next ``step()`` does."""

    __slots__ = ("_number",)

    def __init__(self, number: int) -> None:
        self._number = number

    def __enter__(self) -> Step:
        return self

    def __exit__(self, exc_type: Any, exc: Any, traceback: Any) -> None:
        context = RECORDER.context
        if context is not None and context.step == self._number:
            RECORDER.end_step(exc_type)


def step(n: int) -> Step:
    """Begin step ``n`` and end the one before. Inside it the same number changes nothing.

    >>> from otel_straggler import step
    >>> for n in range(2):
    ...     with step(n):
    ...         pass

    Args:
        n: the optimizer step. If it goes back, what follows counts as a restarted rank.
    """
    if COMPILATION.is_on():
        return cast("Step", transparent())
    context = RECORDER.context
    if context is None:
        UNRECORDED.count("step")
        if STEP_LISTENERS.are_there and (number := _valid_number(n)) is not None:
            STEP_LISTENERS.begin_step(number)
        return _NO_STEP
    number = _valid_number(n)
    if number is None or number == context.step:
        return _NO_STEP  # what began the step also ends it
    if RECORDER.begin_step(number):
        _LOG.warning(
            "step(n) went back to %d: what follows counts as a restarted rank. "
            "Count optimizer steps over all epochs to avoid this.",
            number,
        )
    if STEP_LISTENERS.are_there:
        STEP_LISTENERS.begin_step(number)
    return Step(number)


_NO_STEP = Step(-1)
StepListener = Callable[[int], None]


class StepListeners:
    """Called with the number of each step that begins, in the thread of the loop. There are some
    only while steps are profiled."""

    def __init__(self) -> None:
        self._listeners: tuple[StepListener, ...] = ()
        self._last: int | None = None
        self.are_there = False

    def add(self, listener: StepListener) -> None:
        self._set((*self._listeners, listener))

    def remove(self, listener: StepListener) -> None:
        """Safe to call twice."""
        self._set(tuple(each for each in self._listeners if each != listener))

    def clear(self) -> None:
        """In a forked child."""
        self._set(())

    def begin_step(self, number: int) -> None:
        """Call all of them, once for a number; one that raises is logged and not called again."""
        if number == self._last:
            return
        self._last = number
        for listener in self._listeners:
            try:
                listener(number)
            except Exception:  # noqa: BLE001  the step goes on
                _LOG.warning("profile: steps are not followed any more", exc_info=True)
                self.remove(listener)

    def _set(self, listeners: tuple[StepListener, ...]) -> None:
        self._listeners = listeners
        self._last = self._last if listeners else None
        self.are_there = bool(listeners)


STEP_LISTENERS = StepListeners()


class Unrecorded:
    """Counts steps that nobody records, and warns once: a forgotten ``configure()`` is silent."""

    def __init__(self) -> None:
        self._steps: Counter[str] = Counter()
        self._has_warned = False

    def count(self, by: Literal["step", "watch"]) -> None:
        """A step has begun. A loop may call ``step()`` and be watched: each counts by itself."""
        self._steps[by] += 1
        if self._steps[by] == _FORGOTTEN_AFTER and not self._has_warned:
            self._has_warned = True
            self._warn()

    def _warn(self) -> None:
        """Unless it is wanted: switched off, shut down, or in a forked child."""
        from otel_straggler.client.process import was_configured
        from otel_straggler.client.settings import is_switched_off

        if not was_configured() and not is_switched_off(os.environ):
            _LOG.warning(
                "otel-straggler: %d steps have begun and nothing is recorded, because configure() "
                "was not called. Call otel_straggler.configure() before the loop, or set "
                "OTEL_STRAGGLER_DISABLED=true.",
                _FORGOTTEN_AFTER,
            )


_FORGOTTEN_AFTER = 20
UNRECORDED = Unrecorded()


def _valid_number(n: object) -> int | None:
    """A tensor is refused: reading it would wait for the GPU."""
    if n is not True and n is not False and isinstance(n, numbers.Integral):
        number = int(n)
        if 0 <= number <= _MAX_NUMBER:
            return number
    GUARD.record_misuse(
        "bad_step",
        "step(n)",
        n if isinstance(n, (int, float, str)) else type(n).__name__,
        "a whole number of at least 0",
        "Pass the optimizer step as a Python int.",
    )
    return None


make_transparent(Step)


class Phase:
    """A declared phase. It records a span of its own, which is not inside itself."""

    __slots__ = ("_before", "_section")

    def __init__(self, name: str) -> None:
        self._section = Section(name, PHASE_KINDS.get(name, "other"))
        self._before: list[str] = []

    def __enter__(self) -> Phase:
        self._section.__enter__()
        self._before.append(RECORDER.set_phase(self._section.name))
        return self

    def __exit__(self, exc_type: Any, exc: Any, traceback: Any) -> None:
        if self._before:
            RECORDER.set_phase(self._before.pop())
        self._section.__exit__(exc_type, exc, traceback)


def phase(name: str) -> Phase:
    """Declare a phase of the whole process: ``with phase("eval"):``.

    Sections inside are scored apart from those of training, and heartbeats carry the phase.

    Args:
        name: "eval" and "checkpoint" are known kinds; any other name is free.
    """
    if COMPILATION.is_on():
        return cast("Phase", transparent())
    if isinstance(name, str) and name:
        return Phase(name[:MAX_TEXT])
    GUARD.record_misuse(
        "bad_phase",
        "phase(name)",
        name,
        "a text that is not empty",
        "Use phase('eval') or phase('checkpoint').",
    )
    return Phase(str(name)[:MAX_TEXT] or OTHER_SECTION)


make_transparent(Phase)

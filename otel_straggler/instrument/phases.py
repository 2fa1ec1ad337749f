"""``phase()``: a stretch of the run that is not training as usual, such as an evaluation."""

from __future__ import annotations

from types import TracebackType
from typing import cast

from otel_straggler.errors import UsageError, describe
from otel_straggler.instrument.compiled import COMPILATION, make_transparent, transparent
from otel_straggler.instrument.guard import GUARD
from otel_straggler.instrument.sections import MOST_TEXT, Section
from otel_straggler.record.active import RECORDER
from otel_straggler.semconv import OTHER_SECTION, PHASE_KINDS


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

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._before:
            RECORDER.set_phase(self._before.pop())
        self._section.__exit__(exc_type, exc, traceback)


def phase(name: str) -> Phase:
    """Declare a phase of the whole process: ``with phase("eval"):``.

    Sections inside are scored apart from those of training, and a heartbeat tells the phase.

    Args:
        name: "eval" and "checkpoint" are known kinds; any other name is free.
    """
    if COMPILATION.is_on():
        return cast("Phase", transparent())
    if isinstance(name, str) and name:
        return Phase(name[:MOST_TEXT])
    message = describe(
        where="phase(name)",
        value=name,
        expected="a text that is not empty",
        remedy="Use phase('eval') or phase('checkpoint').",
    )
    GUARD.note("bad_phase", UsageError(message))
    return Phase(str(name)[:MOST_TEXT] or OTHER_SECTION)


make_transparent(Phase)

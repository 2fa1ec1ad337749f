"""``section()``: time a named piece of a step, as a context manager or a decorator."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar, cast

from otel_straggler.client.compiled import COMPILATION, make_transparent, transparent
from otel_straggler.client.guard import GUARD
from otel_straggler.client.recorder import WorkSize
from otel_straggler.client.recording import SectionTimer
from otel_straggler.errors import UsageError
from otel_straggler.semconv import OTHER_SECTION, SECTION_KINDS, SectionKind

_Function = TypeVar("_Function", bound=Callable[..., Any])
_MAX_INTERNED = 10_000
_MAX_NUMBER = 2**63 - 1
MAX_TEXT = 1024
"""Characters of a name that are kept."""


class Section(SectionTimer):
    """A named piece of a step. Reusable, re-entrant, safe to share between threads."""

    __slots__ = ()

    def run(self, microbatch: int | None = None, tokens: int | None = None) -> SizedRun:
        """One run whose span says what it worked on: ``with forward.run(tokens=4096):``."""
        work = WorkSize(_size("microbatch", microbatch), _size("tokens", tokens))
        return SizedRun(self, work)

    def __call__(self, function: _Function) -> _Function:
        """Time every call of ``function``; for a coroutine function, until it has returned.

        Raises:
            UsageError: for a generator, whose body runs in pieces that the caller times.
        """
        _refuse_generators(self.name, function)
        if inspect.iscoroutinefunction(function):
            return cast("_Function", self._around_coroutine(function))

        @functools.wraps(function)
        def timed(*args: Any, **kwargs: Any) -> Any:
            with self:
                return function(*args, **kwargs)

        return cast("_Function", timed)

    def _around_coroutine(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        async def timed(*args: Any, **kwargs: Any) -> Any:
            begun = self.begin_detached()
            try:
                result = await function(*args, **kwargs)
            except BaseException as error:
                self.end_detached(begun, type(error))
                raise
            self.end_detached(begun, None)
            return result

        return timed

    def __repr__(self) -> str:
        return f"section({self.name!r}, kind={self.kind!r})"


class SizedRun:
    __slots__ = ("_section", "_work")

    def __init__(self, section: Section, work: WorkSize) -> None:
        self._section = section
        self._work = work

    def __enter__(self) -> SizedRun:
        self._section.begin(self._work)
        return self

    def __exit__(self, exc_type: Any, exc: Any, traceback: Any) -> None:
        self._section.__exit__(exc_type, exc, traceback)


def section(name: str, kind: SectionKind = "compute") -> Section:
    """A named piece of a step, to be timed.

    >>> from otel_straggler import section
    >>> with section("forward"):
    ...     pass
    >>> @section("load", kind="data")
    ... def load(): ...

    Args:
        name: one of a few names; what varies (step, microbatch) does not belong into it.
        kind: what the time is spent on; "wait" for collectives, "data" for input.
    """
    if COMPILATION.is_on():
        return cast("Section", transparent())
    result = _interned.get((name, kind))
    if result is None:
        result = Section(_valid_name(name), _valid_kind(kind))
        if len(_interned) < _MAX_INTERNED and (result.name, result.kind) == (name, kind):
            return _interned.setdefault((name, kind), result)
    return result


_interned: dict[tuple[str, str], Section] = {}


def _valid_name(name: object) -> str:
    if isinstance(name, str) and name:
        return name[:MAX_TEXT]
    GUARD.record_misuse(
        "bad_section",
        "section(name)",
        name,
        "a text that is not empty",
        "Name the piece of the step, for example section('forward').",
    )
    return str(name)[:MAX_TEXT] or OTHER_SECTION


def _valid_kind(kind: object) -> str:
    if kind in SECTION_KINDS:
        return str(kind)
    GUARD.record_misuse(
        "bad_section",
        "section(kind=...)",
        kind,
        "one of " + ", ".join(SECTION_KINDS),
        "Leave it out for computation.",
    )
    return "other"


def _size(what: str, value: int | None) -> int:
    if value is None:
        return -1
    if isinstance(value, int) and 0 <= value <= _MAX_NUMBER:
        return value
    GUARD.record_misuse(
        "bad_work_size",
        f"section.run({what}=...)",
        value,
        "a whole number of at least 0",
        "Pass a Python int, for example tensor.numel().",
    )
    return -1


def _refuse_generators(name: str, function: object) -> None:
    is_generator = inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function)
    if callable(function) and not is_generator:
        return
    raise UsageError.of(
        f"@section({name!r})",
        getattr(function, "__qualname__", function),
        "a function or a coroutine function, not a generator",
        "Put 'with section(...):' around the work inside it.",
    )


make_transparent(Section, SizedRun)

"""A section that is timed at every n-th run only."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from otel_straggler.instrument.sections import Section


class EveryNth:
    """One use of a section, as a context manager, or every call of what it decorates.

    Args:
        section: what times.
        is_turn: asked at every run, by the name of the section.
    """

    def __init__(self, section: Section, is_turn: Callable[[str], bool]) -> None:
        self._section = section
        self._is_turn = is_turn
        self._timed: list[bool] = []

    def __enter__(self) -> EveryNth:
        is_turn = self._is_turn(self._section.name)
        self._timed.append(is_turn)
        if is_turn:
            self._section.__enter__()
        return self

    def __exit__(self, *exc_info: Any) -> None:
        if self._timed.pop():
            self._section.__exit__(*exc_info)

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        timed, name = self._section(function), self._section.name
        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def awaited(*args: Any, **kwargs: Any) -> Any:
                return await (timed if self._is_turn(name) else function)(*args, **kwargs)

            return awaited

        @functools.wraps(function)
        def called(*args: Any, **kwargs: Any) -> Any:
            return (timed if self._is_turn(name) else function)(*args, **kwargs)

        return called

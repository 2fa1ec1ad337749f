"""Slow ranks: executions of sections take longer, by sleeping in them. Other processes of the host
do not feel it, and nothing is changed while no such fault lasts."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Iterator
from typing import Any, Final

from otel_straggler.inject.effects import Effect, Surroundings
from otel_straggler.inject.faults import Fault

_LOG = logging.getLogger("otel_straggler")
_LOCK = threading.Lock()
_METHODS: Final = ("__enter__", "__exit__", "begin")


class _Slowing:
    """All slow faults of the process that last now; patches the class of sections while there
    are any."""

    def __init__(self) -> None:
        self.faults: list[Fault] = []
        self.slowed: dict[int, int] = {}
        self._open = threading.local()
        self._patched: type[Any] | None = None

    def add(self, fault: Fault, section_type: type[Any]) -> None:
        with _LOCK:
            self.faults = [*self.faults, fault]
            self.slowed[id(fault)] = 0
            if len(self.faults) == 1:
                self._patch(section_type)

    def remove(self, fault: Fault, section_type: type[Any]) -> int:
        """How many executions have become slower."""
        with _LOCK:
            self.faults = [each for each in self.faults if each is not fault]
            if not self.faults:
                self._unpatch(section_type)
            return self.slowed.pop(id(fault), 0)

    def restore(self) -> None:
        """In a forked child, whose threads are gone, and which may hold no lock of them."""
        self.faults = []
        if self._patched is not None:
            self._unpatch(self._patched)

    def _unpatch(self, section_type: type[Any]) -> None:
        for name in _METHODS:
            delattr(section_type, name)
        self._patched = None

    def _patch(self, section_type: type[Any]) -> None:
        """The methods of the base class stay as they are; these stand before them."""
        enter, leave, begin = (getattr(section_type, name) for name in _METHODS)

        def slow_enter(section: Any) -> Any:
            self._before(section)
            result = enter(section)
            self._stack().append((section, time.perf_counter()))
            return result

        def slow_begin(section: Any, work: Any) -> None:
            self._before(section)
            begin(section, work)
            self._stack().append((section, time.perf_counter()))

        def slow_leave(section: Any, *error: Any) -> Any:
            stack = self._stack()
            if stack and stack[-1][0] is section:
                self._after(section, time.perf_counter() - stack.pop()[1], [s for s, _ in stack])
            return leave(section, *error)

        methods: tuple[Any, ...] = slow_enter, slow_leave, slow_begin
        for name, method in zip(_METHODS, methods, strict=True):
            setattr(section_type, name, method)
        self._patched = section_type

    def _stack(self) -> list[tuple[Any, float]]:
        stack: list[tuple[Any, float]] | None = getattr(self._open, "stack", None)
        if stack is None:
            stack = self._open.stack = []
        return stack

    def _before(self, section: Any) -> None:
        for fault in self.faults:
            if fault.kind == "late" and section.kind == "wait":
                self._sleep(fault, fault.size)

    def _after(self, section: Any, took_s: float, around: list[Any]) -> None:
        """Sleep inside the execution, for as long as its faults say."""
        for fault in self.faults:
            if fault.kind == "data":
                if section.kind == "data":
                    self._sleep(fault, fault.size)
            elif _is_meant(fault, section) and not any(_is_meant(fault, s) for s in around):
                self._sleep(fault, (fault.size - 1.0) * took_s)

    def _sleep(self, fault: Fault, seconds: float) -> None:
        self.slowed[id(fault)] = self.slowed.get(id(fault), 0) + 1
        time.sleep(seconds)


def _is_meant(fault: Fault, section: Any) -> bool:
    if fault.kind == "compute":
        return bool(section.kind == "compute")
    return bool(section.name == fault.kind)


_SLOWING = _Slowing()


@contextlib.contextmanager
def slow(fault: Fault, of: Surroundings) -> Iterator[None]:
    """``compute``, ``forward``, ``backward``, ``data``, ``late``."""
    _SLOWING.add(fault, of.section_type)
    try:
        yield
    finally:
        if not _SLOWING.remove(fault, of.section_type):
            _LOG.warning(
                "fault injection: %s made nothing slower: no such section has run meanwhile. Mark "
                "it with section(), or use otel-straggler run",
                fault,
            )


SLOW: Final[dict[str, Effect]] = dict.fromkeys(
    ("compute", "forward", "backward", "data", "late"), slow
)
"""By kind."""


def restore_sections() -> None:
    """In a forked child: sections are as they were."""
    _SLOWING.restore()

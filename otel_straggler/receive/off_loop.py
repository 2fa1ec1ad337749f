"""Threads for what would hold the event loop up, and with it every heartbeat."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

_Result = TypeVar("_Result")
_AT_ONCE = 2
"""More would make nothing faster: what they do is bound by processors, which others need too."""


def _nothing() -> None:
    """Nobody has to know."""


@dataclass(frozen=True, slots=True)
class _Work(Generic[_Result]):
    do: Callable[[], _Result]
    begin: Callable[[], None]


class OffLoop:
    """Runs few things at once in the loop's own threads. What waits for one waits here, in the
    order in which it came, so that it can be taken back and what it holds be let go.

    Everything is called on the event loop; only the work itself is done in a thread.
    """

    def __init__(self, at_once: int = _AT_ONCE) -> None:
        self._at_once = at_once
        self._running = 0
        self._waiting: dict[asyncio.Future[Any], _Work[Any]] = {}

    def run(
        self, do: Callable[[], _Result], begin: Callable[[], None] = _nothing
    ) -> asyncio.Future[_Result]:
        """What ``do`` gives or raises. Cancelled if the loop ends before its turn.

        Args:
            do: the work, for a thread.
            begin: called on the loop when its turn has come; then it cannot be taken back.
        """
        result: asyncio.Future[_Result] = asyncio.get_running_loop().create_future()
        self._waiting[result] = _Work(do, begin)
        self._start()
        return result

    def take_back(self, result: asyncio.Future[Any]) -> None:
        """Nobody needs it. If a thread is at it, that goes on, and what it finds is dropped."""
        self._waiting.pop(result, None)
        result.cancel()

    def _start(self) -> None:
        while self._running < self._at_once and self._waiting:
            result = next(iter(self._waiting))
            work = self._waiting.pop(result)
            if result.cancelled():
                continue
            work.begin()
            try:
                done = result.get_loop().run_in_executor(None, work.do)
            except RuntimeError:  # the threads have ended
                result.cancel()
                continue
            self._running += 1
            done.add_done_callback(partial(self._end, result))

    def _end(self, result: asyncio.Future[Any], done: asyncio.Future[Any]) -> None:
        self._running -= 1
        self._start()
        if done.cancelled():
            result.cancel()
            return
        error = done.exception()
        if result.cancelled():
            return
        if error is not None:
            result.set_exception(error)
        else:
            result.set_result(done.result())

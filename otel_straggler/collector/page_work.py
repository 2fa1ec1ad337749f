"""What takes long for pages is done beside the event loop: on few threads of its own, so that no
number of viewers holds up what ranks send, and what several ask for at once is done once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, TypeVar

_Result = TypeVar("_Result")

THREADS: Final = 4
MOST_UNDER_WAY: Final = 64
"""Different questions that are being answered at once; who asks another is told to come back."""


class BusyError(Exception):
    """Too much is being asked; the text says so to whoever asked."""


class PageWork:
    """Belongs to one event loop.

    Args:
        threads: at most.
        most: pieces of work at once, those that wait included.
    """

    def __init__(self, threads: int = THREADS, most: int = MOST_UNDER_WAY) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="straggler-pages")
        self._most = most
        self._under_way: dict[Hashable, asyncio.Future[Any]] = {}

    async def do(self, key: Hashable, make: Callable[[], _Result]) -> _Result:
        """What ``make`` returns or raises, for all who ask for ``key`` while it is being made.

        Raises:
            BusyError: too much is under way.
        """
        result = self._under_way.get(key)
        if result is None:
            if len(self._under_way) >= self._most:
                raise BusyError("too much is being asked for; ask again in a second")
            result = asyncio.get_running_loop().run_in_executor(self._pool, make)
            self._under_way[key] = result
            result.add_done_callback(lambda _: self._under_way.pop(key))
        made: _Result = await asyncio.shield(result)
        return made

    def close(self) -> None:
        """Begin nothing more; what has begun is not waited for."""
        self._pool.shutdown(wait=False, cancel_futures=True)

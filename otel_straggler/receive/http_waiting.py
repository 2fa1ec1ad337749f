"""Who gives way where all connections of an address are taken: whoever has kept one for longest
without asking for anything.

Else some hundred clients that send a byte now and then would keep everybody else out: a scraper
its metrics, a rank its telemetry. A newcomer is always let in, and is safe until its request could
have been read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from otel_straggler.receive.http_connection import Connection

_TURNS = 3
"""Of the event loop until what a client sent together with its connection has been read."""
_SLOW_S = 1.0
"""A request or an answer that takes longer may be cut off, where nobody else gives way."""


class Waiting:
    """Connections that wait for a request, in the order in which they give way. Each step costs as
    much with thousands of them as with one."""

    def __init__(self) -> None:
        self._strangers: dict[Connection, None] = {}
        self._idle: dict[Connection, None] = {}
        self.cut = 0

    def meet(self, connection: Connection, loop: asyncio.AbstractEventLoop) -> None:
        """A new connection; nobody knows yet whether it will ask for anything."""
        self._settle(connection, loop, _TURNS)

    def _settle(self, connection: Connection, loop: asyncio.AbstractEventLoop, turns: int) -> None:
        if turns:
            loop.call_soon(self._settle, connection, loop, turns - 1)
        elif connection.has_asked_nothing:
            self._strangers[connection] = None

    def rest(self, connection: Connection) -> None:
        """It has asked, and was answered."""
        self._idle.pop(connection, None)
        self._idle[connection] = None

    def part(self, connection: Connection) -> None:
        """It was told that this is the end, and has yet to close."""
        self._idle.pop(connection, None)
        self._strangers[connection] = None

    def leave(self, connection: Connection) -> None:
        """It asks for something, or is gone."""
        self._strangers.pop(connection, None)
        self._idle.pop(connection, None)

    def make_room(self, among: Collection[Connection], now_s: float) -> bool:
        """Cut one off; False if nobody is slow.

        Those that have asked for nothing go first, then those between two requests, each the one
        that has waited longest; then the slowest request or answer. Cost: O(connections) for the
        last.
        """
        longest = next(iter(self._strangers), None) or next(iter(self._idle), None)
        if longest is None:
            slow = ((each.slow_since, each) for each in among)
            late = [
                (s, id(each), each) for s, each in slow if s is not None and now_s - s > _SLOW_S
            ]
            if not late:
                return False
            longest = min(late)[2]
        self.cut += 1
        self.leave(longest)
        longest.cut_off()
        return True

"""Server-sent events of the live page: what has changed, not the new content.

Each stream polls what was last published, twice a second; nothing is queued, so a slow reader only
misses events in between.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Hashable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from otel_straggler.collector.api.cache import BusyError, PageWork
from otel_straggler.collector.views.pages import Pages

MAX_STREAMS: Final = 64
MAX_OF_CLIENT: Final = 16
"""Of one address; beyond it, and where all are taken, the oldest of the busiest ends."""
COMMENT_S: Final = 15.0
_LOOK_S: Final = 0.5
_BETWEEN_S: Final = 1.0
_FIRST: Final = "first run"
RETRY: Final = b"retry: 1000\n\n"
EVICTED: Final = b"retry: 30000\n\n"
COMMENT: Final = b": still here\n\n"


@dataclass(slots=True)
class Pace:
    """Seconds between polls, events, and comments."""

    look_s: float = _LOOK_S
    between_s: float = _BETWEEN_S
    comment_s: float = COMMENT_S


class EventStreams:
    """All open streams, at most ``maximum``, and ``of_client`` of one client; on the event loop
    only."""

    def __init__(
        self,
        run_views: Pages,
        now_s: Callable[[], float] = time.time,
        pace: Pace | None = None,
        maximum: int = MAX_STREAMS,
        of_client: int = MAX_OF_CLIENT,
        work: PageWork | None = None,
    ) -> None:
        self.run_views = run_views
        self.work = work or PageWork()
        self.now_s = now_s
        self.pace = pace or Pace()
        self._max, self._max_of_client = maximum, of_client
        self._open: dict[EventStream, None] = {}

    @property
    def n_open(self) -> int:
        return len(self._open)

    def open(self, run_id: str | None, client: str = "", prefix: str = "") -> EventStream:
        """Watch a run, also an unknown one, or the one shown by default of those whose names begin
        with ``prefix``, all that the reader may see. Beyond a limit the oldest
        stream of the client with the most ends: its page asks again later."""
        held = Counter(each.client for each in self._open)
        if held[client] >= self._max_of_client:
            self._end_oldest_of(client)
        elif len(self._open) >= self._max:
            self._end_oldest_of(max(held, key=lambda each: held[each]))
        stream = EventStream(self, run_id, client, prefix)
        self._open[stream] = None
        return stream

    def _end_oldest_of(self, client: str) -> None:
        next(each for each in self._open if each.client == client).end()

    def remove(self, stream: EventStream) -> None:
        self._open.pop(stream, None)


class EventStream:
    """The events of one reader."""

    def __init__(
        self, streams: EventStreams, run_id: str | None, client: str = "", prefix: str = ""
    ) -> None:
        self._streams = streams
        self._prefix = prefix
        self._run_id = run_id
        self.client = client
        self._is_evicted = False
        self._reported_list: Hashable = None
        self._reported_run: str | None = None
        self._reported_at_s = self._repeat_at_s = -float("inf")
        self._is_repeated = False

    def close(self) -> None:
        self._streams.remove(self)

    def end(self) -> None:
        """Give way to another; the reader is asked to come again later."""
        self._is_evicted = True
        self._streams.remove(self)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield RETRY
        text_at_s = time.monotonic()
        while not self._is_evicted:
            now_s = time.monotonic()
            n_runs, state = self._streams.run_views.list_state(self._prefix)
            before, self._reported_list = self._reported_list, state
            pieces = [] if before in (None, state) else [event("runs", {"n": n_runs})]
            pieces += await self._of_run(now_s)
            if not pieces and now_s - text_at_s >= self._streams.pace.comment_s:
                pieces.append(COMMENT)
            if pieces:
                text_at_s = now_s
                yield b"".join(pieces)
            await asyncio.sleep(self._streams.pace.look_s)
        yield EVICTED

    async def _of_run(self, now_s: float) -> list[bytes]:
        """News of the run, repeated once after the cache time: who asked too early for it may have
        got a cached view."""
        state = await self._state()
        if state is None or now_s - self._reported_at_s < self._streams.pace.between_s:
            return []
        if state == self._reported_run:
            if self._is_repeated or now_s < self._repeat_at_s:
                return []
            self._is_repeated = True
        else:
            self._reported_run, self._is_repeated = state, False
            look_s = max(self._streams.run_views.look_s, self._streams.pace.between_s)
            self._repeat_at_s = now_s + 1.5 * look_s
        self._reported_at_s = now_s
        return [event("snapshot", self._snapshot(state))]

    async def _state(self) -> str | None:
        run_views = self._streams.run_views
        if self._run_id is None:
            with contextlib.suppress(BusyError):
                find = partial(run_views.first, self._prefix)
                self._run_id = await self._streams.work.do((_FIRST, self._prefix), find)
        return None if self._run_id is None else run_views.run_state(self._run_id)

    def _snapshot(self, state: str | None) -> dict[str, Any]:
        streams = self._streams
        newest = None if self._run_id is None else streams.run_views.newest_seq(self._run_id)
        return {"snapshot": state, "now_s": round(streams.now_s(), 3), "last": newest}


def event(name: str, data: dict[str, Any]) -> bytes:
    """
    >>> event("runs", {"n": 3})
    b'event: runs\\ndata: {"n":3}\\n\\n'
    """
    return f"event: {name}\ndata: {json.dumps(data, separators=(',', ':'))}\n\n".encode()

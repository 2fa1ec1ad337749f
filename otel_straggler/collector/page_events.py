"""Server-sent events of the live page: what has changed, never what it is.

Each stream looks for itself, twice a second, at what was last published; nothing is queued for
anybody, so a slow reader only misses what it would have been told in between.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any, Final

from otel_straggler.collector.page_pictures import Pictures

MOST_STREAMS: Final = 64
COMMENT_S: Final = 15.0
_LOOK_S: Final = 0.5
_BETWEEN_S: Final = 1.0
RETRY: Final = b"retry: 1000\n\n"
COMMENT: Final = b": still here\n\n"


@dataclass(slots=True)
class Pace:
    """How often a stream looks, tells and shows that it is still there; seconds."""

    look_s: float = _LOOK_S
    between_s: float = _BETWEEN_S
    comment_s: float = COMMENT_S


class EventStreams:
    """All open streams; on the event loop only.

    Args:
        pictures: what is watched.
        now_s: wall clock.
        pace: for tests.
        most: streams at once.
    """

    def __init__(
        self,
        pictures: Pictures,
        now_s: Callable[[], float] = time.time,
        pace: Pace | None = None,
        most: int = MOST_STREAMS,
    ) -> None:
        self.pictures = pictures
        self.now_s = now_s
        self.pace = pace or Pace()
        self._most = most
        self._open = 0

    @property
    def n_open(self) -> int:
        return self._open

    def open(self, run_id: str | None) -> EventStream | None:
        """Watch a run, also one that is not known yet, or the one that is shown by default; None if
        too many are open."""
        if self._open >= self._most:
            return None
        self._open += 1
        return EventStream(self, run_id)

    def closed(self) -> None:
        self._open -= 1


class EventStream:
    """What one reader is told."""

    def __init__(self, streams: EventStreams, run_id: str | None) -> None:
        self._streams = streams
        self._run_id = run_id
        self._is_open = True

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self._pieces()

    def close(self) -> None:
        if self._is_open:
            self._is_open = False
            self._streams.closed()

    async def _pieces(self) -> AsyncIterator[bytes]:
        streams, pace = self._streams, self._streams.pace
        told_list: str | None = None
        told_run: str | None = None
        yield RETRY
        said_at_s, told_at_s = time.monotonic(), -float("inf")
        while True:
            now_s = time.monotonic()
            pieces = []
            n_runs, of_list = streams.pictures.list_state()
            if told_list not in (None, of_list):
                pieces.append(event("runs", {"n": n_runs}))
            told_list = of_list
            state = await self._state()
            if state not in (None, told_run) and now_s - told_at_s >= pace.between_s:
                told_run, told_at_s = state, now_s
                pieces.append(event("snapshot", self._snapshot(state)))
            if not pieces and now_s - said_at_s >= pace.comment_s:
                pieces.append(COMMENT)
            if pieces:
                said_at_s = now_s
                yield b"".join(pieces)
            await asyncio.sleep(pace.look_s)

    async def _state(self) -> str | None:
        pictures = self._streams.pictures
        if self._run_id is None:
            loop = asyncio.get_running_loop()
            self._run_id = await loop.run_in_executor(None, pictures.first)
        return None if self._run_id is None else pictures.run_state(self._run_id)

    def _snapshot(self, state: str | None) -> dict[str, Any]:
        streams = self._streams
        newest = None if self._run_id is None else streams.pictures.newest_seq(self._run_id)
        return {"snapshot": state, "now_s": round(streams.now_s(), 3), "last": newest}


def event(name: str, data: dict[str, Any]) -> bytes:
    """
    >>> event("runs", {"n": 3})
    b'event: runs\\ndata: {"n":3}\\n\\n'
    """
    return f"event: {name}\ndata: {json.dumps(data, separators=(',', ':'))}\n\n".encode()

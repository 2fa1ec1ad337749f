"""Bodies of requests until they are handled: the memory of all together, and how large ones are
inflated off the event loop.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Any, TypeAlias, TypeVar

from otel_straggler.collector.ingest.body import Body
from otel_straggler.collector.ingest.codings import BadBodyError, BodyTooLargeError

_log = logging.getLogger(__name__)
_Result = TypeVar("_Result")
_Contents: TypeAlias = tuple[bytes, bytes]
"""Decoded, and as it came."""
_NUMBERS = count()

_MAX_THREADS = 2
"""More would not be faster: the work is bound by processors."""
ON_LOOP_BYTES = 1024 * 1024
"""Inflated or joined on the event loop: some milliseconds; handing over less costs more."""
_SLICE_BYTES = 1024 * 1024
"""Inflated in a thread before it is another body's turn."""
_MAX_WHOLE_ON_LOOP_BYTES = 256 * 1024
"""On the wire, of a coding that is inflated in one call: most requests; the call has room for
``ON_LOOP_BYTES``, so that a bomb among them ends early."""
_MIN_SLICE_BYTES = 16 * 1024
"""Of a large body, gathered before a thread inflates them: it may come in tiny pieces."""


@dataclass(frozen=True, slots=True)
class _Job:
    work: Callable[[], Any]
    begin: Callable[[], None] | None
    is_slow: bool


class OffLoop:
    """Runs work in a few of the loop's threads, in order of arrival. What waits can be cancelled
    and its memory freed; slow work leaves one thread to the rest. Everything but the work itself
    is on the event loop."""

    def __init__(self, max_threads: int = _MAX_THREADS) -> None:
        self._free = max_threads
        self._free_for_slow = max(1, max_threads - 1)
        self._waiting: dict[asyncio.Future[Any], _Job] = {}

    def run(
        self,
        work: Callable[[], _Result],
        begin: Callable[[], None] | None = None,
        *,
        is_slow: bool = False,
    ) -> asyncio.Future[_Result]:
        """The result of ``work``; cancelled if the loop ends before its turn. ``begin`` is called
        on the loop at its turn."""
        result: asyncio.Future[_Result] = asyncio.get_running_loop().create_future()
        self._waiting[result] = _Job(work, begin, is_slow)
        self._start()
        return result

    def cancel(self, result: asyncio.Future[Any]) -> None:
        """Work that has begun goes on, and its result is dropped."""
        self._waiting.pop(result, None)
        result.cancel()

    def _start(self) -> None:
        while self._free and (result := self._next()) is not None:
            job = self._waiting.pop(result)
            if result.cancelled():
                continue
            if job.begin is not None:
                job.begin()
            try:
                done = result.get_loop().run_in_executor(None, job.work)
            except RuntimeError:  # the threads have ended
                result.cancel()
                continue
            self._free -= 1
            self._free_for_slow -= job.is_slow
            done.add_done_callback(partial(self._end, result, job))

    def _next(self) -> asyncio.Future[Any] | None:
        may_be_slow = self._free_for_slow > 0
        return next((f for f, job in self._waiting.items() if may_be_slow or not job.is_slow), None)

    def _end(self, result: asyncio.Future[Any], job: _Job, done: asyncio.Future[Any]) -> None:
        self._free += 1
        self._free_for_slow += job.is_slow
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


class Bodies:
    """All bodies of a server that are not handled yet, on the event loop; ``limit``: of bytes."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._all: set[Incoming] = set()
        self.held_bytes = 0
        self.off_loop = OffLoop()

    def hold(self, body: Incoming, held: int) -> None:
        """Record the bytes of a body. Beyond the limit the largest are refused, of equals the
        newest, so a few clients that never finish large ones keep no heartbeat out. Cost:
        O(bodies), only then."""
        self.held_bytes += held - body.held
        body.held = held
        self._all.add(body)
        while self.held_bytes > self._limit:
            largest = max(self._all, key=lambda each: (each.held, each.number))
            largest.refuse(503, "too much is being received; send it again later")

    def release(self, body: Incoming) -> None:
        self.held_bytes -= body.held
        body.held = 0
        self._all.discard(body)


class Incoming(Body):
    """The body of one request, until the request is handled or refused.

    Inflating begins on the event loop, and goes on in a thread a slice at a time, so that a bomb is
    refused and a lost client dropped early.

    Args:
        limit: of bytes.
        changed: called on the loop when it is refused, or a thread is done with it for now.

    Attributes:
        refusal: status and message.
        number: the higher, the newer.
        held: bytes.
        ours_s: that threads took, or that it waited for one.
    """

    def __init__(
        self,
        bodies: Bodies,
        limit: int,
        changed: Callable[[Incoming], None],
        *,
        coding: str,
        keep_raw: bool,
    ) -> None:
        super().__init__(limit, coding=coding, keep_raw=keep_raw)
        self.number = next(_NUMBERS)
        self.held = 0
        self.refusal: tuple[int, str] | None = None
        self._bodies = bodies
        self._changed = changed
        self._inflating: asyncio.Future[_Contents | None] | None = None
        self._handling: asyncio.Future[Any] | None = None
        self._awaited: asyncio.Future[None] | None = None
        self._contents: _Contents | None = None
        self._has_ended = False
        self._is_dropped = False
        self._ours_since = self.ours_s = 0.0

    @property
    def is_in_thread(self) -> bool:
        """Whether it waits for us, not for its sender."""
        return self._inflating is not None

    @property
    def is_ready(self) -> bool:
        """Whether it is complete, or refused."""
        return self._contents is not None or self.refusal is not None

    def feed(self, piece: bytes, max_bytes: int) -> int:
        """Add the next piece; inflates at most ``max_bytes`` now, and returns how many."""
        inflated = 0
        try:
            self.add(piece)
            is_waiting = self.is_streamed
            if is_waiting and self._inflating is None and (before := self.size) < ON_LOOP_BYTES:
                self.inflate(min(max_bytes, ON_LOOP_BYTES - before))
                inflated = self.size - before
                is_waiting = self.waiting_bytes > 0
            elif is_waiting:
                is_waiting = self.waiting_bytes >= _MIN_SLICE_BYTES
        except (BodyTooLargeError, BadBodyError) as error:
            self._refuse_for(error)
            return 0
        self._bodies.hold(self, self.held_bytes)
        if is_waiting:
            self._inflate_in_thread()
        return inflated

    def end(self) -> None:
        self._has_ended = True
        if self.refusal is not None or self._inflating is not None:
            return
        try:
            if not self.is_streamed and 0 < self.waiting_bytes <= _MAX_WHOLE_ON_LOOP_BYTES:
                self.inflate(ON_LOOP_BYTES)
            if self.size > ON_LOOP_BYTES or self.waiting_bytes:
                self._inflate_in_thread()
            else:
                self._contents = self.finish(), self.original()
        except (BodyTooLargeError, BadBodyError) as error:
            self._refuse_for(error)

    def contents(self) -> _Contents:
        assert self._contents is not None
        return self._contents

    async def wait_until_ready(self) -> None:
        """Cancelled if it is dropped."""
        if not self.is_ready:
            self._awaited = asyncio.get_running_loop().create_future()
            await self._awaited

    async def handle_in_thread(
        self, work: Callable[[], _Result], *, is_slow: bool
    ) -> _Result | None:
        """The result of ``work``, or None if the body was refused before its turn."""
        off_loop = self._bodies.off_loop
        self._handling = handling = off_loop.run(work, begin=self.release, is_slow=is_slow)
        try:
            return await handling
        except asyncio.CancelledError:
            if self.refusal is None:
                raise
            return None

    def release(self) -> None:
        """It is being handled: its memory counts elsewhere."""
        self._bodies.release(self)

    def drop(self) -> None:
        self._is_dropped = True
        self._bodies.release(self)
        self.clear()
        self._contents = None
        jobs, self._inflating, self._handling = (self._inflating, self._handling), None, None
        for job in jobs:
            if job is not None:
                self._bodies.off_loop.cancel(job)
        if self._awaited is not None:
            self._awaited.cancel()

    def refuse(self, status: int, message: str) -> None:
        self.refusal = status, message
        self._wake()
        self.drop()
        self._changed(self)

    def _refuse_for(self, error: BaseException) -> None:
        if isinstance(error, BodyTooLargeError):
            self.refuse(413, f"the body is larger than {self._limit} bytes")
        elif isinstance(error, BadBodyError):
            self.refuse(400, str(error))
        else:
            _log.error("a body could not be inflated", exc_info=error)
            self.refuse(500, "internal error")

    def _wake(self) -> None:
        if self._awaited is not None and not self._awaited.done():
            self._awaited.set_result(None)

    # --- the thread --------------------------------------------------------------------------

    def _inflate_in_thread(self) -> None:
        if self._inflating is None and not self._is_dropped:
            self._ours_since = time.monotonic()
            work = partial(self._inflate_slice, is_last=self._has_ended)
            self._inflating = self._bodies.off_loop.run(work)
            self._inflating.add_done_callback(self._inflated)

    def _inflated(self, job: asyncio.Future[_Contents | None]) -> None:
        error = None if job.cancelled() else job.exception()  # asyncio warns if nobody asks
        if job.cancelled() or self._is_dropped:
            return
        self._inflating = None
        self.ours_s += time.monotonic() - self._ours_since
        if error is not None:
            self._refuse_for(error)
            return
        self._contents = job.result()
        self._bodies.hold(self, self.held_bytes)
        if self.refusal is not None:
            return
        if self.waiting_bytes or (self._has_ended and self._contents is None):
            self._inflate_in_thread()
            return
        if self._contents is not None:
            self._wake()
        self._changed(self)

    def _inflate_slice(self, *, is_last: bool) -> _Contents | None:
        """In a thread; the contents if it was the last slice."""
        self.inflate(_SLICE_BYTES)
        is_whole = is_last and not self.waiting_bytes
        return (self.finish(), self.original()) if is_whole else None

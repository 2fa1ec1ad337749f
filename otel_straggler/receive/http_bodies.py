"""Threads for what would hold the event loop up, and with it every heartbeat."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Any, Final, Generic, TypeAlias, TypeVar

from otel_straggler.receive.body import BadBodyError, Body, BodyTooLargeError

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


_log = logging.getLogger(__name__)
_Contents: TypeAlias = tuple[bytes, bytes]
"""Decoded, and as it came."""
_NOTHING: Final = Body(0)
_NUMBERS = count()

ON_LOOP_BYTES = 1024 * 1024
"""Inflated, or joined, on the event loop: some milliseconds. To hand over less costs more."""
_AT_ONCE_BYTES = 1024 * 1024
"""Inflated in a thread before it is another body's turn."""
_WORTH_BYTES = 16 * 1024
"""Of a large body, gathered before a thread inflates them: senders may send drop by drop."""


class Bodies:
    """All bodies of a server that nobody has taken yet. Everything is on the event loop.

    Args:
        limit: bytes that may be held of them.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._all: set[Incoming] = set()
        self.held_bytes = 0
        self.off_loop = OffLoop()

    def hold(self, body: Incoming, held: int) -> None:
        """So much is held of this one. Where all together are more than may be, the largest are let
        go, of equals the newest. So a few clients that send large ones and never the end of them
        keep no rank from telling that it lives. Cost: O(bodies), only then."""
        self.held_bytes += held - body.held
        body.held = held
        self._all.add(body)
        while self.held_bytes > self._limit:
            max(self._all, key=lambda each: (each.held, each.number)).give_up()

    def release(self, body: Incoming) -> None:
        """Nothing is held of it any more."""
        self.held_bytes -= body.held
        body.held = 0
        self._all.discard(body)


class Incoming:
    """The body of one request, until the request is taken or refused.

    Inflating begins on the event loop. What would hold that up goes on in a thread, a part at a
    time, so that a bomb is refused and a client that has gone is forgotten as early as on the loop.

    Args:
        bodies: of the server.
        body: takes the bytes.
        limit: bytes that a body may have, for the sentence that says so.
        changed: told on the loop that it was refused, or that a thread is done with it for now.

    Attributes:
        refusal: status and sentence, once it is known that nobody will take it.
        number: the higher, the newer.
        held: bytes, as they were counted last.
        ours_s: that threads took, or that it waited for one.
    """

    __slots__ = (
        "_awaited", "_bodies", "_body", "_changed", "_contents", "_has_ended", "_is_gone", "_job",
        "_limit", "_ours_since", "_taking", "held", "number", "ours_s", "refusal",
    )  # fmt: skip

    def __init__(
        self, bodies: Bodies, body: Body, limit: int, changed: Callable[[Incoming], None]
    ) -> None:
        self.number = next(_NUMBERS)
        self.held = 0
        self.refusal: tuple[int, str] | None = None
        self._bodies = bodies
        self._body = body
        self._limit = limit
        self._changed = changed
        self._job: asyncio.Future[_Contents | None] | None = None
        self._taking: asyncio.Future[Any] | None = None
        self._awaited: asyncio.Future[None] | None = None
        self._contents: _Contents | None = None
        self._has_ended = False
        self._is_gone = False
        self._ours_since = self.ours_s = 0.0

    @property
    def is_in_thread(self) -> bool:
        """Whether it waits for us, and not for its sender."""
        return self._job is not None

    @property
    def is_ready(self) -> bool:
        """Whether it is whole, or refused."""
        return self._contents is not None or self.refusal is not None

    def feed(self, piece: bytes, most: int) -> int:
        """Take the next piece as it came from the wire.

        Args:
            piece: of the body.
            most: bytes that may be inflated here and now.

        Returns:
            Bytes that were.
        """
        body, made = self._body, 0
        try:
            body.add(piece)
            is_waiting = body.is_gzip
            if is_waiting and self._job is None and (before := body.size) < ON_LOOP_BYTES:
                body.inflate(min(most, ON_LOOP_BYTES - before))
                made = body.size - before
                is_waiting = body.waiting_bytes > 0
            elif is_waiting:
                is_waiting = body.waiting_bytes >= _WORTH_BYTES
        except (BodyTooLargeError, BadBodyError) as error:
            self._refuse_for(error)
            return 0
        self._bodies.hold(self, body.held_bytes)
        if is_waiting:
            self._go_on()
        return made

    def end(self) -> None:
        """That was the last piece."""
        self._has_ended = True
        if self.refusal is not None or self._job is not None:
            return
        if self._body.size > ON_LOOP_BYTES or self._body.waiting_bytes:
            self._go_on()
            return
        try:
            self._contents = _contents(self._body)
        except BadBodyError as error:
            self._refuse_for(error)

    def contents(self) -> _Contents:
        """Content and original of one that is ready and not refused."""
        assert self._contents is not None
        return self._contents

    async def ready(self) -> None:
        """Wait until it is ready; cancelled if it is let go."""
        if not self.is_ready:
            self._awaited = asyncio.get_running_loop().create_future()
            await self._awaited

    async def taken(self, work: Callable[[], _Result]) -> _Result | None:
        """Have it taken in a thread: what ``work`` gives, or None if it was refused before."""
        taking = self._bodies.off_loop.run(work, begin=self.release)
        self._taking = taking
        try:
            return await taking
        except asyncio.CancelledError:
            if self.refusal is None:
                raise
            return None

    def give_up(self) -> None:
        """Too much is held of all bodies together: let this one go, its sender may come again."""
        self._refuse(503, "too much is being received; send it again later")

    def release(self) -> None:
        """It is taken: what is held of it counts elsewhere."""
        self._bodies.release(self)

    def let_go(self) -> None:
        """Nobody needs it any more."""
        self._is_gone = True
        self._bodies.release(self)
        self._body, self._contents = _NOTHING, None
        jobs, self._job, self._taking = (self._job, self._taking), None, None
        for job in jobs:
            if job is not None:
                self._bodies.off_loop.take_back(job)
        if self._awaited is not None:
            self._awaited.cancel()

    # --- refusing ----------------------------------------------------------------------------

    def _refuse_for(self, error: BaseException) -> None:
        if isinstance(error, BodyTooLargeError):
            self._refuse(413, f"the body is larger than {self._limit} bytes")
        elif isinstance(error, BadBodyError):
            self._refuse(400, str(error))
        else:
            _log.error("a body could not be inflated", exc_info=error)
            self._refuse(500, "internal error")

    def _refuse(self, status: int, message: str) -> None:
        self.refusal = status, message
        self._tell()
        self.let_go()
        self._changed(self)

    def _tell(self) -> None:
        if self._awaited is not None and not self._awaited.done():
            self._awaited.set_result(None)

    # --- the thread --------------------------------------------------------------------------

    def _go_on(self) -> None:
        if self._job is None and not self._is_gone:
            self._ours_since = time.monotonic()
            work = partial(_work, self._body, is_last=self._has_ended)
            self._job = self._bodies.off_loop.run(work)
            self._job.add_done_callback(self._worked)

    def _worked(self, job: asyncio.Future[_Contents | None]) -> None:
        error = None if job.cancelled() else job.exception()  # else it would be complained of
        if job.cancelled() or self._is_gone:
            return
        self._job = None
        self.ours_s += time.monotonic() - self._ours_since
        if error is not None:
            self._refuse_for(error)
            return
        self._contents = job.result()
        self._bodies.hold(self, self._body.held_bytes)
        if self.refusal is not None:
            return
        if self._body.waiting_bytes or (self._has_ended and self._contents is None):
            self._go_on()
            return
        if self._contents is not None:
            self._tell()
        self._changed(self)


def _work(body: Body, *, is_last: bool) -> _Contents | None:
    """In a thread: one part; the whole if that was the last."""
    body.inflate(_AT_ONCE_BYTES)
    return _contents(body) if is_last and not body.waiting_bytes else None


def _contents(body: Body) -> _Contents:
    content = body.finish()
    return content, body.original()

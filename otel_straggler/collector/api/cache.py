"""Answers for the live page, made when first requested and then cached: as JSON, as gzip, by ETag.

An answer is cached for 10 times its cost, so pages take a tenth of a core at most, however many
people look. Requests that always miss the cache wait once they have taken a quarter of a core for a
while.
"""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import json
import threading
import time
from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, TypeVar

from otel_straggler.throttle import Throttle

Json: TypeAlias = dict[str, Any]
Key: TypeAlias = tuple[Hashable, ...]

MIN_LOOK_S: Final = 1.0
_SHARE: Final = 10.0
"""Answers take one part in so many of a core at most."""
GZIP_FROM: Final = 1_400
"""Bytes; what fits into one packet is not compressed."""
_GZIP_LEVEL: Final = 1
_MAX_KEPT: Final = 64
MAX_BYTES: Final = 64 * 1024 * 1024
"""Of all cached answers; a timeline of 10,000 ranks takes six MB."""
_LOOKED_AT_S: Final = 10.0
MAX_OF_A_CORE: Final = 0.25
AT_ONCE_S: Final = 4.0
"""Processor time that answers may take at once before they wait."""


class Answer:
    """``value`` as one JSON text; NaN, which is no JSON, is refused."""

    def __init__(self, value: Json) -> None:
        text = json.dumps(value, allow_nan=False, separators=(",", ":"), ensure_ascii=False)
        self.body = text.encode("utf-8", "replace")
        self.etag = f'W/"{hashlib.blake2b(self.body, digest_size=12).hexdigest()}"'
        self._zipped: bytes | None = None

    @property
    def size(self) -> int:
        """Bytes of memory."""
        return len(self.body) + len(self._zipped or b"")

    def zipped(self) -> bytes | None:
        """Compressed, once; None where that is not worth it."""
        if self._zipped is None and len(self.body) >= GZIP_FROM:
            self._zipped = gzip.compress(self.body, _GZIP_LEVEL, mtime=0)
        return self._zipped


@dataclass(slots=True)
class _Cached:
    answer: Answer
    state: Hashable
    made_at_s: float
    cost_s: float


class AnswerCache:
    """Thread-safe; one answer is made at a time, and cached ones do not wait for it. ``cpu_s``:
    clock of this thread."""

    def __init__(
        self,
        monotonic_s: Callable[[], float] = time.monotonic,
        cpu_s: Callable[[], float] = time.thread_time,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._monotonic_s = monotonic_s
        self._cpu_s = cpu_s
        self._sleep = sleep
        self._answers: dict[Key, _Cached] = {}
        self._lock = threading.Lock()
        self._share = Throttle(MAX_OF_A_CORE, AT_ONCE_S, now_s=monotonic_s, cpu_s=cpu_s)

    def get(self, key: Key, state: Hashable, make: Callable[[float], Json]) -> Answer:
        """The answer to ``key``: cached while ``state`` is the same, or while it is younger than
        :attr:`look_s`; else a new one. ``make`` gets the seconds until the next; its errors pass
        through."""
        cached = self._cached(key, state)
        if cached is not None:
            return cached
        with self._lock:
            cached = self._cached(key, state)
            if cached is not None:
                return cached
            if (wait_s := self._share.wait_s()) > 0.0:
                self._sleep(wait_s)
            now_s, began_s = self._monotonic_s(), self._cpu_s()
            with self._share.spending_cpu():
                answer = Answer(make(self._look_s(now_s)))
                answer.zipped()
            cost_s = self._cpu_s() - began_s
            self._keep(key, _Cached(answer, state, now_s, cost_s))
            return answer

    @property
    def look_s(self) -> float:
        """How long an answer made now is cached. From any thread."""
        return self._look_s(self._monotonic_s())

    def _cached(self, key: Key, state: Hashable) -> Answer | None:
        cached = self._answers.get(key)
        if cached is None:
            return None
        now_s = self._monotonic_s()
        is_young = now_s - cached.made_at_s < self._look_s(now_s)
        return cached.answer if cached.state == state or is_young else None

    def _keep(self, key: Key, cached: _Cached) -> None:
        self._answers.pop(key, None)
        size = cached.answer.size + sum(each.answer.size for each in self._answers.values())
        while self._answers and (len(self._answers) >= _MAX_KEPT or size > MAX_BYTES):
            size -= self._answers.pop(next(iter(self._answers))).answer.size
        self._answers[key] = cached

    def _look_s(self, now_s: float) -> float:
        """By the cost of all answers that are being looked at."""
        answers = self._answers.copy().values()
        cost_s = sum(each.cost_s for each in answers if now_s - each.made_at_s < _LOOKED_AT_S)
        return max(MIN_LOOK_S, round(_SHARE * cost_s, 1))


_Result = TypeVar("_Result")

THREADS: Final = 4
MAX_UNDER_WAY: Final = 64
"""Different requests at once; a further one is refused."""


class BusyError(Exception):
    """Too many requests."""


class PageWork:
    """Work of one event loop in threads; ``maximum``: pieces at once, waiting ones included."""

    def __init__(self, threads: int = THREADS, maximum: int = MAX_UNDER_WAY) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="straggler-pages")
        self._max = maximum
        self._under_way: dict[Hashable, asyncio.Future[Any]] = {}

    async def do(self, key: Hashable, make: Callable[[], _Result]) -> _Result:
        """The result of ``make``, shared by all who ask for ``key`` while it is being made;
        BusyError if too much is under way."""
        result = self._under_way.get(key)
        if result is None:
            if len(self._under_way) >= self._max:
                raise BusyError("too much is being asked for; ask again in a second")
            result = asyncio.get_running_loop().run_in_executor(self._pool, make)
            self._under_way[key] = result
            result.add_done_callback(lambda _: self._under_way.pop(key))
        made: _Result = await asyncio.shield(result)
        return made

    def close(self) -> None:
        """Begin no more work, and wait for none."""
        self._pool.shutdown(wait=False, cancel_futures=True)

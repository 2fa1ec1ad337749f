"""Answers for the live page, made when first asked for and then kept: as JSON, as gzip, by ETag.

What an answer took to make says how often it is made: a tenth of a core at most goes into pages,
however many people look.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import threading
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

Json: TypeAlias = dict[str, Any]
Key: TypeAlias = tuple[Hashable, ...]

LEAST_LOOK_S: Final = 1.0
_SHARE: Final = 10.0
"""Making answers takes one part in so many of a core at most."""
GZIP_FROM: Final = 1_400
"""Bytes; what fits into one packet is not made smaller."""
_GZIP_LEVEL: Final = 1
_MOST_KEPT: Final = 64
_LOOKED_AT_S: Final = 10.0


@dataclass(slots=True, eq=False)
class Answer:
    """One JSON text."""

    body: bytes
    etag: str
    _zipped: bytes | None = field(default=None, repr=False)

    @classmethod
    def of(cls, value: Json) -> Answer:
        """Refuses NaN, which is no JSON."""
        text = json.dumps(value, allow_nan=False, separators=(",", ":"), ensure_ascii=False)
        body = text.encode("utf-8", "replace")
        return cls(body, f'W/"{hashlib.blake2b(body, digest_size=12).hexdigest()}"')

    def zipped(self) -> bytes | None:
        """Compressed, once; None where that is not worth it. Large ones take milliseconds."""
        if self._zipped is None and len(self.body) >= GZIP_FROM:
            self._zipped = gzip.compress(self.body, _GZIP_LEVEL, mtime=0)
        return self._zipped


@dataclass(slots=True)
class _Kept:
    answer: Answer
    state: Hashable
    made_at_s: float
    cost_s: float


class AnswerCache:
    """Keeps the newest answers. Thread-safe; one is made at a time.

    Args:
        monotonic_s, cpu_s: clocks; the second of this thread.
    """

    def __init__(
        self,
        monotonic_s: Callable[[], float] = time.monotonic,
        cpu_s: Callable[[], float] = time.thread_time,
    ) -> None:
        self._monotonic_s = monotonic_s
        self._cpu_s = cpu_s
        self._kept: dict[Key, _Kept] = {}
        self._lock = threading.Lock()

    def get(self, key: Key, state: Hashable, make: Callable[[float], Json]) -> Answer:
        """The answer to ``key``: the one that is kept while ``state`` is the same, or while it is
        younger than :attr:`look_s`; else a new one.

        Args:
            make: is told how long to wait for the next; any error of it passes through.
        """
        with self._lock:
            now_s = self._monotonic_s()
            kept = self._kept.get(key)
            if kept is not None:
                is_young = now_s - kept.made_at_s < self._look_s(now_s)
                if kept.state == state or is_young:
                    return kept.answer
            began_s = self._cpu_s()
            answer = Answer.of(make(self._look_s(now_s)))
            answer.zipped()
            self._keep(key, _Kept(answer, state, now_s, self._cpu_s() - began_s))
            return answer

    @property
    def look_s(self) -> float:
        """How long an answer that is made now counts. From any thread."""
        return self._look_s(self._monotonic_s())

    def _keep(self, key: Key, kept: _Kept) -> None:
        self._kept.pop(key, None)
        while len(self._kept) >= _MOST_KEPT:
            del self._kept[next(iter(self._kept))]
        self._kept[key] = kept

    def _look_s(self, now_s: float) -> float:
        """How long an answer counts: what those that people look at take together decides."""
        kept = self._kept.copy().values()
        cost_s = sum(each.cost_s for each in kept if now_s - each.made_at_s < _LOOKED_AT_S)
        return max(LEAST_LOOK_S, round(_SHARE * cost_s, 1))

"""The attempt and world size that the ranks of one world agree on.

One process with a wrong number must neither replace nor resize a run: a number that differs from
the present one is a claim, and waits until a quorum of ranks makes it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Generic, Literal, TypeAlias, TypeVar

import numpy as np

from otel_straggler.collector.runs.steps import StepClaims
from otel_straggler.model.rank import Source

_Content = TypeVar("_Content")
Standing: TypeAlias = Literal["present", "older", "waiting", "refused"]
Key: TypeAlias = tuple[int, int]
"""Attempt and world size."""

MAX_CLAIMS: Final = 8
_DROPPED_AFTER_S: Final = 120.0
_LATE_S: Final = 5.0
_FEW: Final = 64
"""So many ranks are counted each time; more once a second."""


class Speakers:
    """Ranks, and when each reported last.

    >>> its = Speakers()
    >>> its.observe(0, 1.0); its.observe(1, 9.0)
    >>> its.count(10.0, within_s=5.0), its.count(10.0, within_s=15.0), len(its)
    (1, 2, 2)
    """

    __slots__ = ("_count", "_counted", "at_s")

    def __init__(self) -> None:
        self.at_s: dict[int, float] = {}
        self._count = 0
        self._counted = (-math.inf, 0.0)

    def __len__(self) -> int:
        return len(self.at_s)

    def observe(self, rank: int, now_s: float) -> None:
        if rank not in self.at_s:
            self._count += 1
        self.at_s[rank] = now_s

    def end(self, rank: int) -> None:
        """It does not count until it reports again."""
        if rank in self.at_s:
            self.at_s[rank] = -math.inf
            self._counted = (-math.inf, 0.0)

    def count(self, now_s: float, within_s: float) -> int:
        """Ranks that have reported within this time. Cost: O(ranks), but once a second if many."""
        counted_at_s, counted_within_s = self._counted
        is_old = now_s - counted_at_s >= 1.0 or counted_within_s != within_s
        if is_old or len(self.at_s) <= _FEW:
            self._count = sum(now_s - at_s < within_s for at_s in self.at_s.values())
            self._counted = now_s, within_s
        return self._count


@dataclass(frozen=True, slots=True)
class Held(Generic[_Content]):
    """A part of a request that waits for a quorum, when it arrived, and its number in the spool; 0:
    it is not there."""

    content: _Content
    arrived_s: float
    sequence: int = 0


@dataclass(slots=True)
class Claim(Generic[_Content]):
    """An attempt and world size that are not the present ones.

    Attributes:
        speakers: ranks that report them; for a newer attempt or larger size, of those that the
            present world has.
        newest_s: last report of any rank.
        held, held_bytes: requests that wait for the quorum.
    """

    since_s: float
    newest_s: float
    speakers: Speakers = field(default_factory=Speakers)
    held: list[Held[_Content]] = field(default_factory=list)
    held_bytes: int = 0


class WorldClaims(Generic[_Content]):
    """Of one world. One thread owns it; times are of the collector's clock.

    Args:
        silent_s: a rank that is silent for so long says nothing against a claim.

    Attributes:
        attempt, world_size: the present ones; -1 before the first report, 0 if unknown.
        speakers, steps: ranks of the present attempt, and their steps.
        claims: others, by attempt and world size.
    """

    def __init__(self, silent_s: float) -> None:
        self._silent_s = silent_s
        self._began_wall_s = 0.0
        self._highest = -1
        self.attempt = -1
        self.world_size = 0
        self.speakers = Speakers()
        self.steps = StepClaims()
        self.claims: dict[Key, Claim[_Content]] = {}

    def __contains__(self, rank: int) -> bool:
        """Whether a rank has reported in the present attempt."""
        return rank in self.speakers.at_s

    def observe(self, source: Source, now_s: float, wall_s: float, sent_at_s: float) -> bool:
        """Record a report; whether it is plainly of the present attempt and size.

        Args:
            sent_at_s: newest time in the report, on the sender's wall clock; 0 if unknown.
        """
        if self.attempt < 0:
            self._begin((source.attempt, source.world_size), wall_s)
        if source.attempt == self.attempt and source.world_size == self.world_size:
            self._join(source.rank, now_s)
            return True
        is_older = source.attempt < self.attempt
        if not is_older or sent_at_s > self._began_wall_s + _LATE_S:
            self._observe_claim(source, now_s)
        return False

    def end(self, source: Source) -> None:
        """A rank has ended: unless it reports again, it says nothing against a claim."""
        if source.attempt == self.attempt:
            self.speakers.end(source.rank)

    def standing(self, source: Source, now_s: float) -> Standing:
        """Where a source belongs: ``present``; ``older``, an attempt that is over; ``waiting`` for
        a quorum; or ``refused``, after it has waited in vain."""
        if source.attempt == self.attempt and self._fits(source):
            self._join(source.rank, now_s)
            return "present"
        if source.attempt < self.attempt:
            return "older"
        claim = self.claims.get((source.attempt, source.world_size))
        is_new = claim is not None and now_s - claim.since_s < self._silent_s
        return "waiting" if is_new and source.world_size else "refused"

    def elect(self, now_s: float, wall_s: float) -> tuple[bool, Claim[_Content]] | None:
        """Replace the present attempt or size by one that a quorum reports: half of the ranks that
        still report the present one, and two of these; or any rank, if all of these are silent. An
        older attempt needs more ranks than the present one has, for ``silent_s``.

        Returns:
            Whether it is an older attempt, and the claim; None if nothing is replaced.
        """
        for key, claim in self.claims.items():
            if self._has_quorum(key, claim, now_s):
                is_older = key[0] < self.attempt
                del self.claims[key]
                self._begin(key, wall_s)
                for rank, at_s in claim.speakers.at_s.items():
                    self._join(rank, at_s)
                return is_older, claim
        return None

    def drop_old(self, now_s: float) -> Iterator[tuple[Key, Claim[_Content]]]:
        """Drop claims that nobody makes any more; yields those that hold what has waited in vain:
        for another attempt, or until they were dropped."""
        for key, claim in list(self.claims.items()):
            is_over = now_s - claim.newest_s >= _DROPPED_AFTER_S
            is_refused = key[0] != self.attempt and now_s - claim.since_s >= self._silent_s
            if is_over:
                del self.claims[key]
            if claim.held and (is_over or is_refused):
                yield key, claim

    def speaking(self, now_s: float) -> int:
        """Ranks that still report the present attempt."""
        return self.speakers.count(now_s, self._silent_s)

    # --- over restarts of the collector ------------------------------------------------------

    def held_sequences(self) -> list[tuple[int, int, int]]:
        """Requests of the spool that wait: sequence, and the attempt and world size in it."""
        return [
            (each.sequence, *key)
            for key, claim in self.claims.items()
            for each in claim.held
            if each.sequence
        ]

    def state(self, ahead_s: float) -> dict[str, Any]:
        """The present attempt and who reports it: JSON types and NumPy arrays. Claims are made
        again by the requests that wait for them.

        Args:
            ahead_s: the wall clock minus the collector's.
        """
        at_s = self.speakers.at_s
        return {
            "attempt": self.attempt,
            "world_size": self.world_size,
            "began_wall_s": self._began_wall_s,
            "ranks": np.fromiter(at_s.keys(), np.int64, len(at_s)),
            "at_s": np.fromiter(at_s.values(), np.float64, len(at_s)) + ahead_s,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from :meth:`state`, before the first report.

        Raises:
            ValueError, KeyError, TypeError, AttributeError: it is none.
        """
        ranks, at_s = state["ranks"].tolist(), state["at_s"].tolist()
        self._begin((state["attempt"], state["world_size"]), state["began_wall_s"])
        for rank, rank_at_s in zip(ranks, at_s, strict=True):
            self._join(rank, rank_at_s)

    def _begin(self, key: Key, wall_s: float) -> None:
        attempt, self.world_size = key
        if attempt != self.attempt:
            self.speakers = Speakers()
            self.steps = StepClaims()
            self._highest = -1
            self._began_wall_s = wall_s
        self.attempt = attempt

    def _join(self, rank: int, now_s: float) -> None:
        self.speakers.observe(rank, now_s)
        if rank > self._highest:
            self._highest = rank

    def _fits(self, source: Source) -> bool:
        """Whether a source of the present attempt, which reports another size or none, may be part
        of the present world. Which sessions a smaller world replaces is decided by liveness."""
        size = self.world_size
        if not source.world_size or source.world_size <= size:
            return not size or source.rank < size
        return False

    def _observe_claim(self, source: Source, now_s: float) -> None:
        if not source.world_size and source.attempt == self.attempt:
            return
        key = source.attempt, source.world_size
        claim = self.claims.get(key)
        if claim is None:
            while len(self.claims) >= MAX_CLAIMS:
                del self.claims[min(self.claims, key=lambda key: len(self.claims[key].speakers))]
            claim = self.claims[key] = Claim(now_s, now_s)
        claim.newest_s = now_s
        is_known = source.rank <= max(self._highest, self.world_size - 1)
        if is_known or source.attempt < self.attempt or not self.speaking(now_s):
            claim.speakers.observe(source.rank, now_s)

    def _has_quorum(self, key: Key, claim: Claim[_Content], now_s: float) -> bool:
        present, claiming = self.speaking(now_s), claim.speakers.count(now_s, self._silent_s)
        if key[0] < self.attempt:
            return now_s - claim.since_s >= self._silent_s and claiming > present
        if key[0] == self.attempt and not self.world_size and self._is_likely(key[1]):
            return True
        return claiming >= max((present + 1) // 2, min(present, 2), 1)

    def _is_likely(self, world_size: int) -> bool:
        """Where no rank reports a size, one that does is believed if it fits their number."""
        return world_size <= 2 * max(len(self.speakers), self._highest + 1, 1)

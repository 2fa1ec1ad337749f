"""Profiles of the slow ranks of a run, each next to that of a healthy peer."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Final

from otel_straggler.model.operator_tables import OperatorTable

MAX_PAIRS: Final = 10
DAY_S: Final = 86_400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfilePair:
    """A slow rank and a healthy peer that were asked to profile the same number of steps.

    Attributes:
        subject_id, section: of the verdict; ``attempt``: of the world.
        slow, peer: each its table, or why there is none; None until it has answered.
        asked_at_s: on the collector's clock.
    """

    group: str
    subject_id: str
    attempt: int
    section: str
    slow_rank: int
    peer_rank: int
    asked_at_s: float
    slow: OperatorTable | str | None = None
    peer: OperatorTable | str | None = None


@dataclass(slots=True)
class RunProfiles:
    """Of one run. One thread owns it.

    Attributes:
        pairs: the newest, oldest first; replaced as a whole.
    """

    pairs: tuple[ProfilePair, ...] = ()
    _asked: set[tuple[str, str, int]] = field(default_factory=set)
    _asked_at_s: deque[float] = field(default_factory=deque)

    def is_known(self, group: str, subject_id: str, attempt: int) -> bool:
        """Whether the subject was profiled in this attempt already."""
        return (group, subject_id, attempt) in self._asked

    def has_room(self, per_day: int, now_s: float) -> bool:
        """Whether fewer than ``per_day`` pairs were asked in the last 24 hours."""
        while self._asked_at_s and self._asked_at_s[0] <= now_s - DAY_S:
            self._asked_at_s.popleft()
        return len(self._asked_at_s) < per_day

    def add(self, pair: ProfilePair) -> None:
        """Two ranks have been asked."""
        self._asked.add((pair.group, pair.subject_id, pair.attempt))
        self._asked_at_s.append(pair.asked_at_s)
        self.pairs = (*self.pairs, pair)[-MAX_PAIRS:]

    def observe(self, group: str, rank: int, profile: OperatorTable | str) -> None:
        """An answer, for all pairs that wait for this rank; others are ignored."""
        self.pairs = tuple(_answered(pair, group, rank, profile) for pair in self.pairs)

    def ranks(self, group: str) -> Iterator[int]:
        """Those that have not answered."""
        for pair in self.pairs:
            if pair.group == group and pair.slow is None:
                yield pair.slow_rank
            if pair.group == group and pair.peer is None:
                yield pair.peer_rank


def _answered(
    pair: ProfilePair, group: str, rank: int, profile: OperatorTable | str
) -> ProfilePair:
    if pair.group != group:
        return pair
    if rank == pair.slow_rank and pair.slow is None:
        return replace(pair, slow=profile)
    if rank == pair.peer_rank and pair.peer is None:
        return replace(pair, peer=profile)
    return pair

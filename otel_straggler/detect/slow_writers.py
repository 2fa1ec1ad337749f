"""Ranks whose part of a checkpoint takes longer to write than that of their peers."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Final

MIN_RATIO: Final = 1.5
MIN_EXCESS_S: Final = 0.5
"""What is less costs a training next to nothing."""
SAVES: Final = 5
MIN_SAVES: Final = 3
"""One slow save of a shared file system is no verdict on a rank."""
MIN_RANKS: Final = 3
_MIN_S: Final = 1e-3
"""What peers take at least, for a ratio."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowWriter:
    """A rank that all saves wait for.

    Attributes:
        ratio: of its seconds to the peers' median, over the last saves.
        excess_s: seconds beyond that, per save.
        own_s: its seconds, per save.
    """

    rank: int
    ratio: float
    excess_s: float
    own_s: float
    saves: int

    @property
    def text(self) -> str:
        return (
            f"rank {self.rank} takes {self.ratio:.1f} times as long as its peers to write its part,"
            f" {self.excess_s:.1f} s more, in {self.saves} saves. Compare its disk and network."
        )


class SlowWriters:
    """Remembers the last saves; reports a rank once it is slow in most of them, and once only until
    it was not."""

    def __init__(self) -> None:
        self._saves: deque[dict[int, float]] = deque(maxlen=SAVES)
        self._reported: set[int] = set()

    def observe(self, write_s: dict[int, float]) -> list[SlowWriter]:
        """Add a save; returns who is newly slow.

        Args:
            write_s: seconds by rank, own writing without waiting for others.
        """
        self._saves.append(write_s)
        slow = slow_writers(self._saves)
        fresh = [each for each in slow if each.rank not in self._reported]
        self._reported = {each.rank for each in slow}
        return fresh


def slow_writers(saves: Collection[Mapping[int, float]]) -> list[SlowWriter]:
    """Ranks of the newest save that are slow in most of these saves.

    Args:
        saves: of each, seconds of own writing by rank; the oldest first.
    """
    newest: Mapping[int, float] = [*saves][-1] if saves else {}
    return [each for rank in newest if (each := _verdict(saves, rank)) is not None]


def slowest_writer(write_s: Mapping[int, float]) -> SlowWriter | None:
    """The rank that took much longer than the others in one save, if one did.

    >>> slowest_writer({0: 2.0, 1: 2.2, 2: 6.2}).ratio == 6.2 / 2.1
    True
    """
    if len(write_s) < MIN_RANKS:
        return None
    rank = max(write_s, key=lambda each: write_s[each])
    own_s, peers_s = write_s[rank], median(s for other, s in write_s.items() if other != rank)
    if not _is_slow(own_s, peers_s):
        return None
    return SlowWriter(
        rank=rank, ratio=_ratio(own_s, peers_s), excess_s=own_s - peers_s, own_s=own_s, saves=1
    )


def _verdict(saves: Collection[Mapping[int, float]], rank: int) -> SlowWriter | None:
    excesses = []
    for save in saves:
        others = [s for other, s in save.items() if other != rank]
        if rank in save and len(save) >= MIN_RANKS:
            excesses.append((save[rank], median(others)))
    if len(excesses) < MIN_SAVES:
        return None
    slow = [own - peers for own, peers in excesses if _is_slow(own, peers)]
    if 2 * len(slow) <= len(excesses):
        return None
    own_s, peers_s = (math.fsum(column) / len(excesses) for column in zip(*excesses, strict=True))
    if not _is_slow(own_s, peers_s):
        return None
    return SlowWriter(
        rank=rank,
        ratio=_ratio(own_s, peers_s),
        excess_s=median(slow),
        own_s=own_s,
        saves=len(excesses),
    )


def _ratio(own_s: float, peers_s: float) -> float:
    return own_s / max(peers_s, _MIN_S)


def _is_slow(own_s: float, peers_s: float) -> bool:
    return own_s >= MIN_RATIO * peers_s and own_s - peers_s >= MIN_EXCESS_S

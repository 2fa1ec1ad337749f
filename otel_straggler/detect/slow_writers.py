"""Ranks whose part of a checkpoint takes longer to write than that of their peers."""

from __future__ import annotations

import math
from collections import deque
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


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowWriter:
    """A rank that all saves wait for.

    Attributes:
        ratio: of its seconds to the peers' median, over the last saves.
        excess_s: seconds beyond that, per save.
    """

    rank: int
    ratio: float
    excess_s: float
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
        slow = [each for rank in write_s if (each := self._verdict(rank)) is not None]
        fresh = [each for each in slow if each.rank not in self._reported]
        self._reported = {each.rank for each in slow}
        return fresh

    def _verdict(self, rank: int) -> SlowWriter | None:
        excesses = []
        for save in self._saves:
            others = [s for other, s in save.items() if other != rank]
            if rank in save and len(save) >= MIN_RANKS:
                excesses.append((save[rank], median(others)))
        if len(excesses) < MIN_SAVES:
            return None
        slow = [own - peers for own, peers in excesses if _is_slow(own, peers)]
        if 2 * len(slow) <= len(excesses):
            return None
        own_s, peers_s = (math.fsum(column) for column in zip(*excesses, strict=True))
        ratio = own_s / peers_s if peers_s > 0.0 else math.inf
        if not _is_slow(own_s / len(excesses), peers_s / len(excesses)):
            return None
        return SlowWriter(rank=rank, ratio=ratio, excess_s=median(slow), saves=len(excesses))


def _is_slow(own_s: float, peers_s: float) -> bool:
    return own_s >= MIN_RATIO * peers_s and own_s - peers_s >= MIN_EXCESS_S

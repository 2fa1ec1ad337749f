"""Which steps of the ranks of one world are plausible. A counter in another unit on one rank must
not keep the windows of all ranks open."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from otel_straggler.model.observation import NO_STEP

_ALIVE_S: Final = 120.0
"""A rank that is silent for longer says nothing about the steps of others."""
_AHEAD: Final = 1_000
_FEW: Final = 64
_PAUSE_S, _REFRESH_S = 0.1, 1.0
"""Between two looks at the steps of more ranks than that: for a step beyond, and without one."""


def steps_limit(step: int) -> int:
    """The largest step that is plausible after this one, whatever the ranks count.

    >>> steps_limit(50), steps_limit(100_000)
    (1100, 201000)
    """
    return 2 * max(step, 0) + _AHEAD


def contiguous(steps: Iterable[int], from_step: int) -> int:
    """The largest of these ascending steps that is reached without an implausible jump.

    >>> contiguous([60, 1000, 2500, 10**9], 50)
    2500
    """
    for step in steps:
        if step > steps_limit(from_step):
            break
        from_step = max(from_step, step)
    return from_step


@dataclass(slots=True)
class _Rank:
    """``reported``: in the newest report; ``confirmed``: newest plausible step while another rank
    reported steps, too."""

    reported: int
    confirmed: int = NO_STEP


class StepClaims:
    """Of the present attempt of one world. One thread owns it.

    A step is plausible up to :func:`steps_limit` of the middle rank (the lower of two), or of the
    rank's own steps so far. A rank alone is believed the second time.

    Attributes:
        limit: up to here all steps are plausible.
        middle: the step of the middle rank.
    """

    __slots__ = ("_at_s", "_counted", "_ranks", "limit", "middle")

    def __init__(self) -> None:
        self._ranks: dict[int, _Rank] = {}
        self.limit: float = math.inf
        self.middle = NO_STEP
        self._at_s = -math.inf
        self._counted = 0

    def settle(
        self, reports: Mapping[int, int], at_s: Mapping[int, float], now_s: float
    ) -> list[int]:
        """Record steps; returns the ranks whose step is not plausible. Cost: O(reports), and that
        of a sort of all ranks once a second.

        Args:
            reports: newest step of each rank in a request.
            at_s: when each rank of the attempt reported last.
        """
        ranks = self._ranks
        for rank, step in reports.items():
            if rank not in ranks:
                ranks[rank] = _Rank(step)
        self._find_middle(max(reports.values()), at_s, now_s)
        limit, is_alone = self.limit, len(ranks) < 2
        beyond: list[int] = []
        for rank, step in reports.items():
            its = ranks[rank]
            if step > limit and not self.is_plausible(rank, step):
                beyond.append(rank)
                continue
            its.reported = step
            if step > its.confirmed and not is_alone:
                its.confirmed = step
        return beyond

    def _find_middle(self, newest: int, at_s: Mapping[int, float], now_s: float) -> None:
        is_small = len(self._ranks) <= _FEW
        is_new = is_small and len(self._ranks) != self._counted
        age_s = now_s - self._at_s
        is_beyond = (is_small or age_s >= _PAUSE_S) and newest > self.limit
        if not (is_new or is_beyond or age_s >= _REFRESH_S):
            return
        self._counted, self._at_s = len(self._ranks), now_s
        steps = sorted(
            its.reported
            for rank, its in self._ranks.items()
            if now_s - at_s.get(rank, -math.inf) < _ALIVE_S
        )
        if steps:
            self.middle = steps[(len(steps) - 1) // 2]
            self.limit = steps_limit(self.middle)

    def reached(self, rank: int) -> int:
        """The newest step that a rank is known to have come near."""
        its = self._ranks.get(rank)
        return self.middle if its is None else max(self.middle, its.confirmed)

    def is_plausible(self, rank: int, step: int) -> bool:
        return step <= self.limit or step <= steps_limit(self.reached(rank))

    def observe(self, rank: int, step: int, *, is_plausible: bool) -> None:
        """Record the newest step of a rank that :meth:`settle` returned."""
        its = self._ranks[rank]
        its.reported = step
        if is_plausible and len(self._ranks) > 1:
            its.confirmed = max(its.confirmed, step)

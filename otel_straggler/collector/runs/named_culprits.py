"""Which culprits of a hang are named: at most 20 of a world, and whoever is named stays so.

An alert on a rank must not end because another rank has been lost.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from otel_straggler.model.alert import MAX_NAMED
from otel_straggler.model.observation import Ints


def _none() -> Ints:
    return np.empty(0, np.int64)


@dataclass(slots=True)
class NamedCulprits:
    """The culprits of one world, in the order in which they became that. One thread owns it."""

    _ranks: Ints = field(default_factory=_none)
    _joined: Ints = field(default_factory=_none)
    _evaluations: int = 0

    def select(self, ranks: Ints) -> list[int]:
        """Those to be named now: who has been a culprit longest, then by rank.

        Args:
            ranks: all culprits, ascending.

        Cost: O(culprits log culprits).
        """
        self._evaluations += 1
        joined = np.full(len(ranks), self._evaluations, np.int64)
        if len(self._ranks) and len(ranks):
            at = np.minimum(np.searchsorted(self._ranks, ranks), len(self._ranks) - 1)
            known = self._ranks[at] == ranks
            joined[known] = self._joined[at[known]]
        self._ranks, self._joined = ranks, joined
        first = np.lexsort((ranks, joined))[:MAX_NAMED]
        named: list[int] = np.sort(ranks[first]).tolist()
        return named

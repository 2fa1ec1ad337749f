"""Whether waiting lies within the only sections there are, so that no rank can stand out.

Ranks that wait for each other go on together. Where one section holds the whole step, the
collective too, it takes all of them what the slowest takes, whoever that is: what differs from rank
to rank is a few moments on the way out, while the steps differ from each other by the luck of all
ranks. Ranks that only work differ from each other no less than from step to step, and for good by
some tenths of a per cent.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import numpy as np

from otel_straggler.model.observation import Floats, Section
from otel_straggler.score.medians import median_of, nan_median
from otel_straggler.score.verdicts.comparison import SIGMA_OF_MAD
from otel_straggler.score.verdicts.excess import Excesses
from otel_straggler.score.verdicts.findings import Flags

LEAST_BLOCKS, BLOCKS = 4, 8
LEAST_RANKS = 4
MOST_APART = 0.003
"""No two devices that do their own work are so alike, ..."""
TIMES_COMMON = 5.0
"""... nor do their times vary together by so many times what they differ by."""


@dataclass(slots=True)
class Evened:
    """Looks at the newest 40 steps of one world."""

    _apart: deque[float] = field(default_factory=lambda: deque(maxlen=BLOCKS))
    _common: deque[Floats] = field(default_factory=lambda: deque(maxlen=BLOCKS))

    def take(self, excess: Excesses, sections: list[Section], local: Flags) -> str:
        """The next block, of ranks that wait in no section that is known.

        Args:
            local: (S,) which sections hold the ranks' own work, as far as is known.

        Returns:
            Name of the longest section, if all take equally long; else empty.

        Cost: O(T R log R).
        """
        apart = np.abs(excess.ranks[..., 0])
        apart = apart[np.isfinite(apart)]
        if len(apart) < LEAST_RANKS * len(excess.ranks) or not local.any():
            return ""
        with np.errstate(divide="ignore", invalid="ignore"):
            self._common.append(np.log(excess.peers_local_s))
        self._apart.append(SIGMA_OF_MAD * median_of(apart))
        if len(self._apart) < LEAST_BLOCKS or not self._is_even():
            return ""
        usual_s = np.where(local, np.nansum(excess.peers_s, axis=(0, 1)), 0.0)
        return sections[int(np.argmax(usual_s))].name

    def _is_even(self) -> bool:
        apart = max(self._apart)
        steps = np.concatenate(list(self._common))
        moved = np.abs(steps - nan_median(steps, axis=0))
        moved = moved[np.isfinite(moved)]
        common = SIGMA_OF_MAD * median_of(moved) if len(moved) else 0.0
        return apart <= MOST_APART and common > 0.0 and common >= TIMES_COMMON * apart

"""How finely the ranks' clocks tell time: a clock of 15.6 ms says 15.6 or 31.3 ms of what takes 20.

Two ranks that take equally long then differ by a whole tick now and then, and the median of twenty
steps does so too. What is less than 1.5 ticks is no difference.
"""

from __future__ import annotations

import numpy as np

from otel_straggler.model.observation import Floats

TICKS = 1.5
LEAST_EQUAL, LEAST_OTHER = 0.2, 0.02
"""Of the changes from one step to the next, so many are none, and so many are some: what is told
finely never takes equally long twice, and what never changes tells nothing of the clock."""
EQUAL = 1e-5
"""Times that differ by less than this part, or by a microsecond, are equal."""
ENOUGH_RANKS = 256
_FADE = 0.9


class Resolution:
    """Learns the tick of every section, block by block. State: 24 bytes per section."""

    def __init__(self) -> None:
        self._changes = np.zeros(0)
        self._equal = np.zeros(0)
        self._least_s = np.zeros(0)

    def learn(self, seconds: Floats) -> None:
        """Take a block in: (T, R, S), NaN where there is none; S may grow. Cost: O(T S)."""
        self._widen(seconds.shape[2])
        some = seconds[:, :: max(1, seconds.shape[1] // ENOUGH_RANKS)]
        moved = np.abs(np.diff(some, axis=0))
        limit = np.maximum(EQUAL * some[1:], 1e-6)
        is_other = moved > limit  # NaN is neither
        known = np.isfinite(moved)
        self._changes = _FADE * self._changes + known.sum(axis=(0, 1))
        self._equal = _FADE * self._equal + (known & ~is_other).sum(axis=(0, 1))
        least_s = np.where(is_other, moved, np.inf).min(axis=(0, 1), initial=np.inf)
        # A smaller change than the tick shows at once that it is none; a coarser clock slowly.
        faded_s = np.where(np.isfinite(least_s), self._least_s / _FADE, self._least_s)
        self._least_s = np.fmin(faded_s, least_s)

    def ticks_s(self) -> Floats:
        """(S,) seconds; 0 where nothing shows that the clock is coarse."""
        equal = self._equal / np.maximum(self._changes, 1.0)
        is_coarse = (equal >= LEAST_EQUAL) & (equal <= 1.0 - LEAST_OTHER)
        return np.where(is_coarse & np.isfinite(self._least_s), self._least_s, 0.0)

    def least_effects(self, columns_s: Floats) -> Floats:
        """(R, S + 2) the least log excess that is more than the clock, of own work, of each section
        and of lateness.

        Args:
            columns_s: (R, S + 2) usual seconds of these; NaN where not known.
        """
        ticks_s = self.ticks_s()
        whole_s = ticks_s.max(initial=0.0)
        per_column = np.concatenate([[whole_s], ticks_s, [whole_s]])
        with np.errstate(divide="ignore", invalid="ignore"):
            least = np.log1p(TICKS * per_column / columns_s)
        return np.where(per_column > 0.0, np.nan_to_num(least, nan=0.0, posinf=0.0), 0.0)

    def _widen(self, n_sections: int) -> None:
        more = n_sections - len(self._changes)
        if more > 0:
            self._changes = np.append(self._changes, np.zeros(more))
            self._equal = np.append(self._equal, np.zeros(more))
            self._least_s = np.append(self._least_s, np.full(more, np.inf))

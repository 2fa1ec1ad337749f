"""The tick of a coarse clock, below which a difference says nothing."""

from __future__ import annotations

import numpy as np

from otel_straggler.model.observation import Floats

TICKS = 1.5
MIN_EQUAL, MIN_OTHER = 0.2, 0.02
"""A clock is coarse if at least this part of the changes between steps is 0, and this part is not.
"""
EQUAL = 1e-5
"""Times that differ by less than this part, or a microsecond, are equal."""
SAMPLED_RANKS = 256
_FADE = 0.9


class ClockResolution:
    """Learns the tick of every section's clock. State: 24 bytes per section. With a tick of 15.6
    ms, ranks that take equally long differ by a whole tick at times, and so do medians: less than
    1.5 ticks is no difference."""

    def __init__(self) -> None:
        self._changes = np.zeros(0)
        self._equal = np.zeros(0)
        self._min_s = np.zeros(0)

    def learn(self, seconds: Floats) -> None:
        """Observe (T, R, S) seconds, NaN where there are none; S may grow."""
        self._widen(seconds.shape[2])
        some = seconds[:, :: max(1, seconds.shape[1] // SAMPLED_RANKS)]
        moved = np.abs(np.diff(some, axis=0))
        limit = np.maximum(EQUAL * some[1:], 1e-6)
        is_other = moved > limit  # NaN is neither
        known = np.isfinite(moved)
        self._changes = _FADE * self._changes + known.sum(axis=(0, 1))
        self._equal = _FADE * self._equal + (known & ~is_other).sum(axis=(0, 1))
        min_s = np.where(is_other, moved, np.inf).min(axis=(0, 1), initial=np.inf)
        # A smaller change than the tick shows at once that it is none; a coarser clock slowly.
        faded_s = np.where(np.isfinite(min_s), self._min_s / _FADE, self._min_s)
        self._min_s = np.fmin(faded_s, min_s)

    def ticks_s(self) -> Floats:
        """(S,) seconds; 0 unless the clock is known to be coarse."""
        equal = self._equal / np.maximum(self._changes, 1.0)
        is_coarse = (equal >= MIN_EQUAL) & (equal <= 1.0 - MIN_OTHER)
        return np.where(is_coarse & np.isfinite(self._min_s), self._min_s, 0.0)

    def min_effects(self, columns_s: Floats) -> Floats:
        """(R, S + 2) the smallest log excess beyond the clock, from usual seconds of this shape."""
        ticks_s = self.ticks_s()
        whole_s = ticks_s.max(initial=0.0)
        if not whole_s > 0.0:
            return np.zeros(columns_s.shape)
        per_column = np.concatenate([[whole_s], ticks_s, [whole_s]])
        with np.errstate(divide="ignore", invalid="ignore"):
            minimum = np.log1p(TICKS * per_column / columns_s)
        return np.where(per_column > 0.0, np.nan_to_num(minimum, nan=0.0, posinf=0.0), 0.0)

    def _widen(self, n_sections: int) -> None:
        more = n_sections - len(self._changes)
        if more > 0:
            self._changes = np.append(self._changes, np.zeros(more))
            self._equal = np.append(self._equal, np.zeros(more))
            self._min_s = np.append(self._min_s, np.full(more, np.inf))

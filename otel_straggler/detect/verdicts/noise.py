"""How much the mean of so many steps moves by itself, measured at the scales that are judged.

Step times have memory: a rank that is slow by chance in one step is likely to be in the next, so
means scatter more than steps that know nothing of each other would. Nothing is assumed here about
the kind of memory. At 5, 20 and 100 steps every window of a rank is compared with the mean of its
own earlier windows, and the median of these differences over the ranks gives a variance. A scale
that was hardly seen yet is expected to have what the scale below has, made smaller only as far as
the one below was smaller than the one before it. In the first windows nobody can know whether ranks
differ for good or for a while: the differences between ranks count as noise then.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from otel_straggler.detect.scores.medians import median_of_rows
from otel_straggler.detect.verdicts.significance import SIGMA_OF_MAD
from otel_straggler.model.observation import Floats, Ints

BLOCKS: Final = np.array([1, 4, 20, 80])
"""Scales in blocks of (usually) 5 steps; the last is always extrapolated: a run rarely has two such
windows."""
INDEPENDENT: Final = np.array([0.536, 0.295, 0.12, 0.06])
"""Standard error of a window / standard deviation of a step, without memory: the median of 5, the
median of 4 such medians, and means of 20 and 80."""
EFFICIENCY: Final = 0.37
"""Degrees of freedom of a median absolute deviation, per value."""
PRIOR: Final = 8.0
"""Degrees of freedom that what is expected of a scale counts for."""
BETWEEN_WINDOWS: Final = 4.0
"""Windows after which what ranks differ by is half believed to last."""
MIN_WINDOWS: Final = 2
KEPT_WINDOWS: Final = 20.0
"""After so many windows older ones fade."""
MAX_JUMP: Final = 2.0
"""A window in which half of the ranks change counts for at most so many times the variance."""
MIN_SIGMA: Final = 0.002


class NoiseScales:
    """Noise of R subjects and C quantities, the same for all subjects. State: 36 bytes per pair.

    Args:
        n_fitted: subjects whose differences are known from the others'; 1 where these are taken
            from a median of all.
    """

    def __init__(self, shape: tuple[int, int], n_fitted: float = 1.0) -> None:
        self._n_fitted = n_fitted
        n_scales = len(BLOCKS) - 1
        self._mean = np.zeros((n_scales, *shape))
        self._windows = np.zeros((n_scales, *shape), np.int32)
        self._measured = np.zeros((n_scales, shape[1]))
        self._freedom = np.zeros((n_scales, shape[1]))
        self._between = np.zeros((n_scales, shape[1]))
        self._n_windows = np.zeros(n_scales)
        self.variance = np.full((len(BLOCKS), shape[1]), np.nan)
        self._own = self.variance.copy()
        self._log_variance: Floats | None = None  # as of the newest evaluation, once asked for
        self.freedom = np.full((len(BLOCKS), shape[1]), PRIOR)

    def widen(self, at: list[int]) -> None:
        """Insert new columns."""
        for name, filler in (("variance", np.nan), ("_own", np.nan), ("freedom", PRIOR)):
            setattr(self, name, np.insert(getattr(self, name), at, filler, axis=-1))
        for name in ("_mean", "_windows", "_measured", "_freedom", "_between"):
            setattr(self, name, np.insert(getattr(self, name), at, 0, axis=-1))
        self._log_variance = None

    def add(self, scale: int, effect: Floats) -> None:
        """A window of ``BLOCKS[scale]`` blocks that shares none with the last: (R, C) excesses."""
        count, mean = self._windows[scale], self._mean[scale]
        known, apart = np.isfinite(effect), effect - mean
        earlier = known & (count > 0)
        sizes = np.empty((2, *effect.shape))
        np.abs(effect, out=sizes[1])
        np.multiply(np.abs(apart), np.sqrt(count / (count + 1.0)), out=sizes[0])
        if not earlier.all():
            sizes[0][~earlier] = np.nan
        new, between = (SIGMA_OF_MAD * median_of_rows(sizes.transpose(1, 0, 2))) ** 2
        self._n_windows[scale] += 1
        old, n_windows = self._between[scale], min(self._n_windows[scale], KEPT_WINDOWS)
        with np.errstate(invalid="ignore"):
            between = np.where(old > 0.0, np.minimum(between, MAX_JUMP * old), between)
            new = np.fmin(new, MAX_JUMP * np.fmax(self._measured[scale], self.variance[scale]))
        self._between[scale] = old + np.where(np.isfinite(between), between - old, 0.0) / n_windows
        self._learn(scale, new, earlier.sum(axis=0))
        count += known
        mean += np.where(known, apart, 0.0) / np.minimum(np.maximum(count, 1), KEPT_WINDOWS)

    def _learn(self, scale: int, new: Floats, n_rows: Ints) -> None:
        is_new = np.isfinite(new) & (n_rows > 0)
        of_window = EFFICIENCY * np.maximum(n_rows - self._n_fitted, 0.5)
        freedom, old = self._freedom[scale], self._measured[scale]
        kept = np.minimum(freedom, KEPT_WINDOWS * of_window)
        mixed = (kept * old + of_window * np.where(is_new, new, 0.0)) / (kept + of_window)
        self._measured[scale] = np.where(is_new, mixed, old)
        self._freedom[scale] = np.where(is_new, kept + of_window, freedom)

    def evaluate(self, sigma: Floats) -> None:
        """Mix what was measured with what is expected. ``sigma`` (C,): noise of a step within a
        block of five."""
        before = expected = (_INDEPENDENT[0] * sigma) ** 2
        n_blocks, growth, unsure = 1.0, before, np.zeros(len(sigma))
        n_windows = self._n_windows.tolist()
        for scale, length in enumerate(_BLOCKS):
            is_measured = scale < len(n_windows)
            if scale:
                longer = length / n_blocks
                minimum = 1.0 if is_measured else math.sqrt(longer)
                expected = before * np.minimum(np.maximum(growth, minimum), longer) / longer
            own = expected
            if is_measured:
                weight, measured = self._freedom[scale], self._measured[scale]
                is_unknown = np.isnan(expected)
                if is_unknown.any():
                    expected = np.where((weight > 0.0) & is_unknown, measured, expected)
                freedom = weight + PRIOR
                own = (weight * measured + PRIOR * expected) / freedom
                self.freedom[scale] = freedom
                if n_windows[scale] >= MIN_WINDOWS:
                    part = BETWEEN_WINDOWS / (n_windows[scale] + BETWEEN_WINDOWS)
                    unsure = part * np.maximum(self._between[scale] - own, 0.0)
            per_step = before / _INDEPENDENT[max(scale - 1, 0)] ** 2
            growth = (own / _INDEPENDENT[scale] ** 2) / np.maximum(per_step, MIN_SIGMA**2)
            self._own[scale], self.variance[scale] = own, own + unsure
            before, n_blocks = own, float(length)
        self._log_variance = None

    def error(self, n_blocks: Ints | float) -> Floats:
        """Standard error of so many blocks, by power laws between the scales: (C,) of a number,
        (R, C) of whole numbers of that shape."""
        if self._log_variance is None:
            self._log_variance = np.log(np.maximum(self.variance, MIN_SIGMA**2 / 400.0))
        log_v = self._log_variance
        if isinstance(n_blocks, np.ndarray):
            n = np.minimum(n_blocks, _BLOCKS[-1])
            above, part, columns = _ABOVE[n], _PART[n], np.arange(log_v.shape[1])
            low, high = log_v[above - 1, columns], log_v[above, columns]
        else:
            above, part = _scale_of(float(n_blocks))
            low, high = log_v[above - 1], log_v[above]
        return np.asarray(np.exp(0.5 * (low + part * (high - low))))

    def sigma(self, of_step: Floats) -> Floats:
        """(C,) standard deviation of steps without memory whose means would scatter as much, at
        any scale that was measured. ``of_step``: that within blocks."""
        measured = np.sqrt(self.variance[:-1]) / INDEPENDENT[:-1, None]
        measured[self._n_windows < MIN_WINDOWS] = np.nan
        return np.asarray(np.fmax(of_step, np.fmax.reduce(measured, axis=0)))


def _between_scales(n_blocks: Any) -> tuple[Any, Any]:
    """Scale above so many blocks, and how far they are from the one below to it, by logarithms."""
    length = np.clip(n_blocks, BLOCKS[0], BLOCKS[-1])
    above = np.clip(np.searchsorted(BLOCKS, length), 1, len(BLOCKS) - 1)
    low_n, high_n = BLOCKS[above - 1], BLOCKS[above]
    return above, np.log(length / low_n) / np.log(high_n / low_n)


@lru_cache(1024)
def _scale_of(n_blocks: float) -> tuple[int, float]:
    above, part = _between_scales(np.float64(n_blocks))
    return int(above), float(part)


_BLOCKS, _INDEPENDENT = BLOCKS.tolist(), INDEPENDENT.tolist()
_ABOVE, _PART = _between_scales(np.arange(_BLOCKS[-1] + 1, dtype=np.float64))


def beyond_chance(z: float, freedom: Floats) -> Floats:
    """The limit ``z`` of a known spread, for one of so many degrees of freedom: Student's t.

    sqrt(f (exp(z^2 / f) - 1)), within a few percent of the quantile.

    >>> beyond_chance(4.75, np.array([4.0, 15.0, 100.0])).round(1)
    array([33.5,  7.2,  5. ])
    """
    with np.errstate(over="ignore"):
        return np.sqrt(freedom * np.expm1(np.minimum(z * z / freedom, math.log(1e6))))


def quantile(values: npt.NDArray[Any], part: float) -> float:
    """As ``np.quantile``, several times faster on a few numbers."""
    ordered = np.sort(values)
    at, beyond = divmod(part * (len(ordered) - 1), 1.0)
    low, high = ordered[int(at)], ordered[min(int(at) + 1, len(ordered) - 1)]
    return float(low + (high - low) * values.dtype.type(beyond))


def mixed(old: Floats, new: Floats) -> Floats:
    """An eighth of the new one; all of it where there was none."""
    known = np.where(np.isnan(old), new, old + 0.125 * (new - old))
    return np.where(np.isnan(new), old, known)


def short_of(steps: int, full: int) -> float:
    """Factor of an error while there are fewer steps than in a window."""
    return math.sqrt(full / max(min(steps, full), 1))


def slide(
    total: Floats, count: npt.NDArray[np.int32], new: Floats, old: npt.NDArray[np.float32] | None
) -> None:
    """Add values to sums and counts, and take off those that leave; NaN are left out."""
    known = np.isfinite(new)
    total += np.where(known, new.astype(np.float32), 0.0)
    count += known
    if old is not None:
        left = np.isfinite(old)
        total -= np.where(left, old, 0.0)
        count -= left

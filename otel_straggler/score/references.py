"""What normal is for a rank's own history: the best median so far, slowly forgotten."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np
import numpy.typing as npt

from otel_straggler.model.observation import Floats, Ints


class References:
    """Best medians of subjects (devices) by name (section or kernel); grows as they appear.

    A best that is not met again doubles in ``half_life_s``, so that one lucky window is
    forgiven (in NVRx it lowers every later score for good).

    State: 16 bytes per (subject, name).
    """

    def __init__(self, half_life_s: float) -> None:
        self._half_life_ns = half_life_s * 1e9
        self._rows: dict[Hashable, int] = {}
        self._columns: dict[str, int] = {}
        self._best_s = np.empty((0, 0))
        self._met_at_ns = np.empty((0, 0), np.int64)

    def update(
        self,
        subjects: Sequence[Hashable],
        names: Sequence[str],
        median_s: Floats,
        eligible: npt.NDArray[np.bool_],
        now_ns: int,
    ) -> Floats:
        """Take the medians of a window in, then give the references that score it.

        Args:
            subjects: R subjects, each once; names: S names, each once.
            median_s: (R, S) seconds; NaN where there is none.
            eligible: (R, S) whether the median rests on enough runs to become a reference.
            now_ns: end of the window, the sender's clock.

        Returns:
            (R, S) references in seconds, faded to ``now_ns``; NaN where there is none yet.

        Cost: O(R * S), and a copy of the state when it grows.
        """
        rows = np.array([self._rows.setdefault(s, len(self._rows)) for s in subjects], np.intp)
        columns = np.array(
            [self._columns.setdefault(n, len(self._columns)) for n in names], np.intp
        )
        self._grow()
        block = np.ix_(rows, columns)
        faded = self._faded(self._best_s[block], self._met_at_ns[block], now_ns)
        met = eligible & ~np.isnan(median_s) & ~(faded < median_s)
        reference = np.where(met, median_s, faded)
        self._best_s[block] = np.where(met, median_s, self._best_s[block])
        self._met_at_ns[block] = np.where(met, now_ns, self._met_at_ns[block])
        return reference

    def _faded(self, best_s: Floats, met_at_ns: Ints, now_ns: int) -> Floats:
        age_ns = np.maximum(0, now_ns - met_at_ns)
        # Past 1,000 half-lives nothing is remembered; the cap keeps the power finite.
        faded: Floats = best_s * np.exp2(np.minimum(age_ns / self._half_life_ns, 1000.0))
        return faded

    def _grow(self) -> None:
        rows, columns = self._best_s.shape
        if len(self._rows) <= rows and len(self._columns) <= columns:
            return
        shape = (_room(rows, len(self._rows)), _room(columns, len(self._columns)))
        best, met = np.full(shape, np.nan), np.zeros(shape, np.int64)
        best[:rows, :columns] = self._best_s
        met[:rows, :columns] = self._met_at_ns
        self._best_s, self._met_at_ns = best, met


def _room(have: int, needed: int) -> int:
    return have if needed <= have else max(needed, have + have // 2, 8)
